package strict

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestRefused: each ambiguity is refused here, not only by net/http after it, and nothing of the request is passed on.
// Promise: one-reading
func TestRefused(t *testing.T) {
	const host = "Host: a.test\r\n"
	post := "POST / HTTP/1.1\r\n" + host
	get := func(line, fields string) string { return line + "\r\n" + fields + "\r\n" }
	for name, text := range map[string]string{
		"length and chunked":    post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"chunked and length":    post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
		"two lengths":           post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"two equal lengths":     post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"list of lengths":       post + "Content-Length: 5, 5\r\n\r\n",
		"length with a sign":    post + "Content-Length: +5\r\n\r\n",
		"length below zero":     post + "Content-Length: -5\r\n\r\n",
		"length in hexadecimal": post + "Content-Length: 0x5\r\n\r\n",
		"length with a space":   post + "Content-Length: 5 5\r\n\r\n",
		"empty length":          post + "Content-Length:\r\n\r\n",
		"length too long":       post + "Content-Length: 10000000000000000005\r\n\r\n",
		"two codings":           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"list of codings":       post + "Transfer-Encoding: identity, chunked\r\n\r\n",
		"unknown coding":        post + "Transfer-Encoding: xchunked\r\n\r\n",
		"coding, vertical tab":  post + "Transfer-Encoding: \x0bchunked\r\n\r\n",
		"chunked in HTTP/1.0":   "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n",
		"line feed in a field":  get("GET / HTTP/1.1", host+"A: b\nC: d\r\n"),
		"line feed in the line": get("GET / HTTP/1.1\nA: b", host),
		"CR in a field":         get("GET / HTTP/1.1", host+"A: b\rC: d\r\n"),
		"CR at a field's end":   get("GET / HTTP/1.1", host+"A: b\r\r\n"),
		"NUL in a field":        get("GET / HTTP/1.1", host+"A: b\x00\r\n"),
		"DEL in a field":        get("GET / HTTP/1.1", host+"A: b\x7f\r\n"),
		"escape in a field":     get("GET / HTTP/1.1", host+"A: \x1b[2J\r\n"),
		"folded by a space":     get("GET / HTTP/1.1", host+"A: b\r\n c\r\n"),
		"folded by a tab":       get("GET / HTTP/1.1", host+"A: b\r\n\tc\r\n"),
		"folded first":          get("GET / HTTP/1.1", " A: b\r\n"+host),
		"space before a colon":  get("GET / HTTP/1.1", host+"A : b\r\n"),
		"no colon":              get("GET / HTTP/1.1", host+"A\r\n"),
		"no name":               get("GET / HTTP/1.1", host+": b\r\n"),
		"name of bytes":         get("GET / HTTP/1.1", host+"\xc3\xa4: b\r\n"),
		"two hosts":             get("GET / HTTP/1.1", host+host),
		"two hosts, case":       get("GET / HTTP/1.1", host+"hOST: b.test\r\n"),
		"no host":               get("GET / HTTP/1.1", "A: b\r\n"),
		"empty host":            get("GET / HTTP/1.1", "Host:\r\n"),
		"absolute target":       get("GET https://a.test/ HTTP/1.1", host),
		"target without slash":  get("GET a HTTP/1.1", host),
		"authority target":      get("CONNECT a.test:443 HTTP/1.1", host),
		"asterisk of GET":       get("GET * HTTP/1.1", host),
		"fragment":              get("GET /#a HTTP/1.1", host),
		"bytes in the target":   get("GET /\xc2\x9b HTTP/1.1", host),
		"DEL in the target":     get("GET /\x7f HTTP/1.1", host),
		"tab in the target":     get("GET /a\tb HTTP/1.1", host),
		"broken escape":         get("GET /%zz HTTP/1.1", host),
		"two spaces":            get("GET  / HTTP/1.1", host),
		"space behind":          get("GET / HTTP/1.1 ", host),
		"HTTP/1.2":              get("GET / HTTP/1.2", host),
		"HTTP/2.0":              get("PRI * HTTP/2.0", host),
		"HTTP/0.9":              get("GET /", host),
		"http in lower case":    get("GET / http/1.1", host),
		"method of a separator": get("GE(T / HTTP/1.1", host),
		"method too long":       get(strings.Repeat("A", 33)+" / HTTP/1.1", host),
		"another expectation":   get("GET / HTTP/1.1", host+"Expect: 200-ok\r\n"),
		"two expectations":      get("GET / HTTP/1.1", host+"Expect: 100-continue, 200-ok\r\n"),
		"empty line first":      "\r\n" + get("GET / HTTP/1.1", host),
		"too many fields":       get("GET / HTTP/1.1", host+strings.Repeat("A: b\r\n", maxFields)),
		"head too long":         get("GET / HTTP/1.1", host+"A: "+strings.Repeat("b", MaxHead)+"\r\n"),
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader} {
			s := New(wire{r: wrap(strings.NewReader(text + "GET /second HTTP/1.1\r\n" + host + "\r\n"))})
			got, err := io.ReadAll(s)
			if string(got) != refusedHead || s.FindRefusal(1) == nil {
				t.Errorf("%s, %s: handed on %.90q, %v, %v", name, how, got, err, s.FindRefusal(1))
			}
		}
	}
}

// TestRefusedChunks: a body whose chunks or trailers can be read in two ways ends in an error at that place.
// Promise: one-reading
func TestRefusedChunks(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	const behind = "GET /second HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for name, chunks := range map[string]string{
		"extension":           "3;a=b\r\nabc\r\n0\r\n\r\n",
		"space behind a size": "3 \r\nabc\r\n0\r\n\r\n",
		"bare LF":             "3\nabc\r\n0\r\n\r\n",
		"longer than said":    "3\r\nabcd\r\n0\r\n\r\n",
		"LF behind a chunk":   "3\r\nabc\n0\r\n\r\n",
		"two bytes behind":    "3\r\nabcXY0\r\n\r\n",
		"prefix":              "0x3\r\nabc\r\n0\r\n\r\n",
		"sign":                "+3\r\nabc\r\n0\r\n\r\n",
		"empty size":          "\r\nabc\r\n0\r\n\r\n",
		"overflow":            "ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
		"overflow to three":   "1000000000000003\r\nabc\r\n0\r\n\r\n",
		"framing trailer":     "3\r\nabc\r\n0\r\nContent-Length: 1\r\n\r\n",
		"coding trailer":      "3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"host trailer":        "3\r\nabc\r\n0\r\nHost: b.test\r\n\r\n",
		"folded trailer":      "3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n",
		"trailer without end": "3\r\nabc\r\n0\r\nA: b\n\n\r\n\r\n",
		"trailer too long":    "3\r\nabc\r\n0\r\nA: " + strings.Repeat("b", maxTrailer) + "\r\n\r\n",
		"too many trailers":   "3\r\nabc\r\n0\r\n" + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n",
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader} {
			s := New(wire{r: wrap(strings.NewReader(head + chunks + behind))})
			got, err := io.ReadAll(s)
			if err == nil || !strings.HasPrefix(head+chunks, string(got)) || len(got) == len(head+chunks) {
				t.Errorf("%s, %s: handed on %q, %v", name, how, got, err)
			}
			if n, err := s.Read(make([]byte, 9)); n != 0 || err == nil {
				t.Errorf("%s, %s: another read has %d bytes, %v", name, how, n, err)
			}
		}
	}
}
