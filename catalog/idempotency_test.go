package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIdempotency: only a header that is known for such keys may be one.
// Promise: repeated-writes
func TestIdempotency(t *testing.T) {
	for value, want := range map[string]string{
		`"Idempotency-Key"`: "Idempotency-Key", `"X-Idempotency-Key"`: "X-Idempotency-Key", `"PayPal-Request-Id"`: "PayPal-Request-Id",
		`"idempotency-key"`: "idempotency-key",
		`"Host"`:            "", `"Authorization"`: "", `"Content-Length"`: "", `"X-HTTP-Method-Override"`: "", `""`: "",
		`"a: b\r\nIdempotency-Key"`: "", `"Idempotency-Key "`: "", `true`: "",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "pay"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"description": "d", "domains": ["pay.test"], "idempotency": ` + value + `}`
		if err := os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, problems := Load(dir, Options{})
		if want == "" {
			if c.API("pay") != nil || !strings.Contains(problems.String(), "idempotency") {
				t.Errorf("%s: %s", value, problems)
			}
			continue
		}
		if len(problems) > 0 || c.API("pay").Idempotency != want {
			t.Errorf("%s: %s", value, problems)
		}
	}
}
