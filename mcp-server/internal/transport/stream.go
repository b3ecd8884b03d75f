package transport

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
)

// responseStream is the response to one request. It adds comments to an event stream that is silent for long, because
// HTTP clients and proxies cut silent connections. It also gives up on a client that does not read.
//
// The MCP SDK writes one whole event at a time, so a comment between two writes never breaks an event.
type responseStream struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	header http.Header // set by the SDK; copied to w when the answer starts
	cfg    *Config

	mu     sync.Mutex
	began  bool
	events bool // the answer is an event stream
	over   bool
	timer  *time.Timer // runs until a comment is due
	soon   *time.Timer // runs until buffered data is flushed
	// announced is called with the session ID of an answer that starts a session.
	announced func(id string)
	// session is the ID by which the client knows its session, if it differs from the session's ID.
	session string
	// body is the request's body, or nil.
	body []byte
	// memory has the largest event that was written. It is returned with the end of the request.
	memory *membudget.Account
	// refused means that the SDK has refused the request and has not written the reason yet.
	refused bool
}

// comment is a line that clients skip in an event stream.
const comment = ": still here\n\n"

// bufferingHeader, with the value no, stops nginx from buffering an event stream.
const bufferingHeader = "X-Accel-Buffering"

// flushTime is how long an event waits for the end of the response, which usually follows at once. Then one write to
// the client sends both.
const flushTime = time.Millisecond

// chunk is the size of a write under one deadline, in bytes.
const chunk = 64 << 10

// Header returns the headers that the SDK sets.
func (s *responseStream) Header() http.Header { return s.header }

// WriteHeader starts the response.
func (s *responseStream) WriteHeader(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code == http.StatusBadRequest && s.body != nil && !s.began {
		s.refused = true // the next Write has the reason
		return
	}
	s.beginResponse(code)
}

// beginResponse starts the response, unless it has started.
func (s *responseStream) beginResponse(code int) {
	if s.began || s.over {
		return
	}
	s.began = true
	for name, values := range s.header {
		s.w.Header()[name] = values
	}
	// The SDK names the session that replaced the client's, and the client must not see that ID.
	if s.session != "" && s.header.Get(sessionHeader) != "" {
		s.w.Header().Set(sessionHeader, s.session)
	}
	s.events = strings.HasPrefix(s.header.Get("Content-Type"), "text/event-stream")
	if s.events {
		s.w.Header().Set(bufferingHeader, "no")
	}
	if id := s.header.Get(sessionHeader); id != "" && s.announced != nil {
		s.announced(id)
	}
	s.w.WriteHeader(code)
}

// Write writes in chunks, each with a separate deadline.
func (s *responseStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// net/http: a ResponseWriter must not be used after its handler has returned.
	if s.over {
		return 0, http.ErrHandlerTimeout
	}
	if s.refused {
		s.refused = false
		status, answer := s.explainRefusal(p)
		s.beginResponse(status)
		_, err := s.w.Write(answer)
		return len(p), err
	}
	// A client that does not read keeps its answers in memory.
	//defence:unread-answers permits
	hasRoom := s.memory.TryHold(int64(len(p)))
	if !hasRoom {
		return 0, s.refuseAnswer()
	}
	s.beginResponse(http.StatusOK)
	s.restartTimer()
	written := 0
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		s.setDeadline()
		n, err := s.w.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		p = p[len(part):]
	}
	return written, nil
}

// errUnread is for an answer beyond the memory for unread answers. A model must not repeat the writes of its code.
var errUnread = errors.New("the call is done, but its answer is not sent, because too many answers are unread. " +
	"Read them. get_run returns the result of a run: do not run its code again")

// refuseAnswer ends the response without the answer. A stream that has begun just ends.
func (s *responseStream) refuseAnswer() error {
	if !s.began && !s.over {
		s.header.Del("Content-Type")
		s.header.Set("Retry-After", "1")
		s.beginResponse(http.StatusServiceUnavailable)
		_, _ = s.w.Write([]byte(errUnread.Error() + "\n")) // an error means that the client is gone
	}
	return errUnread
}

// FlushError is called by http.ResponseController. It flushes within flushTime. The next write returns its error.
func (s *responseStream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.soon == nil:
		s.soon = time.AfterFunc(flushTime, s.flushBuffer)
	default:
		s.soon.Reset(flushTime)
	}
	return nil
}

// flushBuffer sends buffered data to the client.
func (s *responseStream) flushBuffer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.setDeadline()
	_ = s.rc.Flush()
}

// setDeadline gives the client WriteTime to read the next write.
func (s *responseStream) setDeadline() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.cfg.WriteTime)) // not supported: no deadline
}

// restartTimer restarts the timer for the next comment.
func (s *responseStream) restartTimer() {
	if s.timer != nil {
		s.timer.Reset(s.cfg.Comment)
	}
}

// startComments starts the timer for comments. Call it after reading the request.
func (s *responseStream) startComments() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.cfg.Comment, s.writeComment)
}

// writeComment writes a comment. If the response has not started, it becomes an event stream whose first event takes
// long.
func (s *responseStream) writeComment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A comment would damage a JSON answer.
	if s.over || s.began && !s.events {
		return
	}
	if !s.began {
		s.began, s.events = true, true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache, no-transform")
		s.w.Header().Set(bufferingHeader, "no")
		s.w.WriteHeader(http.StatusOK)
	}
	s.setDeadline()
	if _, err := s.w.Write([]byte(comment)); err == nil {
		_ = s.rc.Flush()
		s.restartTimer()
	}
}

// endStream ends the stream. Buffered data is still sent. Later writes fail.
func (s *responseStream) endStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused { // the SDK wrote no reason
		s.beginResponse(http.StatusBadRequest)
	}
	// Set under the lock: a timer that fires now must not write after the handler has returned.
	s.over = true
	for _, t := range []*time.Timer{s.timer, s.soon} {
		if t != nil {
			t.Stop()
		}
	}
	if !s.began { // no byte was written: net/http answers 200 with these headers
		for name, values := range s.header {
			s.w.Header()[name] = values
		}
	}
	s.setDeadline()
}
