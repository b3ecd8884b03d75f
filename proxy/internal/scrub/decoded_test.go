package scrub

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// TestDecodedEchoes: a server decodes a cookie and shows it. Its text comes back as the name, in each form. The value
// itself comes back as the name too. Decoded texts that are too short to be a key, or have several lines, stay.
// Promise: every-echoed-form
func TestDecodedEchoes(t *testing.T) {
	for _, value := range []string{
		"s%3AaXk3jR9-qLm.Zt%2FbN7%2Bq0Yw%3D", "eyJpdiI6IlhrM2pSOXFMbSJ9%3D%3d", "s%253AaXk3jR9-qLm%252EZtbN7", "aXk3jR9%zz%3AqLmZtbN7%", "aXk3+jR9/qLm+ZtbN7q0Yw==", "%22aXk3jR9%20qLmZtbN7%7e",
	} {
		s := New(creds("WIKI_SESSION", value))
		texts := map[string]string{"raw": value}
		once := decodeAsBrowser(value)
		texts["decoded"], texts["decoded twice"] = once, decodeAsBrowser(once)
		for name, text := range texts {
			forms := map[string]string{
				"plain": text, "with spaces": strings.ReplaceAll(text, "+", " "), "percent": url.QueryEscape(text), "hex": hex.EncodeToString([]byte(text)),
				"base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64 in": base64.RawURLEncoding.EncodeToString([]byte(`{"sid":"` + text + `"}`)),
			}
			for form, echo := range forms {
				got := s.String("before " + echo + " after")
				if rest := strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after"); !strings.Contains(got, "WIKI_SESSION") || len(rest) > 40 {
					t.Errorf("%s, %s, %s: %q", value, name, form, got)
				}
			}
		}
		if !s.lower.ContainsFold("X-" + strings.ToUpper(once)) {
			t.Errorf("%s: not in the name of a header", value)
		}
	}
	odd := "aXk3jR9%0AqLmZtbN7"
	if got := New(creds("ODD_TOKEN", odd)).String("aXk3jR9\nqLmZtbN7 " + odd); got != "aXk3jR9\nqLmZtbN7 ODD_TOKEN" {
		t.Errorf("a reading of two lines: %q", got)
	}
	if got := multisearch.ListReadings("%" + strings.Repeat("25", 1000) + "41"); len(got) != 3 {
		t.Errorf("%d readings of nested escapes", len(got))
	}
	if got := New(creds("SHORT_TOKEN", "%61%62%63%64")).String("abcd %61%62%63%64"); got != "abcd SHORT_TOKEN" {
		t.Errorf("a short reading: %q", got)
	}
}

// decodeAsBrowser decodes percent escapes, and leaves other percent signs.
func decodeAsBrowser(text string) string {
	for i := 0; i+2 < len(text); i++ {
		if b, err := hex.DecodeString(text[i+1 : i+3]); err == nil && text[i] == '%' {
			text = text[:i] + string(b) + text[i+3:]
		}
	}
	return text
}
