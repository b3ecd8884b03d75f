package policy

import (
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// BenchmarkDecide is the decision on one request, by the number of APIs.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		apis := map[string]string{}
		for i := range n {
			apis[fmt.Sprintf("api%d", i)] = fmt.Sprintf(`{"description": "d", "domains": ["api%d.example.com"], "credentials": {"TOKEN_%d": "value-of-token-%d"}}`, i, i, i)
		}
		rules := Rules{Catalog: load(b, apis)}
		for kind, name := range map[string]string{"known": "api0.example.com", "unknown": "api0.example.org"} {
			host, err := catalog.ParseHost(name)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("apis=%d/%s", n, kind), func(b *testing.B) {
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
