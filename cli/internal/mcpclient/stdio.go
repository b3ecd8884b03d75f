package mcpclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// startTime is how long ServeStdio waits for a CodeForge that does not run yet. Clients wait 30 to 60 seconds for the
// answer to their first message.
const startTime = time.Minute

// ServeStdio connects a client on stdin and stdout with the server that LocateServer finds, until the client closes
// stdin. Clients often start before CodeForge does: then it writes the reason to stderr, and waits up to startTime.
func ServeStdio(ctx context.Context, c Config, stdin io.Reader, stdout, stderr io.Writer) error {
	place, err := findServer(ctx, c)
	if isAbsent(err) {
		lines := bufio.NewReader(stdin)
		stdin = lines
		fmt.Fprintf(stderr, "codeforge: %v. Waiting for it.\n", err)
		place, err = waitForServer(ctx, c, lines, err)
	}
	if err != nil {
		return err
	}
	b := &stdioTranslator{url: place.URL, client: place.newClient(c.Token), reconnect: reconnectTime, to: stdout}
	return b.translateMessages(ctx, stdin, func() bool { return hasHungUp(stdout) })
}

// findServer locates the server, and checks that it answers.
func findServer(ctx context.Context, c Config) (Place, error) {
	place, err := LocateServer(ctx, c)
	if err == nil {
		_, err = fetchBody(ctx, c, place, "/healthz") // so that a client's log has the reason
	}
	return place, err
}

// isAbsent reports whether no server runs at the place, as far as an error of findServer shows.
func isAbsent(err error) bool {
	var absent *absentError
	var dns *net.DNSError
	if errors.Is(err, fs.ErrPermission) || errors.As(err, &dns) { // waiting does not help
		return false
	}
	return errors.As(err, &absent) || isUnsent(err)
}

// waitForServer tries findServer again until the server runs, startTime is over, or the client has closed stdin. Then
// it returns the last error.
func waitForServer(ctx context.Context, c Config, stdin *bufio.Reader, err error) (place Place, _ error) {
	first := make(chan error, 1)
	go func() {
		_, err := stdin.Peek(1)
		first <- err
	}()
	giveUp := time.After(startTime)
	for hasInput := false; err != nil || !hasInput; {
		try := time.After(reconnectPause)
		if !isAbsent(err) {
			try, giveUp = nil, nil // Peek still uses stdin
		}
		select {
		case end := <-first:
			if hasInput = true; end != nil {
				return place, err
			}
		case <-try:
			if place, err = findServer(ctx, c); err != nil && !isAbsent(err) {
				return place, err
			}
		case <-giveUp:
			return place, err
		case <-ctx.Done():
			return place, ctx.Err()
		}
	}
	return place, nil
}

// CheckReady asks a server whether it can run code. Its error names the problem and a remedy.
func CheckReady(ctx context.Context, c Config, p Place) error {
	text, err := fetchBody(ctx, c, p, "/readyz")
	var answer struct{ Ready bool }
	if err == nil && (json.Unmarshal(text, &answer) != nil || !answer.Ready) {
		err = explainStranger(ctx, c, p, fmt.Errorf("%s is not ready: %.400q", p.URL, text))
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
		return nil, explainStranger(ctx, c, p, explainFailure(err, c, p))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s is not ready (%s): %.400q", p.Name(), resp.Status, strings.TrimSpace(string(text)))
		return nil, explainStranger(ctx, c, p, err)
	}
	return text, err
}
