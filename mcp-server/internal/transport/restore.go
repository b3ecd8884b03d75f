package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// oldestVersion is the protocol version of a client that names none.
const oldestVersion = "2025-03-26"

var errNoRoom = errors.New("too many sessions are in use")

// resume prepares a request that names a session. An unknown session was lost: mcp-server restarted, or the session was
// idle for too long. Most clients never begin another one, so a new session is begun on their behalf, and they keep
// using the old id. By that tools know it, so that a session which an alarm has frozen stays frozen. No call depends on
// what was in a session, and nobody gets at another session: the new one is as empty as any after initialize. A session
// that its client deleted stays deleted.
func (h *Handler) resume(s *stream, r *http.Request) error {
	id := r.Header.Get(sessionHeader)
	if !sessionID(id) {
		return nil // the caller answers 404
	}
	h.resuming.Lock()
	defer h.resuming.Unlock()
	live, known := h.book.resolve(id)
	if !known {
		if !h.room() {
			return errNoRoom
		}
		version := r.Header.Get(versionHeader)
		if version == "" {
			version = oldestVersion
		}
		var err error
		if live, err = h.initialize(context.WithoutCancel(r.Context()), version); err != nil {
			return err
		}
		h.book.enter(live)
		h.book.rename(live, id)
	}
	if live != id {
		r.Header.Set(sessionHeader, live)
		s.session = id
	}
	return nil
}

// sessionID reports whether a text has the form of the ids that rand.Text makes for sessions.
func sessionID(id string) bool {
	if len(id) != 26 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// initialize begins a session for a client of which only the protocol version is known.
func (h *Handler) initialize(ctx context.Context, version string) (id string, err error) {
	params, err := json.Marshal(mcp.InitializeParams{
		ProtocolVersion: version,
		Capabilities:    &mcp.ClientCapabilities{},
		ClientInfo:      &mcp.Implementation{Name: "resumed session", Version: "1"},
	})
	if err != nil {
		return "", err
	}
	post := func(body []byte) (*discarded, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/mcp", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, versionHeader: {version},
		}
		if id != "" {
			r.Header.Set(sessionHeader, id)
		}
		w := &discarded{header: http.Header{}, code: http.StatusOK}
		h.legacy.ServeHTTP(w, r)
		if w.code >= http.StatusMultipleChoices {
			return nil, fmt.Errorf("resuming the session: status %d", w.code)
		}
		return w, nil
	}
	w, err := post(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`, params))
	if err != nil {
		return "", err
	}
	id = w.header.Get(sessionHeader)
	_, err = post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return id, err
}

// discarded is a response whose body is discarded.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(code int)        { d.code = code }
func (d *discarded) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (d *discarded) FlushError() error           { return nil }
