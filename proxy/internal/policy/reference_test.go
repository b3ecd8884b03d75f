package policy

import (
	"crypto/x509"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

var update = flag.Bool("update", false, "write docs/reference/refusal-codes.md")

const referenceIntro = `# Refusal codes

If the proxy does not send a request, code gets a JSON answer with ` + "`error`, `code` and `hint`" + `. The hint is usually more
exact than this page: it names the host, the API and the token, here HOST, NAME and TOKEN_NAME.
[Troubleshooting](../troubleshooting.md) lists errors by what you see. [MCP servers in code](mcp-in-code.md#errors) has the
codes of failed tool calls.

A test keeps this page up to date; ` + "`go test ./proxy/internal/policy -run TestReference -update`" + ` regenerates it.
`

// failures are the codes of hosts that give no answer, each with a typical cause.
var failures = map[string]error{
	upstream.CodeResolve:    &net.DNSError{IsNotFound: true},
	upstream.CodeAddress:    nil,
	upstream.CodeConnect:    nil,
	upstream.CodeTLS:        x509.UnknownAuthorityError{},
	upstream.CodeTimeout:    nil,
	upstream.CodeBroken:     nil,
	upstream.CodeEncoding:   nil,
	upstream.CodeCharset:    nil,
	upstream.CodeCompressed: nil,
	upstream.CodeExhausted:  syscall.EMFILE,
}

// TestReference checks that docs/reference/refusal-codes.md has the codes, texts and hints of the proxy.
func TestReference(t *testing.T) {
	var page strings.Builder
	page.WriteString(referenceIntro)
	row := func(code string, status int, meaning, remedy string) {
		fmt.Fprintf(&page, "| `%s` | %d | %s | %s |\n", code, status, strings.TrimSuffix(meaning, "."), remedy)
	}
	const head = "\n| code | status | meaning | what to do |\n|---|---|---|---|\n"
	page.WriteString("\n## The proxy refuses the request\n" + head)
	for _, code := range slices.Sorted(maps.Keys(refusals)) {
		s := refusals[code]
		text := readertext.NewText(s.hint, "%API", "NAME", "%HOST", "HOST", "%ID", "ID", "%NAME", "TOKEN_NAME",
			"%SENTENCE", "The hint names the answer that the request depends on.")
		row(code, s.status, strings.ReplaceAll(s.error, "%NAME", "TOKEN_NAME"), text.Person)
	}
	page.WriteString("\n## The host gives no answer\n" + head)
	for _, code := range slices.Sorted(maps.Keys(failures)) {
		r := upstream.Failure{Code: code, Host: "HOST", API: "NAME", Cause: failures[code]}.NewRefusal()
		if code == upstream.CodeConnect {
			r.Person = "Check that the service runs, and its address in DNS. With UPSTREAM_PROXY, check that proxy."
		}
		row(code, upstream.StatusFor(code), r.Error, r.Person)
	}
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	path := root + "/docs/reference/refusal-codes.md"
	if *update {
		testkit.Must(t, os.WriteFile(path, []byte(page.String()), 0o644)) //nolint:gosec // a document
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != page.String() {
		t.Errorf("%s is not what the proxy answers (%v); run go test ./proxy/internal/policy -run TestReference -update", path, err)
	}
}
