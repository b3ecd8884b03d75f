package reload

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// catalogOf writes an API with many credentials, the first of which has the value.
func catalogOf(t *testing.T, dir string, number int, value string) {
	t.Helper()
	credentials := map[string]string{"BENCH_TOKEN_0": value}
	for n := 1; n < number; n++ {
		credentials[fmt.Sprintf("BENCH_TOKEN_%d", n)] = fmt.Sprintf("sk_live_bench_%024x", uint64(n)*0x9e3779b97f4a7c15)
	}
	text, err := json.Marshal(map[string]any{"description": "many", "domains": []string{"api.example.com"}, "credentials": credentials})
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "many"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "many", "config.json"), text, 0o600))
}

// TestSameCredentials: another certificate, value, name, number or place of credentials is a difference.
func TestSameCredentials(t *testing.T) {
	api := func() *catalog.API {
		return &catalog.API{ClientCert: &catalog.ClientCert{Cert: []byte("a"), Key: secret.New("key")},
			Credentials: []catalog.Credential{{Name: "A_TOKEN", Value: secret.New("value")}}}
	}
	for name, change := range map[string]func(*catalog.API){
		"nothing": func(*catalog.API) {}, "description": func(a *catalog.API) { a.Description = "b" },
		"certificate": func(a *catalog.API) { a.ClientCert.Cert = []byte("b") }, "no certificate": func(a *catalog.API) { a.ClientCert = nil },
		"value": func(a *catalog.API) { a.Credentials[0].Value = secret.New("b") }, "name": func(a *catalog.API) { a.Credentials[0].Name = "B_TOKEN" },
		"number": func(a *catalog.API) { a.Credentials = nil }, "place": func(a *catalog.API) { a.Credentials[0].Surfaces = make([]catalog.Surface, 1) },
	} {
		a, b := api(), api()
		change(b)
		if want := name == "nothing" || name == "description"; hasSameCredentials(a, b) != want || hasSameCredentials(b, a) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestManyCredentials: 500 credentials are compiled once for both scrubbing and refusing requests. When one is
// replaced, its former value is still scrubbed, but no longer refused.
func TestManyCredentials(t *testing.T) {
	const former, now = "the-former-value-of-the-token", "the-present-value-of-the-token"
	dir := t.TempDir()
	catalogOf(t, dir, 500, former)
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	r := New(Config{Dir: dir})
	r.LoadFirst(slog.New(slog.DiscardHandler))
	if took := live() - before; took > 5<<20 { // 4.0 MB; 7.4 if they are compiled twice
		t.Errorf("they take %d KB", took>>10)
	}
	check := func(value string, refused bool) {
		t.Helper()
		s := r.Current()
		if got := s.Scrub.String("it is " + value); got != "it is BENCH_TOKEN_0" {
			t.Errorf("scrubbed: %s", got)
		}
		want := swap.CarriedValue{Name: "BENCH_TOKEN_0", In: "body"}
		if got, ok := s.Swap.SearchText(value, "body"); ok != refused || ok && got != want {
			t.Errorf("refused: %v, %v", got, ok)
		}
	}
	check(former, true)
	catalogOf(t, dir, 500, now)
	r.Load()
	check(now, true)
	check(former, false)
}
