package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// stripe is an API of the tests.
var stripe = proxyapi.API{
	Name: "stripe", Description: "Stripe payments", Domains: []string{"api.stripe.com"},
	Credentials:       []proxyapi.Token{{Name: "STRIPE_AUTH_TOKEN", In: []string{"header"}}},
	Reference:         "https://docs.stripe.com/api",
	RestrictedMethods: []string{"DELETE"},
}

// program is a running mcp-server of a test, in this process but through run, with peers.
type program struct {
	sandbox *fakepeers.FakeSandbox
	proxy   *fakepeers.FakeProxy
	skills  string
	socket  string
	addr    string
	stop    func() error
	log     *testkit.Buffer
}

func (p *program) url() string { return "http://" + p.addr + "/mcp" }

// freeAddr is a loopback address that was free a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the program with so many slots and the environment, and waits until it is ready.
func start(t testing.TB, slots int, env map[string]string, extra ...string) *program {
	t.Helper()
	p := &program{sandbox: fakepeers.NewSandbox(t, slots), proxy: fakepeers.NewProxy(t, stripe), skills: t.TempDir(), addr: freeAddr(t), log: &testkit.Buffer{}}
	p.socket = filepath.Join(filepath.Dir(p.sandbox.Socket), "mcp.sock")
	p.launch(t, env, extra...)
	return p
}

// launch starts the program, again after stop, and waits until it is ready.
func (p *program) launch(t testing.TB, env map[string]string, extra ...string) {
	t.Helper()
	p.begin(t, env, extra...)
	p.await(t, "/readyz")
}

// begin starts the program.
func (p *program) begin(t testing.TB, env map[string]string, extra ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	args := append([]string{"--listen", p.addr, "--sandbox", "unix:" + p.sandbox.Socket, "--control", p.proxy.Socket, "--skills", p.skills, "--socket", p.socket}, extra...)
	go func() {
		ended <- runServer(ctx, args, func(k string) string { return env[k] }, p.log)
	}()
	p.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(testkit.Patience):
			t.Error("the program did not stop")
			return nil
		}
	})
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
}

// await waits until the path is answered with 200.
func (p *program) await(t testing.TB, path string) {
	t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; {
		resp, err := http.Get("http://" + p.addr + path)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v\n%s", err, p.log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// connect connects the SDK's client.
func (p *program) connect(t testing.TB, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// call calls a tool and gives its texts.
func call(t testing.TB, s *mcp.ClientSession, tool string, args any) (*mcp.CallToolResult, []string) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res, texts(res)
}

func texts(res *mcp.CallToolResult) []string {
	var out []string
	for _, c := range res.Content {
		out = append(out, c.(*mcp.TextContent).Text)
	}
	return out
}

func TestExecuteCodeInDeno(t *testing.T) {
	p := start(t, 2, nil)
	p.sandbox.SetScript(newDenoScript(t, p.sandbox, p.skills))
	p.proxy.Receipt = func(proxyapi.Registration) proxyapi.Receipt {
		return proxyapi.Receipt{Count: proxyapi.Count{Exchanges: 1, Swapped: 1}}
	}
	s := p.connect(t, nil)

	res, got := call(t, s, "execute_code", map[string]any{"code": `console.log("a\tb"); console.log("é".repeat(3))`, "apis": []string{"stripe"}})
	if res.IsError || len(got) != 1 || got[0] != "a\tb\nééé\n" {
		t.Errorf("success: error %v, blocks %q", res.IsError, got)
	}
	receipt, _ := json.Marshal(res.Meta["codeforge/receipt"])
	if !strings.Contains(string(receipt), `"swapped":1`) {
		t.Errorf("receipt %s", receipt)
	}
	if seen := p.proxy.ListRegistrations(); len(seen) != 1 || len(seen[0].APIs) != 1 || seen[0].APIs[0] != "stripe" {
		t.Errorf("registrations %+v", seen)
	}

	res, got = call(t, s, "execute_code", map[string]any{"code": "console.log('out'); console.error('not found: 7'); console.warn('slow')"})
	if res.IsError || len(got) != 2 || got[0] != "out\n" || got[1] != "stderr:\nnot found: 7\nslow\n" {
		t.Errorf("warnings: error %v, blocks %q", res.IsError, got)
	}

	res, got = call(t, s, "execute_code", map[string]any{"code": "console.log('out');\nthrow new Error('no')"})
	if !res.IsError || len(got) != 1 || !strings.HasPrefix(got[0], "error: Uncaught") || !strings.HasSuffix(got[0], "out\n") {
		t.Errorf("failure: error %v, blocks %q", res.IsError, got)
	}

	res, got = call(t, s, "execute_code", map[string]any{"code": "await fetch('https://example.org/x')"})
	if !res.IsError || len(got) != 2 || !strings.Contains(got[1], "example.org is in no API") {
		t.Errorf("net refusal: error %v, blocks %q", res.IsError, got)
	}
	// The words of Deno that hints are found by.
	for code, want := range map[string]string{
		"```ts\nconsole.log(6 * 7)\n```":          "42\n|The code inside the ``` fence was run.",
		"const x = 1;\nreturn x;":                 "|The code is a module and not a function",
		"const h = `Bearer ${STRIPE_AUTH_TOKEN}`": "|A token name is text: write \"STRIPE_AUTH_TOKEN\"",
		"import { f } from 'skills/f.ts'":         "|Import it by its whole path: \"/skills/f.ts\".",
		"console.log('done'); Deno.exit(3)":       "done\n|The run failed because the code ended with exit code 3, not 0.",
	} {
		if _, got := call(t, s, "execute_code", map[string]any{"code": code}); !strings.Contains(strings.Join(got, "|"), want) {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
	if n := p.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if n := p.proxy.CountRegistered(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}
