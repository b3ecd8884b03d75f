package attack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// The tokens of the tenants: alice may use the API other and the shared skills that are called shared-..., bob httpbin.
const (
	alice = "alice-correct-horse-battery"
	bob   = "bob-correct-horse-battery"
)

// TokensFile writes a file with the tenants, and gives its path. The caller removes its folder.
func TokensFile() (string, error) {
	dir, err := os.MkdirTemp("", "tenants-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tenants.json")
	return path, writeTokens(path, bob)
}

// writeTokens writes it in place: a container sees the file that was mounted.
func writeTokens(path, bobs string) error {
	text, err := json.Marshal(map[string]any{"tenants": map[string]any{
		"alice": map[string]any{"tokens": []string{hashed(alice)}, "apis": []string{"other"}, "skills": []string{"shared-*"}},
		"bob":   map[string]any{"tokens": []string{bobs}, "apis": []string{"httpbin"}},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// runOf matches the ID of a run that goes on.
var runOf = regexp.MustCompile(`r[a-z2-7]{12}`)

func hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// bearing sends a token with each request.
type bearing struct {
	token string
	next  http.RoundTripper
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// as connects an MCP client with a token.
func as(ctx context.Context, w *world.World, token string) (*mcp.ClientSession, error) {
	client := w.Stranger()
	client.Transport = bearing{token, client.Transport}
	return mcp.NewClient(&mcp.Implementation{Name: "tenant", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
}

// sayOf is all text in a tool's result.
func sayOf(ctx context.Context, s *mcp.ClientSession, tool string, args map[string]any) (string, error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(res)
	return string(text), err
}

// run runs code as a tenant and returns what was printed, or the result's other text, with the receipt.
func run(ctx context.Context, w *world.World, token, code string) (string, error) {
	s, err := as(ctx, w, token)
	if err != nil {
		return "", err
	}
	defer s.Close()
	return sayOf(ctx, s, "execute_code", map[string]any{"code": code})
}

// none judges that a text contains one string and none of a list.
func none(text, has string, of ...string) (string, bool) {
	for _, o := range of {
		if strings.Contains(text, o) {
			return "shows " + o + " in " + clip(text, 300), false
		}
	}
	return clip(text, 60), strings.Contains(text, has)
}
