package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestLimitsField: limits are read as they are written, and said in a few words; a mistake closes the API.
// Promise: limits
func TestLimitsField(t *testing.T) {
	for limits, want := range map[string]string{
		`{"calls": "600/h"}`: "limit calls 600/h",
		`{"calls": "600/m", "writes": "20/d", "over": "approve"}`:                 "approve beyond calls 600/m, writes 20/d",
		`{"sum": {"path": "/v1/refunds", "field": "amount", "max": "1000.50/d"}}`: "limit sum of amount on /v1/refunds 1000.50/d",
		`7`:                               "! limits: a number",
		`{}`:                              "! limits",
		`{"over": "refuse"}`:              "! limits: no limit",
		`{"calls": "600"}`:                "! limits.calls: not an amount per time",
		`{"calls": "0/h"}`:                "! limits.calls",
		`{"calls": "1.5/h"}`:              "! limits.calls",
		`{"calls": "5/week"}`:             "! limits.calls",
		`{"calls": 5}`:                    "! limits.calls",
		`{"cals": "5/h"}`:                 `! did you mean "calls"?`,
		`{"calls": "5/h", "over": "ask"}`: "! limits.over",
		`{"sum": {"path": "x", "field": "a", "max": "5/h"}}`:                  "! limits.sum.path",
		`{"sum": {"path": "/x", "max": "5/h"}}`:                               "! limits.sum: no field",
		`{"sum": {"path": "/x", "field": "a"}}`:                               "! limits.sum: no field or no max",
		`{"sum": {"path": "/x", "field": "a", "max": "99999999999999999/h"}}`: "! limits.sum.max",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "pay"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"description": "d", "domains": ["pay.test"], "limits": ` + limits + `}`
		if err := os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, problems := Load(dir, Options{})
		if mistake, bad := strings.CutPrefix(want, "! "); bad {
			if c.API("pay") != nil || !strings.Contains(problems.String(), mistake) {
				t.Errorf("%s: %s", limits, problems)
			}
			continue
		}
		if len(problems) > 0 || c.API("pay").Limits.String() != want {
			t.Errorf("%s: %s %s", limits, c.API("pay").Limits, problems)
		}
	}
}

// TestLimitsInDigest: two limits whose sentences are equal give an API two digests, so a reload applies the change.
// Promise: limits
func TestLimitsInDigest(t *testing.T) {
	digests := map[apiDigest]string{}
	for _, limits := range []string{
		`{"sum": {"path": "/x on /y", "field": "a", "max": "5/d"}}`, `{"sum": {"path": "/y", "field": "a on /x", "max": "5/d"}}`,
	} {
		dir := t.TempDir()
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "pay"), 0o700))
		text := `{"description": "d", "domains": ["pay.test"], "limits": ` + limits + `}`
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600))
		c, problems := Load(dir, Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if other := digests[c.API("pay").digest]; other != "" {
			t.Errorf("%s and %s have one digest", other, limits)
		}
		digests[c.API("pay").digest] = limits
	}
}
