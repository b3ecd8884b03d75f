package swap

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// TestMultipart: a name is swapped in the one declared field, and neither in what some server reads as a file nor if
// the field occurs twice. A refused body contains no value.
func TestMultipart(t *testing.T) {
	const field = "Content-Disposition: form-data; name=\"secret\""
	for head, want := range map[string]string{
		field:                                  "swapped",
		field + "\r\nContent-Type: text/plain": "swapped",
		field + "; filename=\"\"":              "literal",
		field + "; filename=\"f\"":             "literal",
		field + "\r\nContent-Type: application/octet-stream":   "literal",
		strings.ToUpper(field):                                 "literal",
		field + "; name*=utf-8''comment":                       "refused",
		field + "\r\n" + field:                                 "refused",
		"X: y\r\n" + field:                                     "refused",
		field + "\r\n\r\nAPI_KEY\r\n--b\r\n" + field:           "refused",
		field + "\r\n\r\nx\r\n--b\r\n" + field:                 "refused",
		field + "; filename=\"f\"\r\n\r\nx\r\n--b\r\n" + field: "refused",
	} {
		for _, known := range []bool{true, false} {
			c := []catalog.Credential{credential("API_KEY", "first-value", "body:secret")}
			req := post(t, "--b\r\n"+head+"\r\n\r\nAPI_KEY\r\n--b--\r\n", known, "Content-Type", "multipart/form-data; boundary=b")
			_, err := New(c).SwapRequest(req, Options{Allowed: c})
			var text []byte
			if err == nil {
				text, err = io.ReadAll(req.Body)
			}
			var ambiguous *formdata.Error
			got := "literal"
			switch {
			case errors.As(err, &ambiguous) && !strings.Contains(string(text), "--\r\n"):
				got = "refused"
			case err != nil:
				got = err.Error()
			case strings.Count(string(text), "first-value") == 1:
				got = "swapped"
			}
			if got != want {
				t.Errorf("%q, known %t: %s, want %s: %q", head, known, got, want, text)
			}
		}
	}
}

// TestBodyType: a body in which names are swapped has one type, and its charset is a superset of ASCII. Other bodies
// are not checked for that.
func TestBodyType(t *testing.T) {
	for _, header := range [][]string{
		{"Content-Type", "application/json", "Content-Type", "text/plain"}, {"Content-Type", "application/x-www-form-urlencoded; charset=cp037"},
		{"Content-Type", "multipart/form-data; boundary=b; boundary=c"}, {"Content-Type", "text/plain", "Content_type", "application/json"},
	} {
		for surface, refused := range map[string]bool{"body:k": true, "header": false} {
			c := []catalog.Credential{credential("API_KEY", "first-value", surface)}
			req := post(t, "k=API_KEY", true)
			for i := 0; i < len(header); i += 2 {
				req.Header[header[i]] = append(req.Header[header[i]], header[i+1])
			}
			var form *formdata.Error
			var other *Ambiguity
			_, err := New(c).SwapRequest(req, Options{Allowed: c})
			if is := errors.As(err, &form) || errors.As(err, &other); is != refused || !refused && err != nil {
				t.Errorf("%q, %s: %v", header, surface, err)
			}
		}
	}
}
