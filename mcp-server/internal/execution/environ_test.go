package execution

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// environCatalog has an API each with a placeholder, with a second variable, and with two that others have too.
var environCatalog = proxyapi.Catalog{APIs: []proxyapi.API{
	{Name: "pay", Credentials: []proxyapi.Token{{Name: "PAY_KEY", Variables: []string{"PAY_KEY"}, Placeholder: "sk_test_PAY_KEY"}}},
	{Name: "model", Credentials: []proxyapi.Token{{Name: "MODEL_KEY", Variables: []string{"MODEL_KEY", "OPENAI_API_KEY"}}}},
	{Name: "other", Credentials: []proxyapi.Token{{Name: "OTHER_KEY", Variables: []string{"OTHER_KEY", "OPENAI_API_KEY"}}}},
	{Name: "third", Credentials: []proxyapi.Token{{Name: "THIRD_KEY", Variables: []string{"THIRD_KEY", "PAY_KEY"}}, {Name: "PYTHONPATH"}}},
}}

// TestEnviron: a run has the variables of its APIs, and no variable that would stand for one of two credentials.
func TestEnviron(t *testing.T) {
	for _, row := range []struct {
		apis []string
		want map[string]string
	}{
		{nil, map[string]string{"PAY_KEY": "sk_test_PAY_KEY", "MODEL_KEY": "MODEL_KEY", "OTHER_KEY": "OTHER_KEY", "THIRD_KEY": "THIRD_KEY"}},
		{[]string{"model", "pay"}, map[string]string{"PAY_KEY": "sk_test_PAY_KEY", "MODEL_KEY": "MODEL_KEY", "OPENAI_API_KEY": "MODEL_KEY"}},
		{[]string{"other"}, map[string]string{"OTHER_KEY": "OTHER_KEY", "OPENAI_API_KEY": "OTHER_KEY"}},
		{[]string{"third"}, map[string]string{"THIRD_KEY": "THIRD_KEY", "PAY_KEY": "THIRD_KEY"}},
		{[]string{"unknown"}, nil},
	} {
		if diff := cmp.Diff(row.want, buildEnviron(environCatalog, row.apis)); diff != "" {
			t.Errorf("%v: %s", row.apis, diff)
		}
	}
	var many proxyapi.API
	for i := range 5000 {
		name := fmt.Sprintf("TOKEN_%d", i)
		many.Credentials = append(many.Credentials, proxyapi.Token{Name: name, Variables: []string{name}})
	}
	r := sandboxapi.RunRequest{Environ: buildEnviron(proxyapi.Catalog{APIs: []proxyapi.API{many}}, nil)}
	if size := r.EnvironSize(); size > sandboxapi.MaxEnviron || size < sandboxapi.MaxEnviron-100 || r.Environ["TOKEN_0"] == "" {
		t.Errorf("%d variables of %d bytes", len(r.Environ), size)
	}
}
