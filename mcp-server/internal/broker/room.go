package broker

import (
	"errors"
	"io"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
)

// The bounds of what calls hold in mcp-server's memory, for one holder and for all together, in bytes of arguments and
// of answers that are not read yet. Memory holds each byte a few times.
const (
	maxOneHolds = 64 << 20
	maxHolds    = 128 << 20
)

// holder is whom calls of a run are counted for: its tenant, or the run itself.
func (b *Broker) holder(run string) string {
	if session, _ := b.session(run); tenant.Of(session) != "" {
		return "tenant " + tenant.Of(session)
	}
	return run
}

var errNoRoom = errors.New("the calls in flight hold too much")

// room is the memory for arguments and answers. Code decides how much it sends at once, and when it reads. The zero
// room is ready, and safe for concurrent use.
type room struct {
	mu    sync.Mutex
	total int
	holds map[string]int // by holder
}

// share is what one call holds.
type share struct {
	room   *room
	holder string
	size   int
}

// take reserves more. If there is no room, it is false and reserves nothing.
func (s *share) take(n int) bool {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total+n > maxHolds || r.holds[s.holder]+n > maxOneHolds {
		return false
	}
	if r.holds == nil {
		r.holds = map[string]int{}
	}
	s.size += n
	r.total += n
	r.holds[s.holder] += n
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
	if r.holds[s.holder] -= s.size; r.holds[s.holder] <= 0 {
		delete(r.holds, s.holder)
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
