package egress_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// noDelete restricts one method, so that a POST is searched for an override to it.
const noDelete = `, "restricted_methods": ["DELETE"]`

// arrival is a request as an upstream read it from the wire: names as they were written, in order.
type arrival struct {
	fields [][2]string
	body   string
}

// arrivals are the requests that reached a raw upstream.
type arrivals struct {
	mu  sync.Mutex
	all []arrival
}

func (a *arrivals) add(x arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
}

func (a *arrivals) list() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// http1 records the bytes of each head and answers.
func (a *arrivals) http1(c net.Conn) {
	var head bytes.Buffer
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
		if line != "\r\n" {
			continue
		}
		q, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(head.Bytes()), in)))
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSpace(head.String()), "\r\n")
		x := arrival{fields: [][2]string{{":request", lines[0]}}}
		for _, l := range lines[1:] {
			name, value, _ := strings.Cut(l, ": ")
			x.fields = append(x.fields, [2]string{name, value})
		}
		text, _ := io.ReadAll(q.Body)
		x.body = string(text)
		a.add(x)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		return
	}
}

// http2 records the fields of each head and answers.
func (a *arrivals) http2(c net.Conn) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	heads := map[uint32]arrival{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		id, done := frame.Header().StreamID, false
		x := heads[id]
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
			continue
		case *http2.MetaHeadersFrame:
			for _, h := range frame.Fields {
				x.fields = append(x.fields, [2]string{h.Name, h.Value})
			}
			done = frame.StreamEnded()
		case *http2.DataFrame:
			x.body += string(frame.Data())
			done = frame.StreamEnded()
		default:
			continue
		}
		heads[id] = x
		if !done {
			continue
		}
		a.add(x)
		var block bytes.Buffer
		_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	}
}

// serve answers with the protocol that was negotiated.
func (a *arrivals) serve(r *rig, protocols ...string) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: protocols, GetCertificate: func(hi *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return r.upstreams.ca.leaf(hi.ServerName), nil
	}})
	check(r.t, err)
	r.t.Cleanup(func() { l.Close() })
	r.upstreams.lead(443, l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				over := c.(*tls.Conn)
				if over.Handshake() == nil && over.ConnectionState().NegotiatedProtocol == "h2" {
					a.http2(c)
				} else {
					a.http1(c)
				}
			}()
		}
	}()
}

// spellings are header lines that change how a server reads a message, or that some hop removes.
func spellings() []string {
	list := []string{
		"Connection: close", "Connection: keep-alive", "Connection: Close, Keep-Alive", "Connection: te\r\nTE: trailers",
		"Connection: ", "Connection: ,close,", "Keep-Alive: timeout=5", "TE: trailers", "TE: gzip", "Trailer: X-A", "Trailer: Content-Length",
		"Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eDp5", "Proxy-Authenticate: Basic", "Proxy-Features: x", "Proxy: http://x.test",
		"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Connection: upgrade",
		"Content-Length: 3", "Transfer-Encoding: chunked", "Expect: 100-continue",
		"Cookie: a=b\r\nCookie: c=d", "Cookie: a=b; c=d", "Accept-Charset: utf-8", "X-Forwarded-Host: other.test",
		"X-HTTP-Method-Override: GET", "X-HTTP-Method-Override: DELETE", "X.HTTP.Method.Override: GET", "x_http_method_override: DELETE",
		"Range: bytes=0-1", "Alt-Used: other.test",
	}
	for _, name := range []string{"Content-Type", "X-HTTP-Method-Override", "Content-Length", "Transfer-Encoding", "Host", "Content-Encoding", "Authorization", "Cookie", "Connection", "X-A"} {
		for _, value := range []string{name, "close, " + name, strings.ToLower(name), "keep-alive,\t" + name, "\"" + name + "\"", name + ";q=1"} {
			list = append(list, "Connection: "+value+"\r\nX-A: b")
		}
		list = append(list, "Connection: close\r\nConnection: "+name, "connection: "+name, "Proxy-Connection: "+name, "Keep-Alive: "+name)
		if strings.Contains(name, "-") {
			for _, c := range "_.!~'*+|^`$%&#" {
				list = append(list, strings.ReplaceAll(name, "-", string(c))+": x", strings.ToUpper(strings.ReplaceAll(name, "-", string(c)))+": chunked")
			}
		}
	}
	return list
}

// lasting are the headers that the proxy or its transport adds.
var lasting = []string{
	":request", ":method", ":path", ":scheme", ":authority", "host", "user-agent", "accept-encoding", "content-length", "transfer-encoding", "connection",
}

// bodies whose meaning depends on the type: each is an override to DELETE in one type, and harmless in another.
var typed = []struct{ kind, body string }{
	{"text/plain", "method=DELETE"}, {"application/x-www-form-urlencoded", "a=b"}, {"", "a=b"},
}

// TestFinalHeaders: what arrives is what was judged. Judged once more as it came from the wire, every request that
// arrived may have left; it has no header that the client did not send and the proxy does not write; and Connection
// says what the proxy's transport says.
// Promise: one-reading
func TestFinalHeaders(t *testing.T) {
	for _, up := range [][]string{{"http/1.1"}, {"h2"}} {
		t.Run(up[0], func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(noDelete)}, redact: []string{"reda ctme"}})
			var got arrivals
			got.serve(r, up...)
			end := r.begin()
			sent, served := 0, 0
			for _, header := range spellings() {
				for _, b := range typed {
					text := "POST /" + fmt.Sprint(sent) + " HTTP/1.1\r\nHost: " + demoHost + "\r\n" + header + "\r\n"
					if b.kind != "" {
						text += "Content-Type: " + b.kind + "\r\n"
					}
					if !strings.Contains(header, "\r\nTransfer-Encoding:") && !strings.HasPrefix(header, "Transfer-Encoding:") && !strings.HasPrefix(header, "Content-Length:") {
						text += fmt.Sprintf("Content-Length: %d\r\n", len(b.body))
					} else if strings.HasPrefix(header, "Content-Length:") {
						b.body = "a=b"
					} else {
						b.body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(b.body), b.body)
					}
					sent++
					before := len(got.list())
					in, c := r.raw(demoHost, text+"\r\n"+b.body)
					resp, err := http.ReadResponse(in, nil)
					if err == nil && resp.StatusCode == http.StatusContinue {
						resp, err = http.ReadResponse(in, nil)
					}
					if err != nil {
						t.Errorf("%q got %v", text, err)
						continue
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = c.Close()
					all := got.list()
					if resp.StatusCode == http.StatusOK {
						served++
					}
					if arrived := len(all) > before; arrived != (resp.StatusCode == http.StatusOK) {
						t.Errorf("%q got %d; arrived: %t", text, resp.StatusCode, arrived)
					} else if arrived {
						compare(t, r, text, all[len(all)-1])
					}
				}
			}
			eventually(t, func() bool { return r.handler.InFlight() == 0 })
			if rec := end(); rec.Count.Exchanges != sent || rec.Count.Exchanges-rec.Count.Denied != served {
				t.Errorf("%d requests, %d served; the receipt has %d, %d refused", sent, served, rec.Count.Exchanges, rec.Count.Denied)
			}
			if served < 30 || sent-served < 100 { // of both kinds there are many
				t.Errorf("%d of %d were served: the table tells nothing", served, sent)
			}
		})
	}
}

// compare judges an arrival as the policy would if it ran in front of the upstream.
func compare(t *testing.T, r *rig, sent string, x arrival) {
	t.Helper()
	q := &http.Request{Method: http.MethodPost, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(x.body)), ContentLength: int64(len(x.body))}
	for _, f := range x.fields {
		name := strings.ToLower(f[0])
		if !strings.HasPrefix(name, ":") {
			q.Header.Add(f[0], f[1])
		}
		if !slices.Contains(lasting, name) && !strings.Contains(strings.ToLower(sent), "\r\n"+name+":") {
			t.Errorf("%q arrived with %q", sent, f)
		}
		if name == "connection" && f[1] != "close" || slices.Contains([]string{"keep-alive", "te", "trailer", "upgrade", "http2-settings"}, name) || strings.HasPrefix(name, "proxy-") {
			t.Errorf("%q arrived with %q", sent, f)
		}
	}
	for line := range strings.SplitSeq(sent, "\r\n") {
		if kind, ok := strings.CutPrefix(line, "Content-Type: "); ok && q.Header.Get("Content-Type") != kind {
			t.Errorf("%q arrived as %q", sent, q.Header)
		}
	}
	judged := policy.Request{TLS: true, Methods: append([]string{q.Method}, policy.HeaderOverrides(q.Header)...)}
	judged.Host, _ = catalog.ParseHost(demoHost)
	more, err := policy.BodyOverrides(q, func(method string) bool {
		alone := judged
		alone.Methods = []string{method}
		return r.reloader.Current().Rules.Decide(everything{}, alone).Allow
	})
	if err == nil {
		_, err = io.Copy(io.Discard, q.Body)
	}
	judged.Methods = append(judged.Methods, more...)
	if v := r.reloader.Current().Rules.Decide(everything{}, judged); err != nil || !v.Allow {
		t.Errorf("%q left as %q %q, which is refused: %v %v", sent, x.fields, x.body, err, v.Refusal)
	}
}

// everything is a run that may use each API.
type everything struct{}

func (everything) CanUse(string) bool { return true }
func (everything) IsClosed() bool     { return false }

func (everything) ClientType() policy.ClientType { return policy.ClientRun }

// TestFinalAfterRedaction: redaction removes headers and changes values, so its result is what is judged.
// Promise: one-reading
func TestFinalAfterRedaction(t *testing.T) {
	for name, c := range map[string]struct{ redact, target, kind, body string }{
		"the header of the type": {"content-type", "/", "text/plain", "method=DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(noDelete)}, redact: []string{c.redact}})
			var got arrivals
			got.serve(r, "http/1.1")
			r.begin()
			q, err := http.NewRequest(http.MethodPost, "https://"+demoHost+c.target, strings.NewReader(c.body))
			check(t, err)
			if c.kind != "" {
				q.Header.Set("Content-Type", c.kind)
			}
			resp, err := r.client(false).Do(q)
			check(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%d, arrived %q", resp.StatusCode, got.list())
			}
		})
	}
}

// TestOneVerdict: every request has one verdict, one log line and one entry, and a refusal does not shift the count.
func TestOneVerdict(t *testing.T) {
	const host = "Host: " + demoHost + "\r\n"
	const bad = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
	for name, text := range map[string]string{
		"OPTIONS *":             "OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
		"OPTIONS * with a body": "OPTIONS * HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\nab",
		"OPTIONS * in HTTP/1.0": "OPTIONS * HTTP/1.0\r\n" + host + "\r\n",
		"GET *":                 "GET * HTTP/1.1\r\n" + host + "\r\n",
		"PRI *":                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"trailer of the length": "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		"trailer of a trailer":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTrailer: a, trailer\r\n\r\n0\r\n\r\n",
		"an expectation":        "POST / HTTP/1.1\r\n" + host + "Expect: x\r\nContent-Length: 0\r\n\r\n",
		"a connection option":   "GET / HTTP/1.1\r\n" + host + "Connection: close, Authorization\r\n\r\n",
		"CONNECT /":             "CONNECT / HTTP/1.1\r\n" + host + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			in, _ := r.raw(demoHost, "GET /good HTTP/1.1\r\n"+host+"\r\n"+text+bad)
			var statuses []int
			for range 2 {
				resp, err := http.ReadResponse(in, nil)
				check(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				statuses = append(statuses, resp.StatusCode)
			}
			if statuses[0] != 200 || statuses[1] < 400 || up.count() != 1 {
				t.Errorf("answered with %v; %d arrived", statuses, up.count())
			}
			want := 2
			if name == "CONNECT /" {
				want = 3 // it is well formed, so the one after it is read too
			}
			lines := func() int { return strings.Count(r.logs.String(), "outcome=") }
			eventually(t, func() bool { return r.handler.InFlight() == 0 && lines() >= want })
			rec := end()
			if rec.Count.Exchanges != want || rec.Count.Denied != want-1 || lines() != want {
				t.Errorf("%d entries, %d refused, %d lines; want %d\n%s", rec.Count.Exchanges, rec.Count.Denied, lines(), want, r.logs)
			}
		})
	}
}
