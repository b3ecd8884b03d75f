package swap

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestPlaces puts the name into every place at once, all of them named "key": it is swapped in the one that its
// credential declares, and stays in the others.
// Promise: declared-places-only
func TestPlaces(t *testing.T) {
	const v = "s3cr3t-value"
	for surface, want := range map[string]string{
		"header":     "header X-Other",
		"header:Key": "header Key",
		"query":      "query other",
		"query:key":  "query key",
		"path":       "path",
		"body":       "body other",
		"body:key":   "body key",
		"cookie:key": "cookie key",
	} {
		c := []catalog.Credential{credential("API_KEY", v, surface)}
		for _, place := range []string{"header Key", "header X-Other", "query key", "query other", "path", "body key", "body other", "cookie key", "cookie other"} {
			kind, field, _ := strings.Cut(place, " ")
			url, body, header := "https://h/a", "", []string{"Content-Type", "application/x-www-form-urlencoded"}
			switch kind {
			case "cookie":
				header = append(header, "Cookie", field+"=API_KEY")
			case "header":
				header = append(header, field, "API_KEY")
			case "query":
				url += "?" + field + "=API_KEY"
			case "path":
				url += "/API_KEY"
			case "body":
				body = field + "=API_KEY"
			}
			req := request(t, "POST", url, body, header...)
			if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
				t.Fatal(err)
			}
			text := req.URL.String() + " " + req.Header.Get("Key") + " " + req.Header.Get("X-Other") + " " + req.Header.Get("Cookie")
			if req.Body != nil {
				data, err := io.ReadAll(req.Body)
				if err != nil {
					t.Fatal(err)
				}
				text += " " + string(data)
			}
			// A surface without a field covers every field of its kind.
			covered := place == want || !strings.Contains(surface, ":") && kind == surface
			if got := strings.Contains(text, v); got != covered {
				t.Errorf("declared %q, written in %q: swapped %t, in %q", surface, place, got, text)
			}
			if !covered && !strings.Contains(text, "API_KEY") {
				t.Errorf("declared %q, written in %q: the name is gone: %q", surface, place, text)
			}
		}
	}
}

// TestPlainPlaces: where plain HTTP is not allowed, the name is swapped in no place, not even in a declared body.
// Promise: declared-places-only
func TestPlainPlaces(t *testing.T) {
	const v = "s3cr3t-value"
	c := []catalog.Credential{credential("API_KEY", v, "header", "query", "path", "body")}
	for _, insecure := range []bool{false, true} {
		for name, body := range map[string]string{
			"application/x-www-form-urlencoded": "key=API_KEY", "application/json": `{"key":"API_KEY"}`, "text/plain": "API_KEY",
		} {
			req := request(t, "POST", "https://h/", body, "Content-Type", name)
			r, err := New(c).SwapRequest(req, Options{Allowed: c, Insecure: insecure})
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(req.Body)
			if swapped := strings.Contains(string(data), v); err != nil || swapped == insecure || insecure && string(data) != body {
				t.Errorf("%s, insecure %t: %q, %v", name, insecure, data, err)
			}
			if len(r.Swapped()) > 0 == insecure {
				t.Errorf("%s, insecure %t: the report says %v", name, insecure, r.Swapped())
			}
		}
	}
}

// TestCarriesEncodedValue: an encoded body with a value in it is refused before its end, whether names are swapped in
// it or it passes unchanged; so is a value as the method, which may be any token in HTTP.
// Promise: leaked-values-stop-here
func TestCarriesEncodedValue(t *testing.T) {
	const v = "first-value"
	gz := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
	for _, surface := range []string{"header", "body"} {
		c := []catalog.Credential{credential("API_KEY", v, surface)}
		for name, row := range map[string]struct {
			text    string
			carries bool
		}{
			"short":          {"is " + v, true},
			"at its end":     {strings.Repeat("abc ", 1000) + v, true},
			"long":           {strings.Repeat("x", 300<<10) + v + strings.Repeat("y", 300<<10), true},
			"in hexadecimal": {"66697273742d76616c7565", true},
			"another":        {"is second-value", false},
		} {
			for _, length := range []int64{1, -1} {
				coded := gz(row.text)
				req := request(t, "POST", "https://h/", coded, "Content-Encoding", "gzip")
				req.ContentLength = length * int64(len(coded))
				_, err := New(c).SwapRequest(req, Options{Allowed: c})
				if err == nil {
					_, err = io.Copy(io.Discard, req.Body)
				}
				if errors.Is(err, ErrCarriesValue) != row.carries || err != nil && !row.carries {
					t.Errorf("%s, declared for %s, length %d: %v", name, surface, length, err)
				}
			}
		}
		req := request(t, "GET", "https://h/", "")
		for method, carries := range map[string]bool{v: true, http.MethodGet: false} {
			req.Method = method
			if _, err := New(c).SwapRequest(req, Options{Allowed: c}); errors.Is(err, ErrCarriesValue) != carries {
				t.Errorf("method %s: %v", method, err)
			}
		}
	}
}
