package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestBadUpstreams: a broken response is a clear failure or an abort, never a truncated success.
// Promise: no-truncated-response
func TestBadUpstreams(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	big := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		answer string // after which the connection is closed
		abort  bool   // the client sees an abort; otherwise 502
	}{
		"nothing":                   {"", false},
		"garbage":                   {"SSH-2.0-OpenSSH_9\r\n", false},
		"half a head":               {"HTTP/1.1 200 OK\r\nContent-Ty", false},
		"endless head":              {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 500), false},
		"two lengths":               {head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", false},
		"status 099":                {"HTTP/1.1 099 Hm\r\nContent-Length: 0\r\n\r\n", false},
		"101 that nobody asked for": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false},
		"short small body":          {head + "Content-Length: 50\r\n\r\nhello", false},
		"short large body":          {head + "Content-Length: 2000000\r\n\r\n" + big, true},
		"chunks without end":        {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true},
		"malformed chunks":          {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", true},
		"broken gzip":               {head + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", false},
		"unknown encoding":          {head + "Content-Encoding: x-rot13\r\nContent-Length: 5\r\n\r\nhello", false},
		"an echo in an error text":  {"HTTP/1.1 " + secretValue + "\r\n\r\n", false},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%t", name, h2), func(t *testing.T) {
				r := newRig(t, setup{})
				r.upstreams.raw(func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						_, _ = io.WriteString(conn, c.answer)
					}
				})
				end := r.begin()
				resp, err := r.client(h2).Get("https://" + demoHost + "/")
				check(t, err)
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				switch {
				case c.abort && err == nil:
					t.Errorf("the client saw a complete %d of %d bytes", resp.StatusCode, len(text))
				case !c.abort && (resp.StatusCode != 502 || err != nil):
					t.Errorf("the client saw %d, %v, %.80q", resp.StatusCode, err, text)
				case !c.abort && !bytes.Contains(text, []byte(`"code":"upstream_`)):
					t.Errorf("the client saw %q", text)
				}
				eventually(t, func() bool { return r.handler.InFlight() == 0 })
				rec := end()
				if rec.Count.Failed != 1 || rec.Exchanges[0].Outcome != proxyapi.OutcomeFailed {
					t.Errorf("the receipt says %+v", rec)
				}
				if strings.Contains(string(text)+fmt.Sprint(rec)+r.logs.String(), secretValue) {
					t.Errorf("the credential got out: %s %+v %s", text, rec, r.logs)
				}
			})
		}
	}
}

// TestWrongCertificate: nothing is sent to an upstream without a valid certificate for its host.
// Promise: declared-places-only
func TestWrongCertificate(t *testing.T) {
	r := newRig(t, setup{})
	other := newUpstreams(t) // has an authority of its own
	var up seen
	s := other.https(up.echo())
	r.upstreams.lead(443, s.Listener.Addr().String())
	end := r.begin()
	req, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
	req.Header.Set("Authorization", tokenName)
	resp, err := r.client(false).Do(req)
	check(t, err)
	if got := refusal(t, resp); resp.StatusCode != 502 || got.Code != "upstream_certificate" {
		t.Errorf("got %d %+v", resp.StatusCode, got)
	}
	if up.count() != 0 {
		t.Error("the request was sent")
	}
	if rec := end(); rec.Count.Failed != 1 || rec.Count.Swapped != 0 { // what was put in did not leave
		t.Errorf("the receipt says %+v", rec)
	}
}

// TestDialGuard: a configured host that resolves to a forbidden address is not dialled.
// Promise: no-private-address
func TestDialGuard(t *testing.T) {
	for _, addr := range []string{"169.254.169.254", "10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "198.18.0.1", "::1", "64:ff9b::a00:1"} {
		t.Run(addr, func(t *testing.T) {
			r := newRig(t, setup{})
			r.upstreams.addrs[demoHost] = []netip.Addr{netip.MustParseAddr(addr)}
			end := r.begin()
			req, _ := http.NewRequest("POST", "https://"+demoHost+"/", strings.NewReader("a body"))
			req.Header.Set("Authorization", tokenName)
			resp, err := r.client(false).Do(req)
			check(t, err)
			if got := refusal(t, resp); got.Code != "address_refused" {
				t.Errorf("got %+v", got)
			}
			if r.upstreams.dialled() != 0 {
				t.Error("it was dialled")
			}
			if rec := end(); rec.Count.Denied != 1 || rec.Count.Swapped != 0 {
				t.Errorf("the receipt says %+v", rec)
			}
		})
	}
}

// TestShapes: every form of HTTP message passes unchanged.
func TestShapes(t *testing.T) {
	r := newRig(t, setup{})
	var continued atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/head", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1234") })
	mux.HandleFunc("/204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	mux.HandleFunc("/304", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"a"`); w.WriteHeader(304) })
	mux.HandleFunc("/trailer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body\n")
		w.Header().Set("X-Sum", "is "+secretValue)
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "https://evil.test/?k="+secretValue, http.StatusFound)
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</"+secretValue+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "late")
	})
	mux.HandleFunc("/continue", func(w http.ResponseWriter, req *http.Request) {
		continued.Store(req.Header.Get("Expect") == "100-continue")
		b, _ := io.ReadAll(req.Body)
		_, _ = w.Write(b)
	})
	mux.HandleFunc("/notype", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	})
	mux.HandleFunc("/hop", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Alt-Svc", `h3=":443"`)
		fmt.Fprint(w, req.Header.Get("X-Mine"), req.Header.Get("Proxy-Authorization"), req.Header.Get("Te"))
	})
	r.upstreams.https(mux)
	r.begin()
	for _, h2 := range []bool{false, true} {
		client := r.client(h2)
		do := func(method, path string, body io.Reader, header ...string) *http.Response {
			t.Helper()
			req, _ := http.NewRequest(method, "https://"+demoHost+path, body)
			for i := 0; i+1 < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := client.Do(req)
			check(t, err)
			return resp
		}
		if resp := do("HEAD", "/head", nil); resp.ContentLength != 1234 || body(t, resp) != "" {
			t.Errorf("HEAD: %+v", resp)
		}
		if resp := do("GET", "/204", nil); resp.StatusCode != 204 || body(t, resp) != "" {
			t.Errorf("204: %+v", resp)
		}
		if resp := do("GET", "/304", nil); resp.StatusCode != 304 || resp.Header.Get("Etag") != `"a"` {
			t.Errorf("304: %+v", resp)
		}
		resp := do("GET", "/trailer", nil)
		if text := body(t, resp); text != "body\n" || resp.Trailer.Get("X-Sum") != "is "+tokenName {
			t.Errorf("trailer: %q %v", text, resp.Trailer)
		}
		resp = do("GET", "/redirect", nil)
		if loc := resp.Header.Get("Location"); resp.StatusCode != 302 || loc != "https://evil.test/?k="+tokenName {
			t.Errorf("redirect: %d %q", resp.StatusCode, loc)
		}
		if resp := do("GET", "/early", nil); resp.StatusCode != 200 || body(t, resp) != "late" {
			t.Errorf("early hints: %+v", resp)
		}
		if resp := do("POST", "/continue", strings.NewReader("up"), "Expect", "100-continue"); body(t, resp) != "up" {
			t.Errorf("continue: %+v", resp)
		}
		if resp := do("GET", "/notype", nil); len(resp.Header["Content-Type"]) != 0 {
			t.Errorf("a Content-Type was made up: %v", resp.Header)
		}
		resp = do("GET", "/hop", nil, "X-Mine", "a", "Proxy-Authorization", "b")
		if text := body(t, resp); text != "a" || resp.Header.Get("X-Hop")+resp.Header.Get("Alt-Svc") != "" {
			t.Errorf("hop-by-hop: %q %v", text, resp.Header)
		}
	}
	// HTTP/1.0 has no chunks: the body ends with the connection.
	in, _ := r.raw(demoHost, "GET /trailer HTTP/1.0\r\nHost: "+demoHost+"\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	check(t, err)
	if text := body(t, resp); text != "body\n" || resp.ProtoMinor != 0 && !resp.Close {
		t.Errorf("HTTP/1.0: %q %+v", text, resp)
	}
}

// TestAbortHTTP10: where the end of the connection ends the body, a truncated body must not end like a complete one.
func TestAbortHTTP10(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "allow_http": true`)}})
	r.upstreams.plain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first line\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	r.begin()
	in, _ := r.raw("", "GET / HTTP/1.0\r\nHost: "+demoHost+"\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	check(t, err)
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the client saw a complete %q", text)
	}
}

// TestStreaming: events leave as they arrive, bodies of any size in pieces.
func TestStreaming(t *testing.T) {
	r := newRig(t, setup{})
	next := make(chan bool)
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", req.URL.Query().Get("type"))
		_ = http.NewResponseController(w).Flush()
		for range next {
			_, _ = io.WriteString(w, "data: "+secretValue+"\n"+map[bool]string{true: "\n"}[w.Header().Get("Content-Type") == "text/event-stream"])
			_ = http.NewResponseController(w).Flush()
		}
	}))
	r.begin()
	for _, h2 := range []bool{false, true} {
		for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
			next = make(chan bool)
			resp, err := r.startGet(h2, "/?type="+kind)
			check(t, err)
			in := bufio.NewReader(resp.Body)
			for i := range 3 {
				next <- true
				line, err := in.ReadString('\n')
				check(t, err)
				if line != "data: "+tokenName+"\n" {
					t.Errorf("event %d is %q", i, line)
				}
				if kind == "text/event-stream" {
					_, _ = in.ReadString('\n')
				}
			}
			close(next)
			if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
				t.Errorf("the stream ends with %q, %v", rest, err)
			}
			resp.Body.Close()
		}
	}
}

func (r *rig) startGet(h2 bool, path string) (*http.Response, error) {
	client := r.client(h2)
	client.Timeout = 0
	return client.Get("https://" + demoHost + path)
}

// TestLargeBodies go both ways, byte for byte.
func TestLargeBodies(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n, _ := strconv.Atoi(req.URL.Query().Get("length"))
		if n > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, req.Body)
	}))
	end := r.begin()
	var want int64
	for _, h2 := range []bool{false, true} {
		for _, size := range []int{0, 1, 4095, 256 << 10, 256<<10 + 1, 3 << 20} {
			for _, known := range []bool{false, true} {
				data := bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size]
				path := "/?length=0"
				if known {
					path = "/?length=" + strconv.Itoa(size)
				}
				resp, err := r.client(h2).Post("https://"+demoHost+path, "text/plain", bytes.NewReader(data))
				check(t, err)
				if got := body(t, resp); got != string(data) {
					t.Errorf("h2=%t size=%d known=%t: %d bytes came back", h2, size, known, len(got))
				}
				if known && size <= 256<<10 && resp.ContentLength != int64(size) {
					t.Errorf("h2=%t size=%d: Content-Length is %d", h2, size, resp.ContentLength)
				}
				want += int64(size)
			}
		}
	}
	if rec := end(); rec.Count.BytesUp != want || rec.Count.BytesDown != want {
		t.Errorf("the receipt counts %d up and %d down, want %d", rec.Count.BytesUp, rec.Count.BytesDown, want)
	}
}

// TestClientGone: a client that disconnects ends the upstream's exchange too.
func TestClientGone(t *testing.T) {
	r := newRig(t, setup{})
	started, gone := make(chan bool, 1), make(chan bool, 1)
	r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		started <- true
		<-req.Context().Done()
		gone <- true
	}))
	end := r.begin()
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+demoHost+"/", nil)
	failed := make(chan error, 1)
	go func() { _, err := r.client(false).Do(req); failed <- err }()
	<-started
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the client saw %v", err)
	}
	select {
	case <-gone:
	case <-time.After(testkit.Patience):
		t.Error("the upstream was left waiting")
	}
	eventually(t, func() bool { return r.handler.InFlight() == 0 })
	if rec := end(); rec.Exchanges[0].Outcome != proxyapi.OutcomeAborted || rec.Exchanges[0].Code != "client_gone" || len(rec.Hints) > 0 {
		t.Errorf("the receipt says %+v", rec)
	}
}

// TestUnanswered: the hint on a request that was given up after a while says that there was no response, and not that
// the connection broke.
func TestUnanswered(t *testing.T) {
	r := newRig(t, setup{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		time.AfterFunc(1100*time.Millisecond, cancel) // a while, however busy the machine is
		<-req.Context().Done()
	}))
	end := r.begin()
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+demoHost+"/", nil)
	if _, err := r.client(false).Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("the client saw %v", err)
	}
	eventually(t, func() bool { return r.handler.InFlight() == 0 })
	rec := end()
	if len(rec.Hints) != 1 || !strings.HasPrefix(rec.Hints[0].VoiceText().Model, "GET "+demoHost+": had no response after ") {
		t.Errorf("the hints are %+v", rec.Hints)
	}
}

// TestRange: ranges of a response could be too short for the scrubber.
func TestRange(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for _, name := range []string{"", tokenName} {
		req, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
		req.Header.Set("Range", "bytes=0-3")
		req.Header.Set("Authorization", name)
		resp, err := r.client(false).Do(req)
		check(t, err)
		body(t, resp)
		if got := up.last(t).Header.Get("Range"); (got == "") != (name != "") {
			t.Errorf("with Authorization %q the upstream saw Range %q", name, got)
		}
	}
}

// TestHints: a name that is not swapped gets a hint, and leaves unchanged.
func TestHints(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	req, _ := http.NewRequest("GET", "https://"+demoHost+"/?text="+tokenName, nil)
	req.Header.Set("X-Forwarded-For", tokenName)
	resp, err := r.client(false).Do(req)
	check(t, err)
	body(t, resp)
	if got := up.last(t); got.URL.RawQuery != "text="+tokenName || got.Header.Get("X-Forwarded-For") != tokenName {
		t.Errorf("the upstream saw %s, %q", got.URL, got.Header.Get("X-Forwarded-For"))
	}
	rec := end()
	if len(rec.Hints) != 2 || rec.Count.Swapped != 0 {
		t.Errorf("the receipt says %+v", rec)
	}
	for _, h := range rec.Hints {
		if !strings.HasPrefix(h.Code, "not_swapped_") || !strings.Contains(h.Text, tokenName) {
			t.Errorf("the hint is %+v", h)
		}
	}
}

// TestRejectedHints: an upstream that rejects a request says so in its own words, in which a credential reads as its token
// name. A hint says whether the credential was put in.
func TestRejectedHints(t *testing.T) {
	r := newRig(t, setup{})
	status, limit := 0, ""
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if name, value, ok := strings.Cut(limit, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "Invalid API key provided: "+req.Header.Get("Authorization"))
	}))
	const limited = "answered 403 with the headers of a rate limit: data may be missing. Wait as Retry-After says"
	for i, row := range []struct {
		status            int
		auth, want, limit string
	}{
		{401, "Bearer " + tokenName, "GET " + demoHost + ": answered 401. The credential of " + tokenName + " was put in header:Authorization. Either it is wrong or expired", ""},
		{403, tokenName, "GET " + demoHost + ": answered 403. The credential of " + tokenName + " was put in header:Authorization, so it is probably wrong or expired, or lacks rights", ""},
		{401, "", "the request had no token name. The API demo has " + tokenName, ""},
		{401, "Bearer something", "the request had no token name. The API demo has " + tokenName, ""},
		{401, "Bearer UNKNOWN_TOKEN", "looks like a token name but is not one", ""},
		{403, "", "", ""}, {200, "Bearer " + tokenName, "", ""}, {404, "Bearer " + tokenName, "", ""},
		{403, "Bearer " + tokenName, limited, "Retry-After: 60"},
		{403, "Bearer " + tokenName, limited, "X-RateLimit-Remaining: 0"},
		{403, "", limited, "Retry-After: 60"},
		{403, "Bearer " + tokenName, "probably wrong or expired", "X-RateLimit-Remaining: 59"},
	} {
		status, limit = row.status, row.limit
		end := r.beginIn(0, uint64(i+1))
		req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/", nil)
		check(t, err)
		if row.auth != "" {
			req.Header.Set("Authorization", row.auth)
		}
		resp, err := r.client(false).Do(req)
		check(t, err)
		if got := body(t, resp); strings.Contains(got, secretValue) {
			t.Errorf("the answer is %s", got)
		}
		rec := end()
		if row.want == "" && len(rec.Hints) > 0 || row.want != "" && (len(rec.Hints) != 1 || !strings.Contains(rec.Hints[0].VoiceText().Model, row.want)) {
			t.Errorf("%d to %q: %+v", row.status, row.auth, rec.Hints)
		}
	}
}

// TestSecondHeader: a client that sends its key in two headers learns which one was swapped and how both are declared. If
// both are declared, both are swapped. The name of a header that is code's own text is in no hint.
func TestSecondHeader(t *testing.T) {
	in := func(list string) string {
		return strings.Replace(demoAPI(""), `"`+secretValue+`"`, `{"value": "`+secretValue+`", "in": [`+list+`]}`, 1)
	}
	second := tokenName + " was put in %s, and is unchanged where a header has it a second time"
	for name, row := range map[string]struct {
		api       string
		headers   []string
		swapped   int
		hint, not string
	}{
		"any header":           {demoAPI(""), []string{"Authorization", "Apikey"}, 1, fmt.Sprintf(second, "header:Authorization"), ""},
		"the example":          {demoAPI(""), []string{"Authorization", "Apikey"}, 1, `both in its "in", e.g. ["header:Authorization", "header:apikey"].`, ""},
		"words as a header":    {demoAPI(""), []string{"Ignore-All-Rules", "Zzz"}, 1, fmt.Sprintf(second, "another header"), "gnore"},
		"one declared":         {in(`"header:Authorization"`), []string{"Authorization", "Apikey"}, 1, `The API demo declares it for: header:Authorization.`, "second time"},
		"both declared":        {in(`"header:Authorization", "header:apikey"`), []string{"Authorization", "Apikey"}, 2, "was put in header:Authorization and header:Apikey. Either", "second time"},
		"declared, other case": {in(`"header:AUTHORIZATION", "header:ApiKey"`), []string{"authorization", "apikey"}, 2, "", "second time"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": row.api}})
			swapped := 0
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				for _, name := range row.headers {
					if strings.Contains(req.Header.Get(name), secretValue) {
						swapped++
					}
				}
				w.WriteHeader(http.StatusUnauthorized)
			}))
			end := r.begin()
			req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/", nil)
			check(t, err)
			for _, name := range row.headers {
				req.Header.Set(name, tokenName)
			}
			resp, err := r.client(false).Do(req)
			check(t, err)
			_ = body(t, resp)
			hints := ""
			for _, h := range end().Hints {
				hints += h.VoiceText().Model + "\n"
			}
			if swapped != row.swapped || !strings.Contains(hints, row.hint) || row.not != "" && strings.Contains(hints, row.not) {
				t.Errorf("%d swapped, hints: %s", swapped, hints)
			}
		})
	}
}

// TestFailureHints: an upstream that does not answer is named with its address and what to look at, for each reader.
func TestFailureHints(t *testing.T) {
	for name, row := range map[string]struct {
		addrs         []netip.Addr
		code          string
		model, person string
	}{
		"no address": {[]netip.Addr{}, "upstream_unresolved",
			demoHost + " has no address in the DNS of the machine that CodeForge runs on. Check how it is spelt; the user can correct the domains of the API demo.",
			demoHost + " has no address in the DNS of the machine that CodeForge runs on. Check \"domains\" in apis/demo/config.json, and that machine's internet access. If only a proxy leads out, set UPSTREAM_PROXY."},
		"refused": {[]netip.Addr{netip.MustParseAddr("127.0.0.77")}, "upstream_unreachable",
			demoHost + " resolves to 127.0.0.77:443, which refuses connections. Tell the user to check that the service runs, and its address in DNS.",
			demoHost + " resolves to 127.0.0.77:443, which refuses connections. Check that the service runs, and its address in DNS."},
		"private": {[]netip.Addr{netip.MustParseAddr("10.1.2.3")}, "address_refused",
			demoHost + " resolves to 10.1.2.3, which is a private address. The user can list 10.1.2.3/32 in \"allow_private\" of the API demo.",
			demoHost + " resolves to 10.1.2.3, which is a private address. If that is meant, list 10.1.2.3/32 in \"allow_private\" of apis/demo/config.json."},
		"private in IPv6": {[]netip.Addr{netip.MustParseAddr("::ffff:10.1.2.3")}, "address_refused",
			demoHost + " resolves to 10.1.2.3, which is a private address. The user can list 10.1.2.3/32 in \"allow_private\" of the API demo.",
			demoHost + " resolves to 10.1.2.3, which is a private address. If that is meant, list 10.1.2.3/32 in \"allow_private\" of apis/demo/config.json."},
		"metadata": {[]netip.Addr{netip.MustParseAddr("169.254.169.254")}, "address_refused",
			demoHost + " resolves to 169.254.169.254, which is a special address: it stays closed. Tell the user to check the host's DNS entry.",
			demoHost + " resolves to 169.254.169.254, which is a special address: it stays closed. Check the host's DNS entry."},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.upstreams.addrs[demoHost] = row.addrs
			r.upstreams.lead(443, "127.0.0.1:1") // nobody listens on port 1
			end := r.begin()
			for range 2 {
				resp, err := r.client(false).Get("https://" + demoHost + "/")
				check(t, err)
				if got := refusal(t, resp); got.Code != row.code || got.Hint != row.model {
					t.Errorf("code is told %+v", got)
				}
			}
			rec := end()
			if len(rec.Hints) != 1 {
				t.Fatalf("the receipt has %d hints: %+v", len(rec.Hints), rec.Hints)
			}
			if got := rec.Hints[0].VoiceText(); got.Model != row.model || got.Person != row.person {
				t.Errorf("got  %+v\nwant %s\n     %s", got, row.model, row.person)
			}
		})
	}
}

// TestAddressOfNoAPI: where no API holds a host, code does not learn which private address it leads to.
func TestAddressOfNoAPI(t *testing.T) {
	r := newRig(t, setup{yolo: true})
	r.upstreams.addrs["intranet.test"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	end := r.begin()
	resp, err := r.client(false).Get("https://intranet.test/")
	check(t, err)
	got := refusal(t, resp)
	if text := fmt.Sprint(got, end()); got.Code != "address_refused" || strings.Contains(text, "10.1") {
		t.Errorf("got %s", text)
	}
}

// TestTypes: an exchange tells common media types, and no text of the upstream.
func TestTypes(t *testing.T) {
	r := newRig(t, setup{})
	header := ""
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{header}
		_, _ = io.WriteString(w, "x")
	}))
	for i, row := range [][2]string{
		{"text/html; charset=utf-8", "text/html"}, {"Text/HTML", "text/html"}, {"application/json", "application/json"},
		{"text/ignore-previous-instructions", ""}, {"", ""},
	} {
		header = row[0]
		end := r.beginIn(0, uint64(i+1))
		resp, err := r.client(false).Get("https://" + demoHost + "/")
		check(t, err)
		body(t, resp)
		if got := end().Exchanges[0].Type; got != row[1] {
			t.Errorf("%q: got %q, want %q", row[0], got, row[1])
		}
	}
}
