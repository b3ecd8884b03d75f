package broker

import (
	"errors"
	"io"
	"sync"
)

// The bounds of what calls hold in mcp-server's memory, for one run and for all together, in bytes of arguments and of
// answers that are not read yet. Memory holds each byte a few times.
const (
	maxRunHolds = 64 << 20
	maxHolds    = 128 << 20
)

var errNoRoom = errors.New("the calls in flight hold too much")

// room is the memory for arguments and answers. Code decides how much it sends at once, and when it reads. The zero
// room is ready, and safe for concurrent use.
type room struct {
	mu    sync.Mutex
	total int
	runs  map[string]int
}

// share is what one call holds.
type share struct {
	room *room
	run  string
	size int
}

// take reserves more. If there is no room, it is false and reserves nothing.
func (s *share) take(n int) bool {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total+n > maxHolds || r.runs[s.run]+n > maxRunHolds {
		return false
	}
	if r.runs == nil {
		r.runs = map[string]int{}
	}
	s.size += n
	r.total += n
	r.runs[s.run] += n
	return true
}

// free releases everything.
func (s *share) free() {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.size == 0 { // the first call of all may hold nothing
		return
	}
	r.total -= s.size
	if r.runs[s.run] -= s.size; r.runs[s.run] <= 0 {
		delete(r.runs, s.run)
	}
	s.size = 0
}

// reader reads only as much as the share has room for.
func (s *share) reader(from io.Reader) io.Reader { return &sharedReader{from, s} }

type sharedReader struct {
	from  io.Reader
	share *share
}

func (r *sharedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 && !r.share.take(n) {
		return 0, errNoRoom
	}
	return n, err
}
