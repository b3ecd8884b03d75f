package catalog_test

import (
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// hundred makes an apis/ folder of 100 APIs.
func hundred(b *testing.B) string {
	dir := b.TempDir()
	for i := range 100 {
		write(b, dir, fmt.Sprintf("api%d/config.json", i),
			api(fmt.Sprintf("api%d.example.com", i), fmt.Sprintf("TOKEN_%d", i), fmt.Sprintf("value-%d-value", i)))
	}
	return dir
}

// BenchmarkLoad is a reload of 100 APIs.
func BenchmarkLoad(b *testing.B) {
	dir := hundred(b)
	for b.Loop() {
		if c, _ := catalog.Load(dir, catalog.Options{}); len(c.APIs()) != 100 {
			b.Fatal(len(c.APIs()))
		}
	}
}

// BenchmarkMatch is what each exchange needs: a host, normalised and looked up.
func BenchmarkMatch(b *testing.B) {
	c, _ := catalog.Load(hundred(b), catalog.Options{})
	b.ReportAllocs()
	for b.Loop() {
		h, err := catalog.ParseHost("api7.example.com")
		if err != nil || len(c.ListHolders(h)) != 1 {
			b.Fatal(err)
		}
	}
}
