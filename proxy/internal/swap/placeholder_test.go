package swap

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// TestPlaceholder: a placeholder is swapped as a whole, where its name would be, and nothing longer or shorter is.
func TestPlaceholder(t *testing.T) {
	const value = "sk_live_51canary0123456789"
	creds := []catalog.Credential{
		{Name: "DEMO_TOKEN", Value: secret.New(value), Placeholder: "sk-test_DEMO_TOKEN", Surfaces: []catalog.Surface{{Kind: catalog.SurfaceHeader}, {Kind: catalog.SurfacePath}}},
		{Name: "OTHER_TOKEN", Value: secret.New("another-value-9876"), Placeholder: "sk-test_OTHER_TOKEN", Surfaces: []catalog.Surface{{Kind: catalog.SurfaceHeader}}},
	}
	for _, row := range []struct{ header, in, out string }{
		{"Authorization", "Bearer sk-test_DEMO_TOKEN", "Bearer " + value},
		{"Authorization", "Bearer DEMO_TOKEN", "Bearer " + value},
		{"Authorization", "key=\"sk-test_DEMO_TOKEN\"", "key=\"" + value + "\""},
		{"Authorization", "Basic c2stdGVzdF9ERU1PX1RPS0VOOng=", "Basic c2tfbGl2ZV81MWNhbmFyeTAxMjM0NTY3ODk6eA=="},
		{"X-Api-Key", "sk-test_DEMO_TOKEN", value},
		{"X-Api-Key", "sk-test_DEMO_TOKEN_2", "sk-test_DEMO_TOKEN_2"},
		{"X-Api-Key", "xsk-test_DEMO_TOKEN", "xsk-test_DEMO_TOKEN"},
		{"X-Api-Key", "a sk-test_DEMO_TOKEN b", "a sk-test_DEMO_TOKEN b"},
		{"X-Api-Key", "sk-test_OTHER_TOKEN", "sk-test_OTHER_TOKEN"}, // another API's
		{"Cookie", "sk-test_DEMO_TOKEN", "sk-test_DEMO_TOKEN"},
	} {
		req, err := http.NewRequest(http.MethodGet, "https://demo.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(row.header, row.in)
		report, err := New(creds).SwapRequest(req, Options{Allowed: creds[:1]})
		if got := req.Header.Get(row.header); err != nil || got != row.out {
			t.Errorf("%s: %s became %s, %v", row.header, row.in, got, err)
		}
		if row.in == row.out && len(report.Swapped()) != 0 || row.in != row.out && (len(report.Swapped()) != 1 || report.Swapped()[0].Name != "DEMO_TOKEN") {
			t.Errorf("%s: %s: reported %v", row.header, row.in, report.Swapped())
		}
	}
	req, _ := http.NewRequest(http.MethodPost, "https://demo.test/sk-test_DEMO_TOKEN/x", strings.NewReader(`{"a": "sk-test_DEMO_TOKEN"}`))
	req.Header.Set("Content-Type", "application/json")
	if _, err := New(creds).SwapRequest(req, Options{Allowed: creds[:1]}); err != nil || req.URL.Path != "/"+value+"/x" {
		t.Errorf("the path became %s, %v", req.URL.Path, err)
	}
	if text, err := io.ReadAll(req.Body); err != nil || string(text) != `{"a": "sk-test_DEMO_TOKEN"}` {
		t.Errorf("the body became %s, %v", text, err)
	}
}
