package authority

import (
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// BenchmarkLeaf is the certificate of a new host, and of a cached one.
func BenchmarkLeaf(b *testing.B) {
	a, err := New(Config{Private: b.TempDir(), Public: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	leaf := func(b *testing.B, name string) {
		h, err := catalog.ParseHost(name)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := a.GetLeaf(h); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			leaf(b, fmt.Sprintf("h%d.example.com", n))
		}
	})
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			leaf(b, "h.example.com")
		}
	})
}
