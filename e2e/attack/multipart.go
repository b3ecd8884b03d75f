package attack

import (
	"fmt"
	"mime"
	"strconv"
	"strings"
)

// multipart are forms with parts that servers read in different ways, to the place that a credential belongs in or another.
func multipart() []Attack {
	const must = "refused, nothing sent whole"
	part := func(head, content string) string { return "--b\r\n" + head + "\r\n\r\n" + content + "\r\n" }
	const name = `Content-Disposition: form-data; name="client_secret"`
	const comment = `Content-Disposition: form-data; name="comment"`
	var list []Attack
	for _, row := range []struct{ name, body string }{
		{"an extended name", part(name+`; name*=utf-8''comment`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"an extended name first", part(`Content-Disposition: form-data; name*=utf-8''comment; name="client_secret"`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a name in pieces", part(`Content-Disposition: form-data; name*0="client_"; name*1="secret"`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"two Content-Dispositions", part(name+"\r\n"+comment, "HTTPBIN_BODY") + "--b--\r\n"},
		{"two Content-Dispositions the other way", part(comment+"\r\n"+name, "HTTPBIN_BODY") + "--b--\r\n"},
		{"two names", part(name+`; name="comment"`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a quoted pair", part(`Content-Disposition: form-data; name="client\_secret"`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a name in single quotes", part(name+`; x='; name="comment"; y='`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a parameter that ends with name", part(name+`; x-name="comment"`, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a folded head", part("Content-Disposition: form-data;\r\n name=\"client_secret\"", "HTTPBIN_BODY") + "--b--\r\n"},
		{"a head that ends with a bare line feed", part(name+"\nX: y", "HTTPBIN_BODY") + "--b--\r\n"},
		{"a transfer encoding", part(name+"\r\nContent-Transfer-Encoding: quoted-printable", "HTTPBIN_BODY") + "--b--\r\n"},
		{"a field in UTF-16", part(name+"\r\nContent-Type: text/plain; charset=utf-16", "HTTPBIN_BODY") + "--b--\r\n"},
		{"two Content-Types in a part", part(name+"\r\nContent-Type: text/plain\r\nContent-Type: text/html", "HTTPBIN_BODY") + "--b--\r\n"},
		{"a field that chooses the charset", part(`Content-Disposition: form-data; name="_charset_"`, "utf-16") + part(name, "HTTPBIN_BODY") + "--b--\r\n"},
		{"the declared field twice", part(name, "HTTPBIN_BODY") + part(name, "x") + "--b--\r\n"},
		{"a nested form", part(comment+"\r\nContent-Type: multipart/mixed; boundary=c", "--c\r\n"+name+"\r\n\r\nHTTPBIN_BODY\r\n--c--") + "--b--\r\n"},
		{"a boundary after a bare line feed", "--b\r\n" + name + "\r\n\r\nHTTPBIN_BODY\n--b--\r\n"},
		{"a boundary that goes on", "--b\r\n" + comment + "\r\n\r\nx\r\n--bc\r\n\r\n" + part(name, "HTTPBIN_BODY") + "--b--\r\n"},
		{"a space after the boundary", "--b \r\n" + name + "\r\n\r\nHTTPBIN_BODY\r\n--b--\r\n"},
		{"a preamble", "x\r\n" + part(name, "HTTPBIN_BODY") + "--b--\r\n"},
		{"an epilogue", part(comment, "x") + "--b--\r\n" + part(name, "HTTPBIN_BODY") + "--b--\r\n"},
		{"no last boundary", part(name, "HTTPBIN_BODY")},
		{"two Content-Dispositions after 400 KiB", part(comment, strings.Repeat("x", 400<<10)) + part(comment+"\r\n"+name, "HTTPBIN_BODY") + "--b--\r\n"},
	} {
		list = append(list, Attack{Section: "A", Name: "multipart: " + row.name, Expected: must, Judge: twoReadings, Code: form("httpbin.test", "", `"Content-Type": "multipart/form-data; boundary=b"`, row.body)})
	}
	for _, kind := range []string{
		`multipart/form-data; boundary=b; boundary=c`, `multipart/form-data; boundary=c; boundary*=utf-8''b`, `multipart/form-data; boundary*=utf-8''b`,
		`multipart/form-data; boundary=b, multipart/form-data; boundary=c`, `multipart/form-data; boundary=b; charset=utf-16`, `multipart/form-data`,
		"multipart/form-data; boundary=b\\r\\nContent-Type: multipart/form-data; boundary=c", "text/plain\\r\\nContent-Type: multipart/form-data; boundary=b",
	} {
		body := part(name, "HTTPBIN_BODY") + "--b--\r\n"
		list = append(list, Attack{Section: "A", Name: "multipart: the type " + strings.ReplaceAll(kind, `\r\n`, " and "), Expected: must, Judge: twoReadings,
			Code: fmt.Sprintf(`await raw("httpbin.test", "httpbin.test", "POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" + %s);`, strings.ReplaceAll(kind, `"`, `\"`), len(body), strconv.Quote(body))})
	}
	return append(list,
		Attack{Section: "A", Name: "multipart: the author's boundary", Expected: "another boundary", Judge: unknownBoundary("HTTPBIN_BODY"),
			Code: form("httpbin.test", "", `"Content-Type": "multipart/form-data; boundary=b"`, part(comment, "x--b--")+part(name, "HTTPBIN_BODY")+"--b--\r\n")},
		Attack{Section: "A", Name: "control: declared field of a FormData", Expected: "swapped", Judge: swapped("HTTPBIN_BODY"),
			Code: `const f = new FormData(); f.append("a", "b"); f.append("client_secret", "HTTPBIN_BODY"); f.append("f", new Blob(["x"]), "x.txt"); await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", body: f }));`},
	)
}

// form is a POST of a body as it stands. token is in the header Authorization.
func form(host, token, header, body string) string {
	if token != "" {
		header += `, "Authorization": "Bearer ` + token + `"`
	}
	if n := strings.Count(body, "x"); n > 1000 {
		before, after, _ := strings.Cut(body, strings.Repeat("x", n-5))
		return fmt.Sprintf(`await show(fetch("https://%s/anything?t=TRIAL", { method: "POST", headers: { %s }, body: %s + "x".repeat(%d) + %s }));`, host, header, strconv.Quote(before), n-5, strconv.Quote(after))
	}
	return fmt.Sprintf(`await show(fetch("https://%s/anything?t=TRIAL", { method: "POST", headers: { %s }, body: %s }));`, host, header, strconv.Quote(body))
}

// twoReadings: the proxy refused the body for its readings, and what had left by then was broken off.
func twoReadings(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if !strings.Contains(string(s.Body), "[broken off") {
			return "a whole request arrived", false
		}
	}
	ls := e.lines()
	return e.brief(), len(ls) == 1 && ls[0].Status == 400 && ls[0].Code == unclear
}

// unknownBoundary: the body arrived with a boundary that its author did not choose, and the credential with it, if one is
// named.
func unknownBoundary(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 || token != "" && !e.got(token) {
			return "did not arrive: " + e.brief(), false
		}
		for _, s := range e.Arrived {
			_, params, err := mime.ParseMediaType(s.Header.Get("Content-Type"))
			if err != nil || len(params["boundary"]) < 20 || !strings.HasPrefix(string(s.Body), "--"+params["boundary"]+"\r\n") {
				return "the boundary is its author's", false
			}
		}
		return "a boundary of the proxy's", true
	}
}
