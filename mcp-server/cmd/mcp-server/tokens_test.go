package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxTokens is what tools and instructions may cost a model.
const maxTokens = 700

// TestTokens counts what a client puts into the model's context: of each tool its name, description and input schema,
// and the instructions. It must stay the same however many APIs there are.
func TestTokens(t *testing.T) {
	p := start(t, 1, nil)
	few := surfaceTexts(t, p)
	many := proxyapi.Catalog{}
	for i := range 500 {
		many.APIs = append(many.APIs, proxyapi.API{Name: fmt.Sprintf("api%d", i), Description: strings.Repeat("long ", 20), Domains: []string{fmt.Sprintf("h%d.example.com", i)}})
	}
	p.proxy.SetCatalog(many)
	testkit.WaitFor(t, func() bool { return len(p.sandbox.AllowedHosts()) == 501 }) // and the host of calls
	texts := surfaceTexts(t, p)
	if got, want := strings.Join(texts, "\n"), strings.Join(few, "\n"); got != want {
		t.Errorf("tools or instructions depend on the catalog:\n%s\n%s", got, want)
	}

	script, err := os.ReadFile("testdata/tokens.js")
	if err != nil {
		t.Fatal(err)
	}
	modules := testkit.InstallClients(t)
	dir := t.TempDir()
	input := ""
	for _, text := range texts {
		line, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		input += string(line) + "\n"
	}
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	js := strings.Replace(string(script), "readFileSync(0,", "readFileSync("+fmt.Sprintf("%q", in)+",", 1)
	out, err := fakepeers.RunNode(t, modules, "-e", js)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var counts [][2]int
	if err := json.Unmarshal([]byte(out), &counts); err != nil {
		t.Fatal(err)
	}
	var sum [2]int
	for i, c := range counts {
		t.Logf("%4d %4d  %.60s", c[0], c[1], texts[i])
		sum[0] += c[0]
		sum[1] += c[1]
	}
	t.Logf("%4d %4d  sum (o200k, Claude)", sum[0], sum[1])
	if max(sum[0], sum[1]) > maxTokens {
		t.Errorf("tools and instructions cost %d and %d tokens, at most %d are allowed", sum[0], sum[1], maxTokens)
	}
}

// surfaceTexts is what a model is given: the tools, then the instructions.
func surfaceTexts(t *testing.T, p *program) []string {
	t.Helper()
	s := p.connect(t, nil)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, tool := range list.Tools {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // as clients write it
		if err := e.Encode(map[string]any{"name": tool.Name, "description": tool.Description, "input_schema": tool.InputSchema}); err != nil {
			t.Fatal(err)
		}
		out = append(out, text.String())
	}
	return append(out, instructionsOf(s))
}

func instructionsOf(s *mcp.ClientSession) string { return s.InitializeResult().Instructions }
