package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

// Bounds of a client's document (draft-ietf-oauth-client-id-metadata-document).
const (
	maxDocument   = 5 << 10 // bytes
	documentTime  = 3 * time.Second
	documentFresh = 5 * time.Minute // a document counts for this time, then the next login reads it again
)

// newDocumentClient returns an HTTP client for documents of clients. Anyone chooses their addresses, so it connects to
// public addresses only, and follows no redirect. It uses no proxy of the environment, which would resolve the host
// again.
func newDocumentClient() *http.Client {
	return &http.Client{
		Timeout: documentTime,
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Control: dialguard.Guard{}.Control}).DialContext,
			DisableKeepAlives:      true,
			DisableCompression:     true, // a small answer could expand to a large one
			MaxResponseHeaderBytes: maxDocument,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			//defence:client-document instead nil
			return http.ErrUseLastResponse
		},
	}
}

// isDocumentURL reports whether a client's ID is the URL of its document, in the only spelling that the draft permits.
func isDocumentURL(id string) bool {
	u, err := url.Parse(id)
	//defence:client-url permits
	return err == nil && u.Scheme == "https" && !isBadRedirect(id) && u.RawQuery == "" && !u.ForceQuery &&
		len(u.Path) > 1 && path.Clean(u.Path) == u.Path && u.RawPath == ""
}

// hostOfDocument returns the host that serves a client's document, or "" if the client has registered itself.
func hostOfDocument(id string) string {
	//defence:client-document permits
	if !isDocumentURL(id) {
		return ""
	}
	return hostOf(id)
}

// findClient returns a client. The error is errUnknown if there is no such client, or a requestError. An ID that is a
// URL names a document, which is read again if it is not fresh. The table of clients is its cache.
func (s *Server) findClient(r *http.Request, id string) (client, error) {
	c, at, err := s.store.findClient(r.Context(), id)
	if !isDocumentURL(id) || err != nil && !errors.Is(err, errUnknown) || err == nil && s.store.isFresh(at) {
		return c, err
	}
	// Each reading is a request to a host of the sender's choice, and a new client.
	//defence:client-flood
	if s.registrations.IsExceeded(addresslimit.AddressOf(r)) {
		return c, requestError("Too many clients have come at once. Wait a minute, and start again in the client.")
	}
	c, err = s.fetchDocument(r.Context(), id)
	if err != nil {
		s.logLogin(slog.LevelWarn, "refused a client, because its document is not usable",
			slog.String("client", id), slog.String("reason", err.Error()))
		// Without the reason, which would tell the sender about hosts and ports that this machine reaches.
		return c, requestError("The document of the client cannot be read, or is not valid.")
	}
	_, err = s.store.addClient(r.Context(), c)
	return c, err
}

// fetchDocument reads the document of a client.
func (s *Server) fetchDocument(ctx context.Context, id string) (c client, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil) //nolint:gosec // the client has the guard
	if err != nil {
		return c, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.documents.Do(req) //nolint:gosec // the client has the guard
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	//defence:client-document
	if resp.StatusCode != http.StatusOK || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return c, fmt.Errorf("want status 200 and JSON, got status %d and %q", resp.StatusCode, kind)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return c, err
	case len(body) > maxDocument:
		return c, errors.New("it is larger than 5 KiB")
	}
	return parseDocument(id, body)
}

// parseDocument checks a document like a registration.
func parseDocument(id string, body []byte) (client, error) {
	var in struct {
		metadata
		ID     string          `json:"client_id"`
		Method string          `json:"token_endpoint_auth_method"`
		Secret json.RawMessage `json:"client_secret"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return client{}, err
	}
	switch _, text := in.findMistake(); {
	// A host that serves documents of others must not speak for other clients.
	//defence:client-document
	case in.ID != id:
		return client{}, errors.New("its client_id is not its own URL")
	// Everyone can read the document, so it must not rely on a secret.
	//defence:client-document
	case in.Secret != nil, strings.HasPrefix(in.Method, "client_secret"):
		return client{}, errors.New("it has a client_secret")
	case text != "":
		return client{}, errors.New(text)
	}
	return client{id, cleanName(in.Name), in.Redirects}, nil
}
