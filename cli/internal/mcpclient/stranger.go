package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// explainStranger returns err, unless another program answers at the URL. Then it returns a one-line error that
// shows no part of the program's answer.
func explainStranger(ctx context.Context, c Config, p Place, err error) error {
	if err == nil || p.State != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, is := probeStranger(ctx, p.URL)
	if !is {
		return err
	}
	remedy := "stop it, or set another MCP_PORT in .env"
	if c.URL != "" {
		remedy = "name CodeForge's endpoint with --url"
	}
	return fmt.Errorf("another program answers at %s (%s): %s", p.URL, found, remedy)
}

// probeStranger reports whether another program than CodeForge answers at an endpoint, and its answer's status. It does
// not send the token.
func probeStranger(ctx context.Context, url string) (found string, is bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/mcp")+"/healthz", nil)
	if err != nil {
		return "", false
	}
	client := NewHTTPClient(secret.Value{})
	// The redirect itself shows that it is not CodeForge.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	var failed *net.OpError
	switch {
	case errors.As(err, &failed), errors.Is(err, io.EOF):
		return "", false // no server answers, or not for this user
	case err != nil:
		return "it does not speak HTTP", true
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	var health struct{ OK bool }
	ours := resp.StatusCode == http.StatusOK && json.Unmarshal(text, &health) == nil && health.OK ||
		resp.StatusCode == http.StatusForbidden && strings.Contains(string(text), "MCP_ALLOWED_HOSTS")
	return fmt.Sprintf("GET /healthz: %d", resp.StatusCode), !ours
}
