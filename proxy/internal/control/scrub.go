package control

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// serveScrub replaces the credentials in the given texts by token names. mcp-server calls it before it stores code and
// output, because only the proxy knows the credentials.
func (s *Control) serveScrub(r *http.Request) (any, error) {
	var texts []string
	if err := json.NewDecoder(io.LimitReader(r.Body, proxyapi.MaxScrub)).Decode(&texts); err != nil {
		return nil, rpc.NewBadRequest("want a list of texts as JSON, up to 8 MiB")
	}
	// One snapshot for all texts, also if a reload comes between them.
	scrubber := s.conf.Current().Scrub
	for i, text := range texts {
		//defence:scrub-stored
		texts[i] = scrubber.CleanForLog(text)
	}
	return texts, nil
}

// serveScrubFile replaces the credentials in a file of a run by token names. mcp-server calls it before it stores or
// shows the file.
func (s *Control) serveScrubFile(w http.ResponseWriter, r *http.Request) {
	// The answer begins before the whole file has arrived.
	_ = http.NewResponseController(w).EnableFullDuplex()
	if _, err := io.Copy(w, s.conf.Current().Scrub.NewFileReader(r.Body)); err != nil {
		panic(http.ErrAbortHandler) // a part must not pass for the whole file
	}
}
