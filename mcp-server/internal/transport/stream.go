package transport

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// stream is the response to one request. It adds comments to an event stream that is silent for long, since HTTP
// clients and proxies cut silent connections, and gives up on a client that does not read.
//
// The MCP SDK writes one whole event at a time, so a comment between two writes never breaks an event.
type stream struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	header http.Header // what the SDK sets; copied to w when the answer begins
	cfg    *Config

	mu     sync.Mutex
	began  bool
	events bool // the answer is an event stream
	over   bool
	timer  *time.Timer // until a comment is due
	soon   *time.Timer // until buffered data is flushed
	// announced is called with the session id of an answer that begins a session.
	announced func(id string)
	// session is the name by which the client knows its session, if that is not its id.
	session string
	// body is that of the request; nil if it has none.
	body []byte
	// refused means that the SDK has refused the request and not yet written the reason.
	refused bool
}

// comment is a line that clients skip in an event stream.
const comment = ": still here\n\n"

// flushTime is how long an event waits for the end of the response, which usually follows immediately. Then one write
// to the client is enough for both.
const flushTime = time.Millisecond

// chunk is how much is written under one deadline.
const chunk = 64 << 10

func newStream(w http.ResponseWriter, cfg *Config) *stream {
	return &stream{w: w, rc: http.NewResponseController(w), header: http.Header{}, cfg: cfg}
}

// Header is what the SDK sets.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader begins the response.
func (s *stream) WriteHeader(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code == http.StatusBadRequest && s.body != nil && !s.began {
		s.refused = true // the next Write has the reason
		return
	}
	s.begin(code)
}

// begin begins the response unless it has begun.
func (s *stream) begin(code int) {
	if s.began || s.over {
		return
	}
	s.began = true
	for name, values := range s.header {
		s.w.Header()[name] = values
	}
	if s.session != "" && s.header.Get(sessionHeader) != "" {
		s.w.Header().Set(sessionHeader, s.session)
	}
	s.events = strings.HasPrefix(s.header.Get("Content-Type"), "text/event-stream")
	if id := s.header.Get(sessionHeader); id != "" && s.announced != nil {
		s.announced(id)
	}
	s.w.WriteHeader(code)
}

// Write writes in chunks, each with its own deadline.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, http.ErrHandlerTimeout
	}
	if s.refused {
		s.refused = false
		status, answer := s.explain(p)
		s.begin(status)
		_, err := s.w.Write(answer)
		return len(p), err
	}
	s.begin(http.StatusOK)
	s.rest()
	written := 0
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		s.deadline()
		n, err := s.w.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		p = p[len(part):]
	}
	return written, nil
}

// FlushError is what http.ResponseController calls. It flushes within flushTime; an error is returned by the next
// write.
func (s *stream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.soon == nil:
		s.soon = time.AfterFunc(flushTime, s.flush)
	default:
		s.soon.Reset(flushTime)
	}
	return nil
}

// flush sends buffered data to the client.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.deadline()
	_ = s.rc.Flush()
}

// deadline gives the client time to read the next write.
func (s *stream) deadline() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.cfg.WriteTime)) // not supported: no deadline
}

// rest restarts the timer that ends in a comment.
func (s *stream) rest() {
	if s.timer != nil {
		s.timer.Reset(s.cfg.Comment)
	}
}

// listen starts the timer that ends in a comment. The request must have been read.
func (s *stream) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.cfg.Comment, s.silent)
}

// silent writes a comment. If the response has not begun by now, it is an event stream whose first event takes long.
func (s *stream) silent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.began && !s.events {
		return
	}
	if !s.began {
		s.began, s.events = true, true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache, no-transform")
		s.w.WriteHeader(http.StatusOK)
	}
	s.deadline()
	if _, err := s.w.Write([]byte(comment)); err == nil {
		_ = s.rc.Flush()
		s.rest()
	}
}

// close ends the stream. Buffered data is still sent; later writes are refused.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused { // the SDK wrote no reason
		s.begin(http.StatusBadRequest)
	}
	s.over = true
	for _, t := range []*time.Timer{s.timer, s.soon} {
		if t != nil {
			t.Stop()
		}
	}
	if !s.began { // nothing was written: net/http answers 200 with these headers
		for name, values := range s.header {
			s.w.Header()[name] = values
		}
	}
	s.deadline()
}
