package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// ServeStdio connects a client on stdin and stdout with the server that LocateServer finds, until the client closes
// stdin.
func ServeStdio(ctx context.Context, c Config, stdin io.Reader, stdout io.Writer) error {
	place, err := LocateServer(ctx, c)
	if err != nil {
		return err
	}
	if _, err := fetchBody(ctx, c, place, "/healthz"); err != nil { // so that a client's log has the reason
		return err
	}
	b := &stdioTranslator{url: place.URL, client: place.newClient(c.Token), reconnect: reconnectTime, to: stdout}
	return b.translateMessages(ctx, stdin, func() bool { return hasHungUp(stdout) })
}

// CheckReady asks a server whether it can run code. Its error names the problem and a remedy.
func CheckReady(ctx context.Context, c Config, p Place) error {
	text, err := fetchBody(ctx, c, p, "/readyz")
	var answer struct{ Ready bool }
	if err == nil && (json.Unmarshal(text, &answer) != nil || !answer.Ready) {
		err = orStranger(ctx, c, p, fmt.Errorf("%s is not ready: %.400q", p.URL, text))
	}
	return err
}

// maxAnswer bounds answers other than MCP messages, in bytes.
const maxAnswer = 4 << 20

// ListServers returns the MCP servers with mcp-server's state of them.
func ListServers(ctx context.Context, c Config, p Place) ([]mcpserver.Status, error) {
	text, err := fetchBody(ctx, c, p, mcpserver.StatusPath)
	if err != nil {
		return nil, err
	}
	var out struct {
		Servers []mcpserver.Status `json:"servers"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s%s: %w", p.URL, mcpserver.StatusPath, err)
	}
	return out.Servers, nil
}

// fetchBody returns the body of an answer with status 200.
func fetchBody(ctx context.Context, c Config, p Place, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/mcp")+path, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", p.URL, err)
	}
	resp, err := p.newClient(c.Token).Do(req)
	if err != nil {
		return nil, orStranger(ctx, c, p, explainFailure(err, c, p))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s is not ready (%s): %.400q", p.Name(), resp.Status, strings.TrimSpace(string(text)))
		return nil, orStranger(ctx, c, p, err)
	}
	return text, err
}
