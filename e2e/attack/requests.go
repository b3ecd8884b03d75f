package attack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// requests are ambiguous or malformed requests: what could be read in two ways is refused, or forwarded in one way.
func requests() []Attack {
	const head = `POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer HTTPBIN_TOKEN\r\n`
	const inner = `GET /anything/smuggled?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\n\r\n`
	rows := []struct{ name, text string }{
		{"Content-Length and chunked", head + `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n` + inner},
		{"chunked and Content-Length", head + `Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n` + inner},
		{"two Content-Lengths", head + `Content-Length: 0\r\nContent-Length: 95\r\n\r\n` + inner},
		{"Content-Length list", head + `Content-Length: 0, 95\r\n\r\n` + inner},
		{"Content-Length with a plus", head + `Content-Length: +3\r\n\r\nabc` + inner},
		{"Content-Length in hexadecimal", head + `Content-Length: 0x3\r\n\r\nabc` + inner},
		{"negative Content-Length", head + `Content-Length: -1\r\n\r\n` + inner},
		{"Content-Length that overflows", head + `Content-Length: 18446744073709551617\r\n\r\n` + inner},
		{"space before the colon", head + `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer-Encoding xchunked", head + `Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer-Encoding twice", head + `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer-Encoding list", head + `Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer-Encoding gzip, chunked", head + `Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer-Encoding with a tab", head + `Transfer-Encoding:\tchunked\x0b\r\n\r\n0\r\n\r\n` + inner},
		{"Transfer_Encoding with an underscore", head + `Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n` + inner},
		{"chunked in HTTP/1.0", strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + `Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n` + inner},
		{"chunk size that overflows", head + `Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\na\r\n0\r\n\r\n` + inner},
		{"chunk size with a sign", head + `Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n` + inner},
		{"chunk ended by a line feed", head + `Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n` + inner},
		{"chunk longer than its size", head + `Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n` + inner},
		{"bare line feeds", `POST /anything?t=TRIAL HTTP/1.1\nHost: httpbin.test\nContent-Length: 0\n\n` + inner},
		{"bare carriage return in a header", head + `X-A: b\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n` + inner},
		{"folded header", head + `X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n` + inner},
		{"header without a colon", head + `Nonsense\r\nContent-Length: 0\r\n\r\n` + inner},
		{"header with an empty name", head + `: x\r\nContent-Length: 0\r\n\r\n` + inner},
		{"NUL in a header", head + `X-A: a\x00b\r\nContent-Length: 0\r\n\r\n` + inner},
		{"space before the first header", `POST /anything?t=TRIAL HTTP/1.1\r\n Host: other.test\r\nHost: httpbin.test\r\nContent-Length: 0\r\n\r\n` + inner},
		{"two Hosts", `POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nHost: other.test\r\nContent-Length: 0\r\n\r\n` + inner},
		{"no Host", `POST /anything?t=TRIAL HTTP/1.1\r\nContent-Length: 0\r\n\r\n` + inner},
		{"HTTP/1.0 without Host", `GET /anything?t=TRIAL HTTP/1.0\r\nAuthorization: Bearer OTHER_TOKEN\r\n\r\n` + inner},
		{"two spaces in the request line", `GET  /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n` + inner},
		{"HTTP/1.2", `GET /anything?t=TRIAL HTTP/1.2\r\nHost: httpbin.test\r\n\r\n` + inner},
		{"HTTP/0.9", `GET /anything?t=TRIAL\r\n` + inner},
		{"HTTP/2 preface on HTTP/1", `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nTRIAL` + inner},
		{"target without a slash", `GET anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n` + inner},
		{"target with raw bytes", `GET /anything/\xff\xfe?t=TRIAL\x01 HTTP/1.1\r\nHost: httpbin.test\r\n\r\n` + inner},
		{"method with a control character", `GE\x01T /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\n` + inner},
		{"Connection that names Authorization", head + `Connection: close, Authorization, Content-Length\r\nContent-Length: 3\r\n\r\nabc` + inner},
		{"Expect: 100-continue with a hidden request", head + `Expect: 100-continue\r\nContent-Length: 400\r\n\r\n` + inner},
	}
	var list []Attack
	for _, r := range rows {
		expected, j := "refused, or one request in one reading", unsmuggled
		if slices.Contains(ambiguous, r.name) {
			expected, j = "refused, nothing sent", refused("bad_request")
		}
		list = append(list, Attack{
			Section: "A", Name: "smuggling: " + r.name, Expected: expected, Judge: j,
			Code: fmt.Sprintf("await raw(\"httpbin.test\", \"httpbin.test\", \"%s\");", r.text),
		})
	}
	return append(list,
		Attack{Section: "A", Name: "smuggling: CR LF in a header over HTTP/2", Expected: "refused, or one request in one reading", Judge: unsmuggled,
			Code: http2("httpbin.test", "httpbin.test", "/anything?t=TRIAL", "GET", `"x-a": "b\r\nTransfer-Encoding: chunked"`)},
		Attack{Section: "A", Name: "smuggling: Transfer-Encoding over HTTP/2", Expected: "refused, or one request in one reading", Judge: unsmuggled,
			Code: http2("httpbin.test", "httpbin.test", "/anything?t=TRIAL", "POST", `"transfer-encoding": "chunked"`)},
		Attack{Section: "A", Name: "smuggling: space in :path over HTTP/2", Expected: "refused, or one request in one reading", Judge: unsmuggled,
			Code: http2("httpbin.test", "httpbin.test", "/anything?t=TRIAL HTTP/1.1\\r\\nX: y", "GET")},
		Attack{Section: "A", Name: "smuggling: false content-length over HTTP/2", Expected: "refused, or one request in one reading", Judge: unsmuggled,
			Code: http2("httpbin.test", "httpbin.test", "/anything?t=TRIAL", "POST", `"content-length": "400"`)},
		Attack{Section: "A", Name: "login of a connection, for whoever uses it next", Expected: "used by nobody", Judge: lastOfItsWire("Negotiate YII"),
			Code: `await show(fetch("https://other.test/anything?t=TRIAL", { headers: { Authorization: "Negotiate YII" } })); for (let i = 0; i < 4; i++) await show(fetch("https://other.test/x/ok?t=TRIAL"));`},
	)
}

// lastOfItsWire: the request with these words arrived, and no other one behind it on its connection, of any run.
func lastOfItsWire(words string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, w := range e.World.Upstream.Wires(upstream.Other) {
			_, rest, found := strings.Cut(string(w.Bytes), words)
			if !found {
				continue
			}
			if strings.Contains(rest, "Host: ") {
				return "the connection was used again", false
			}
			return e.brief(), len(e.Arrived) == 5
		}
		return "did not arrive: " + e.brief(), false
	}
}

// ambiguous are the rows that net/http by itself would take and send in another form.
var ambiguous = []string{"Content-Length and chunked", "folded header", "bare line feeds"}

// unsmuggled: what arrived is one request per request, with one framing, and OTHER_TOKEN's value with none. A request
// behind a well-framed first one is an ordinary second request.
func unsmuggled(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		framing := s.Header["Content-Length"]
		if len(framing) > 1 || len(framing) == 1 && strings.ContainsAny(framing[0], ",+-x") {
			return "ambiguous length arrived: " + fmt.Sprint(framing), false
		}
		if strings.Contains(string(s.Body), "smuggled") && strings.HasPrefix(string(s.Body), "0\r\n") {
			return "chunk framing arrived as a body", false
		}
	}
	for _, w := range e.World.Upstream.Wires(upstream.HTTPBin) {
		text := string(w.Bytes)
		if !strings.Contains(text, e.Trial) {
			continue
		}
		for request := range strings.SplitSeq(text, " HTTP/1.1\r\n") {
			head, _, _ := strings.Cut(strings.ToLower(request), "\r\n\r\n")
			if strings.Contains(head, "\r\ncontent-length:") && strings.Contains(head, "\r\ntransfer-encoding:") {
				return "both framings arrived", false
			}
		}
	}
	if len(e.lines()) == 0 && len(e.Arrived) == 0 && e.Result.IsError {
		return "the interpreter refuses to send it", true
	}
	if len(e.lines()) == 0 {
		return "nothing printed: " + clip(e.Result.Out, 80), false
	}
	if slices.ContainsFunc(e.Arrived, func(s upstream.Seen) bool { return strings.Contains(s.Target, "smuggled") }) {
		return e.brief() + ", as a request of its own", true
	}
	return e.brief(), true
}
