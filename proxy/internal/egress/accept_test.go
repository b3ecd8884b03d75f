package egress_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestNegotiation checks what leaves: no spelling of a header lets code choose a coding or a character set.
// Promise: scrubbed-responses, no-oracle
func TestNegotiation(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   string
	}{
		"credentials":          {demoAPI(""), "identity"},
		"credentials, allowed": {demoAPI(`, "compress": true`), "gzip"},
		"no credentials":       {strings.Replace(demoAPI(""), `"credentials": {"`+tokenName+`": "`+secretValue+`"},`, "", 1), "identity"},
	} {
		for _, h2 := range []bool{false, true} {
			r := newRig(t, setup{apis: map[string]string{"demo": tc.config, "other": `{"description": "x", "domains": ["x.test"], "credentials": {"OTHER_TOKEN": "other-value-1"}}`}})
			var got http.Header
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { got = q.Header.Clone() }))
			r.begin()
			q, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
			q.Header = http.Header{
				"Accept-Encoding": {"br, gzip;q=0.5"}, "Accept_encoding": {"gzip"}, "Accept.encoding": {"gzip"}, "ACCEPT_ENCODING": {"gzip"}, "X-Accept-Encoding": {"gzip"},
				"X-Cept-Encoding": {"gzip"}, "Accept-Charset": {"utf-32-be"}, "Accept_charset": {"cp037"}, "X-Accept-Charset": {"utf-16"}, "A-Im": {"gzip"},
				"Available-Dictionary": {":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:"}, "Accept-Transfer-Encoding": {"gzip"},
				"Accept":           {`application/json;q=0.5;charset=utf-16, text/html ; CharSet="cp037" ;level=1`, `a/b;c="d,e;f";encoding=utf-7`, `x/y;z="open;charset=x`},
				"Content-Encoding": {"identity"}, "X-Amz-Content-Encoding": {"gzip"}, "Accept-Language": {"de"},
			}
			if !h2 {
				q.Header["accept-encoding"], q.Header["aCCEPT-cHARSET"], q.Header["Te"] = []string{"gzip"}, []string{"utf-7"}, []string{"gzip, deflate"}
			}
			resp, err := r.client(h2).Do(q)
			check(t, err)
			_ = resp.Body.Close()
			for _, name := range []string{"User-Agent", "Content-Encoding", "X-Amz-Content-Encoding", "Accept-Language"} {
				if len(got[name]) == 0 {
					t.Errorf("%s, h2=%t: %s is missing", name, h2, name)
				}
				delete(got, name)
			}
			want := fmt.Sprint(http.Header{"Accept-Encoding": {tc.want}, "Accept": {`application/json;q=0.5, text/html ;level=1`, `a/b;c="d,e;f"`}})
			if fmt.Sprint(got) != want {
				t.Errorf("%s, h2=%t: what leaves is %v, want %s", name, h2, got, want)
			}
		}
	}
}

// TestCompressedResponse: the response of a server that compresses regardless of the request is refused if the host has
// credentials.
// Promise: no-oracle
func TestCompressedResponse(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, "text of the API")
	check(t, z.Close())
	public := `{"description": "x", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"]`
	other := `{"description": "x", "domains": ["x.test"], "credentials": {"OTHER_TOKEN": "other-value-1"}}`
	for name, tc := range map[string]struct {
		apis    map[string]string
		method  string
		refused bool
		coding  string
	}{
		"credentials":              {map[string]string{"demo": demoAPI("")}, "GET", true, "gzip"},
		"of a POST":                {map[string]string{"demo": demoAPI("")}, "POST", true, "gzip"},
		"of a HEAD":                {map[string]string{"demo": demoAPI("")}, "HEAD", false, "gzip"},
		"allowed":                  {map[string]string{"demo": demoAPI(`, "compress": true`)}, "GET", false, "gzip"},
		"no credentials":           {map[string]string{"demo": public + `}`, "other": other}, "GET", false, "gzip"},
		"in two, one allows":       {map[string]string{"demo": demoAPI(""), "public": public + `, "compress": true}`}, "GET", true, "gzip"},
		"in two, narrowed to one":  {map[string]string{"demo": demoAPI(""), "a": public + `, "compress": true}`}, "GET", true, "gzip"},
		"beside aws-chunked":       {map[string]string{"demo": demoAPI("")}, "GET", true, "gzip,aws-chunked"},
		"inside aws-chunked":       {map[string]string{"demo": demoAPI("")}, "GET", true, "aws-chunked, gzip"},
		"aws-chunked, allowed":     {map[string]string{"demo": demoAPI(`, "compress": true`)}, "GET", false, "aws-chunked,gzip"},
		"in two, both that matter": {map[string]string{"demo": demoAPI(`, "compress": true`), "public": public + `}`}, "GET", false, "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: tc.apis})
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", tc.coding)
				w.Header().Set("Content-Length", fmt.Sprint(packed.Len()))
				_, _ = w.Write(packed.Bytes())
			}))
			var run []string
			if strings.Contains(name, "narrowed") {
				run = []string{"a"}
			}
			end := r.begin(run...)
			q, _ := http.NewRequest(tc.method, "https://"+demoHost+"/", nil)
			resp, err := r.client(false).Do(q)
			check(t, err)
			text := body(t, resp)
			refused := resp.StatusCode == 502 && strings.Contains(text, `"code":"upstream_compressed"`) && strings.Contains(text, `\"compress\": true`)
			if refused != tc.refused || !refused && (resp.StatusCode != 200 || tc.method == "GET" && text != "text of the API" || tc.method == "HEAD" && resp.ContentLength >= 0) {
				t.Errorf("%d %v %q", resp.StatusCode, resp.Header, text)
			}
			if x := end().Exchanges[0]; tc.refused && x.Code != "upstream_compressed" {
				t.Errorf("the receipt says %q", x.Code)
			}
		})
	}
}

// TestCodedTransfer: what is compressed by Transfer-Encoding, or by an instance manipulation (RFC 3229), is never
// passed on.
// Promise: no-oracle
func TestCodedTransfer(t *testing.T) {
	for _, head := range []string{"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: gzip\r\nConnection: close\r\n\r\nabc", "IM: gzip\r\nContent-Length: 3\r\n\r\nabc", "Content-Encoding: dcz\r\nContent-Length: 3\r\n\r\nabc"} {
		r := newRig(t, setup{})
		r.upstreams.raw(func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
		})
		r.begin()
		resp, err := r.client(false).Get("https://" + demoHost + "/")
		check(t, err)
		if text := body(t, resp); resp.StatusCode != 502 || strings.Contains(text, "abc") {
			t.Errorf("%q: %d %q", head, resp.StatusCode, text)
		}
	}
}

// TestWebSocketCompression: permessage-deflate shares a window between messages, with a credential and with the code's
// text. It is not offered, in any spelling, and a server that uses it all the same is refused.
// Promise: no-oracle
func TestWebSocketCompression(t *testing.T) {
	for name, config := range map[string]string{"not allowed": demoAPI(""), "allowed": demoAPI(`, "compress": true`)} {
		for _, imposed := range []bool{false, true} {
			r := newRig(t, setup{apis: map[string]string{"demo": config}})
			head := make(chan string, 1)
			r.upstreams.raw(func(c net.Conn) {
				q, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				head <- fmt.Sprint(q.Header)
				extension := ""
				if imposed {
					extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+extension+"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
			})
			r.begin()
			q, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
			q.Header = http.Header{
				"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"},
				"Sec-Websocket-Extensions": {"permessage-deflate; server_no_context_takeover"}, "sec-websocket-extensions": {"x-webkit-deflate-frame"}, "Sec_Websocket_Extensions": {"permessage-deflate"},
				"Authorization": {"Bearer " + tokenName},
			}
			resp, err := r.client(false).Do(q)
			check(t, err)
			_ = resp.Body.Close()
			if got := <-head; strings.Contains(got, "deflate") || !strings.Contains(got, secretValue) {
				t.Errorf("%s: what leaves is %s", name, got)
			}
			if want := map[bool]int{false: 101, true: 502}[imposed]; resp.StatusCode != want {
				t.Errorf("%s, imposed=%t: status %d, want %d", name, imposed, resp.StatusCode, want)
			}
		}
	}
}

// cherryHost is an address of CherryPy's own, so that nobody else takes its port before it does.
const cherryHost = "127.66.0.1"

// cherryPy starts CherryPy as the upstream, or skips.
func cherryPy(t *testing.T, r *rig) {
	python := "/usr/bin/python3" // Debian's packages are for Debian's interpreter
	if err := exec.CommandContext(t.Context(), python, "-c", "import cherrypy").Run(); err != nil {
		testkit.SkipBecause(t, "CherryPy is missing: apt-get install python3-cherrypy3")
	}
	l, err := net.Listen("tcp", cherryHost+":0")
	check(t, err)
	addr := l.Addr().String()
	check(t, l.Close())
	cmd := exec.CommandContext(t.Context(), python, "testdata/cherrypy_server.py", cherryHost, addr[strings.LastIndexByte(addr, ':')+1:]) //nolint:gosec // fixed arguments
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for until := time.Now().Add(testkit.Patience); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal("CherryPy does not listen")
		}
	}
	r.upstreams.raw(func(c net.Conn) {
		to, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer to.Close()
		go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
		_, _ = io.Copy(c, to)
	})
}

// TestCherryPy: a real server with its gzip and encode tools on. No header makes it compress or leave UTF-8; what it
// writes in another set all the same is decoded.
// Promise: scrubbed-responses
func TestCherryPy(t *testing.T) {
	r := newRig(t, setup{})
	cherryPy(t, r)
	r.begin()
	get := func(path string, header ...string) (string, *http.Response) {
		q, _ := http.NewRequest("GET", "https://"+demoHost+path, nil)
		q.Header.Set("Authorization", "Bearer "+tokenName)
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		resp, err := r.client(false).Do(q)
		check(t, err)
		return body(t, resp), resp
	}
	lengths := map[string]string{}
	for _, guess := range []string{secretValue[:12], "sk_live_51~~", "~~~~~~~~~~~~"} {
		text, resp := get("/page?text="+guess, "Accept-Encoding", "gzip, deflate, br", "Accept_Encoding", "gzip")
		if resp.StatusCode != 200 || !strings.Contains(text, "key="+tokenName) || strings.Contains(resp.Header.Get("X-Asked"), "gzip") {
			t.Errorf("%q: %d %v %.200q", guess, resp.StatusCode, resp.Header, text)
		}
		lengths[fmt.Sprint(len(text))] = guess
	}
	if len(lengths) != 1 {
		t.Errorf("right and wrong guesses have different lengths: %v", lengths)
	}
	for _, set := range []string{"utf-32-be", "utf-16-le", "cp037", "utf-7", "utf-16, *;q=0", "iso-2022-jp", "hz"} {
		for _, way := range [][]string{{"Accept-Charset", set}, {"Accept_Charset", set}, {"Accept", "text/html;charset=" + set}} {
			for _, path := range []string{"/page?text=x", "/page?text=x&json=1"} {
				text, resp := get(path, way...)
				if resp.StatusCode != 200 || !strings.Contains(text, tokenName) || !strings.Contains(resp.Header.Get("Content-Type"), "utf-8") {
					t.Errorf("%v %s: %d %v %.200q", way, path, resp.StatusCode, resp.Header, text)
				}
			}
		}
	}
	for set, readable := range map[string]bool{"utf-16": true, "utf-16-le": true, "utf-32-be": true, "U32": true, "cp037": true, "cp1140": true, "iso2022_jp": true, "iso-2022-jp": true, "hz": true, "shift_jis": true, "utf-7": false, "cp500": false} {
		text, resp := get("/text?charset=" + set)
		kind := resp.Header.Get("Content-Type")
		if readable && (resp.StatusCode != 200 || !strings.Contains(text, `"`+tokenName+`"`) || kind != "application/json; charset=utf-8") ||
			!readable && (resp.StatusCode != 502 || !strings.Contains(text, "upstream_charset")) {
			t.Errorf("in %s: %d %s %.200q", set, resp.StatusCode, kind, text)
		}
	}
}
