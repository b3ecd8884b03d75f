package transport

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// oldestVersion is assumed for a client that names no protocol version.
const oldestVersion = "2025-03-26"

var errNoRoom = errors.New("too many sessions are in use")

// resumeSession prepares a request that names a session. An unknown session was lost: mcp-server restarted, or the
// session was idle for too long. Most clients never start another session, so resume starts one for them, and they keep
// using the old ID.
//
// Tools also use the old ID, so that a session frozen by an alarm stays frozen. Calls do not depend on a session's
// earlier content. A client cannot reach another session in this way, because the new session is empty. A session that
// its client deleted stays deleted.
func (h *Handler) resumeSession(s *responseStream, r *http.Request) error {
	id := r.Header.Get(sessionHeader)
	if !isSessionID(id) {
		return nil // the caller answers 404
	}
	// Two requests of one lost session may arrive together, and must get the same new session.
	h.resuming.Lock()
	defer h.resuming.Unlock()
	live, known := h.book.resolveName(id)
	if !known {
		if !h.makeRoom() {
			return errNoRoom
		}
		version := r.Header.Get(versionHeader)
		version = cmp.Or(version, oldestVersion)
		var err error
		// Not under the request's context: other requests will use the session after this one.
		if live, err = h.startSession(context.WithoutCancel(r.Context()), version); err != nil {
			return err
		}
		h.book.addSession(live, userOf(r))
		h.book.renameSession(live, id)
	}
	if live != id {
		r.Header.Set(sessionHeader, live)
		s.session = id
	}
	return nil
}

// isSessionID reports whether a text has the form of session IDs, which rand.Text makes.
func isSessionID(id string) bool {
	// rand.Text uses the base32 alphabet of RFC 4648.
	return len(id) == 26 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// startSession starts a session for a client whose protocol version is the only known fact.
func (h *Handler) startSession(ctx context.Context, version string) (id string, err error) {
	params, _ := json.Marshal(mcp.InitializeParams{ // cannot fail
		ProtocolVersion: version,
		Capabilities:    &mcp.ClientCapabilities{},
		ClientInfo:      &mcp.Implementation{Name: "resumed session", Version: "1"},
	})
	post := func(body []byte) (*discardedResponse, error) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "/mcp", bytes.NewReader(body)) // the URL is valid
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, versionHeader: {version},
		}
		if id != "" {
			r.Header.Set(sessionHeader, id)
		}
		w := &discardedResponse{header: http.Header{}, code: http.StatusOK}
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
	// Until this notification, the SDK sends the client no requests, such as elicitation or sampling.
	_, err = post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return id, err
}

// discardedResponse is a response whose body is discarded.
type discardedResponse struct {
	header http.Header
	code   int
}

func (d *discardedResponse) Header() http.Header         { return d.header }
func (d *discardedResponse) WriteHeader(code int)        { d.code = code }
func (d *discardedResponse) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (d *discardedResponse) FlushError() error           { return nil }
