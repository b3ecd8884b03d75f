package policy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// BenchmarkDecide measures the decision on one request, by the number of APIs. Their hosts differ in numbers; those of
// "alike" have the letters and digits of the requested one in another order.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		apis, alike := map[string]string{}, map[string]string{}
		for i := range n {
			const config = `{"description": "d", "domains": ["api%s.example.com"], "credentials": {"TOKEN_%d": "value-of-token-%d"}}`
			apis[fmt.Sprintf("api%d", i)] = fmt.Sprintf(config, fmt.Sprint(i), i, i)
			alike[fmt.Sprintf("api%d", i)] = fmt.Sprintf(config, shuffled("12345678", i), i, i)
		}
		all, similar := Rules{Catalog: load(b, apis)}, Rules{Catalog: load(b, alike)}
		for kind, name := range map[string]string{"known": "api0.example.com", "unknown": "api0.example.org", "alike": "api87654321.example.com"} {
			rules := all
			if kind == "alike" {
				rules = similar
			}
			host, err := catalog.ParseHost(name)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("apis=%d/%s", n, kind), func(b *testing.B) {
				defer processorTime(b)()
				b.ReportAllocs()
				for b.Loop() {
					if v := rules.Decide(run(nil), Request{Host: host, TLS: true, Methods: []string{"GET"}}); v.Allow != (kind == "known") {
						b.Fatal(v)
					}
				}
			})
		}
	}
}

// shuffled is the n-th order of some characters.
func shuffled(s string, n int) string {
	b := []byte(s)
	for i := len(b); i > 1; i-- {
		j := n % i
		b[i-1], b[j], n = b[j], b[i-1], n/i
	}
	return string(b)
}

// BenchmarkRules is what 50 rules of each of 100 APIs add to a request: its judgements before and after redaction.
func BenchmarkRules(b *testing.B) {
	for _, many := range []string{"none", "allow", "refuse"} {
		apis := map[string]string{}
		for i := range 100 {
			var list []string
			for j := range 49 {
				list = append(list, fmt.Sprintf(`{"methods": ["GET"], "path": "/v1/things%d/*/parts", "then": %q}`, j, many))
			}
			rules := `, "rules": [` + strings.Join(append(list, `{"methods": ["GET"], "path": "/v1/items/*/notes", "then": "allow"}`), ",") + `]`
			if many == "none" {
				rules = ""
			}
			apis[fmt.Sprintf("api%d", i)] = fmt.Sprintf(`{"description": "d", "domains": ["api%d.example.com"]%s}`, i, rules)
		}
		rules := Rules{Catalog: load(b, apis)}
		host, _ := catalog.ParseHost("api0.example.com")
		b.Run(many, func(b *testing.B) {
			defer processorTime(b)()
			b.ReportAllocs()
			for b.Loop() {
				q := Request{Host: host, TLS: true, Methods: []string{"GET"}, Path: "/v1/items/4711/notes", Early: true}
				first := rules.Decide(run(nil), q)
				q.Early = false
				if !first.Allow || !rules.Decide(run(nil), q).Allow {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkCallRules is what 50 rules of each of 100 MCP servers add to a call of a tool: its judgement, and the two of
// a call whose arguments a rule reads.
func BenchmarkCallRules(b *testing.B) {
	call := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"amount": 7}`))
	call.Header.Set("Content-Type", "application/json")
	content, err := ReadContent(call)
	if err != nil {
		b.Fatal(err)
	}
	for name, more := range map[string]string{"none": "", "names": "", "globs": "*", "arguments": ""} {
		apis := map[string]string{}
		for i := range 100 {
			var list []string
			for j := range 49 {
				list = append(list, fmt.Sprintf(`{"tools": ["things_%d_parts%s"], "then": "refuse"}`, j, more))
			}
			last := `{"tools": ["items_notes"], "then": "allow"}`
			if name == "arguments" {
				last = `{"tools": ["items_notes"], "body": {"amount": {"max": 50}}, "then": "allow"}`
			}
			rules := `, "rules": [` + strings.Join(append(list, last), ",") + `]`
			if name == "none" {
				rules = ""
			}
			apis[fmt.Sprintf("api%d", i)] = fmt.Sprintf(`{"description": "d", "mcp": {"command": ["x"]}%s}`, rules)
		}
		rules := Rules{Catalog: load(b, apis)}
		u, _ := url.Parse("https://" + proxyapi.ServersHost + "/api0/items-notes")
		q := Request{Host: host(b, proxyapi.ServersHost), TLS: true, Methods: []string{http.MethodPost}}
		b.Run(name, func(b *testing.B) {
			defer processorTime(b)()
			b.ReportAllocs()
			for b.Loop() {
				q.Content = nil
				v, _ := rules.DecideCall(asker{kind: ClientRun}, q, u)
				if v.Unread {
					q.Content = content
					v, _ = rules.DecideCall(asker{kind: ClientRun}, q, u)
				}
				if !v.Allow {
					b.Fatal(v)
				}
			}
		})
	}
}

// processorTime reports it too: what else a machine does counts in the other.
func processorTime(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	began := used()
	return func() { b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op") }
}
