package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Stdio connects a client on stdin and stdout with the server that Locate finds, until the client closes stdin.
func Stdio(ctx context.Context, c Config, stdin io.Reader, stdout io.Writer) error {
	place, err := Locate(c)
	if err != nil {
		return err
	}
	if err := alive(ctx, c, place); err != nil {
		return err
	}
	b := &bridge{url: place.URL, client: place.client(c.Token), reconnect: reconnectTime, to: stdout}
	return b.run(ctx, stdin, func() bool { return hungUp(stdout) })
}

// Ready asks a server at a URL whether it can run code; the error says what is wrong and what to do.
func Ready(ctx context.Context, c Config, p Place) error {
	return get(ctx, c, p, "/readyz")
}

// alive asks whether a server answers, so that a client's log says what is wrong.
func alive(ctx context.Context, c Config, p Place) error {
	return get(ctx, c, p, "/healthz")
}

func get(ctx context.Context, c Config, p Place, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/mcp")+path, nil)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", p.URL, err)
	}
	resp, err := p.client(c.Token).Do(req)
	if err != nil {
		return explain(err, c, p)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // only for the message
	return fmt.Errorf("%s is not ready (%s): %.400q", p.URL, resp.Status, strings.TrimSpace(string(text)))
}
