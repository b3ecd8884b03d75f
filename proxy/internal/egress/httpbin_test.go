package egress_test

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// call is one request of the differential test, and what the proxy intentionally changes in its response.
type call struct {
	method, path string
	header       []string
	body         string
	// without are headers that the proxy removes or replaces: see the tables above calls.
	without []string
	// loose bodies hold times or random bytes: only their length or shape is compared.
	loose bool
}

// What the proxy intentionally changes.
var (
	// A decoded body has no encoding, and its own length and hash.
	decoded = []string{"Content-Encoding", "Content-Length", "Vary"}
	// Ranges are not offered, because a credential could be read in parts.
	ranges = []string{"Accept-Ranges"}
	// A body of more than 256 KiB streams: its length after scrubbing is not known when its head leaves.
	streamed = []string{"Content-Length"}
)

func calls() []call {
	list := []call{
		{method: "POST", path: "/post?a=1&b=2", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, body: "x=1&y=two"},
		{method: "POST", path: "/post", header: []string{"Content-Type", "application/json"}, body: `{"a": [1, 2, {"b": null}]}`},
		{method: "PUT", path: "/put", body: strings.Repeat("line\n", 5000)},
		{method: "PATCH", path: "/patch", body: "p"},
		{method: "DELETE", path: "/delete", body: "d"},
		{method: "DELETE", path: "/delete"},
		{method: "HEAD", path: "/head"},
		{method: "HEAD", path: "/bytes/1000?seed=1"},
		{method: "OPTIONS", path: "/anything"},
		{method: "POST", path: "/upload", body: strings.Repeat("u", 300<<10)},
		{method: "POST", path: "/anything/with/path%2Fescaped/%C3%A4?q=%20+x&empty=&flag", body: "any"},
		{method: "GET", path: "/gzip", without: decoded},
		{method: "GET", path: "/deflate", without: decoded},
		{method: "GET", path: "/bytes/300000?seed=7", without: streamed},
		{method: "GET", path: "/range/1024", without: ranges},
		{method: "GET", path: "/range/1024", header: []string{"Range", "bytes=10-99"}, without: ranges},
		{method: "GET", path: "/uuid", loose: true},
		{method: "GET", path: "/sse?count=3&duration=100ms", loose: true},
		{method: "GET", path: "/cache", header: []string{"If-None-Match", `"x"`}, without: []string{"Last-Modified"}},
		{method: "GET", path: "/cache", loose: true, without: []string{"Last-Modified"}},
		{method: "GET", path: "/digest-auth/auth/u/p", loose: true, without: []string{"Www-Authenticate"}},
		{method: "GET", path: "/basic-auth/u/p", header: []string{"Authorization", "Basic dTpw"}},
		{method: "GET", path: "/bearer", header: []string{"Authorization", "Bearer some-other-token"}},
		{method: "GET", path: "/cookies", header: []string{"Cookie", "a=b; c=d"}},
		{method: "GET", path: "/etag/abc", header: []string{"If-None-Match", `"abc"`}},
		{method: "GET", path: "/etag/abc", header: []string{"If-Match", `"zzz"`}},
		{method: "GET", path: "/status/100", loose: true, without: []string{"Content-Length"}},
	}
	for _, path := range []string{
		"/", "/encoding/utf8", "/forms/post", "/get?x=1&x=2", "/absolute-redirect/2", "/anything", "/base64/aGVsbG8=",
		"/base64/decode/aGVsbG8=", "/basic-auth/u/p", "/bearer", "/bytes/0", "/bytes/1?seed=1", "/bytes/65536?seed=1",
		"/cache/60", "/cookies", "/cookies/set?a=b", "/cookies/delete?a", "/delay/0.05", "/deny",
		"/drip?duration=100ms&numbytes=5", "/dump/request?a=b", "/env", "/etag/abc", "/headers", "/hidden-basic-auth/u/p",
		"/hostname", "/html", "/image/png", "/image/svg", "/image/webp", "/image/jpeg", "/ip", "/json", "/jsonl", "/links/3",
		"/links/3/1", "/redirect-to?url=https://evil.test/x", "/redirect/2", "/relative-redirect/2",
		"/response-headers?X-A=1&X-A=2&X-B=%20c", "/robots.txt", "/status/200", "/status/204", "/status/301", "/status/304",
		"/status/400", "/status/401", "/status/404", "/status/418", "/status/500", "/status/503",
		"/stream-bytes/5000?seed=3&chunk_size=100", "/stream/5", "/trailers?X-T=1", "/unstable?failure_rate=0", "/user-agent",
		"/version", "/xml", "/brotli", "/no/such/path",
	} {
		list = append(list, call{method: "GET", path: path})
	}
	return list
}

// answer is a response as the test compares it.
type answer struct {
	Status  int
	Header  map[string][]string
	Trailer map[string][]string
	Body    string
}

// TestHTTPBin sends every request directly and through the proxy: the same status, headers, trailers and bytes come
// back, apart from what the table names.
func TestHTTPBin(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "compress": true`)}}) // some paths compress in any case
	bin := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: startServer(t, "./e2e/cmd/httpbin")})
	bin.FlushInterval = -1
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.Header.Del("Connection") // it shows what it was sent; on the proxy's connections a body is the last thing
		bin.ServeHTTP(w, q)
	}))
	r.begin()
	direct := r.upstreams.client()
	for _, h2 := range []bool{false, true} {
		client := r.client(h2)
		for _, c := range calls() {
			t.Run(fmt.Sprintf("h2=%t %s %s %v", h2, c.method, c.path, c.header), func(t *testing.T) {
				want, got := c.send(t, direct), c.send(t, client)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the proxy changes (-direct +proxy):\n%s", diff)
				}
			})
		}
	}
}

func (c call) send(t *testing.T, client *http.Client) answer {
	t.Helper()
	var up io.Reader
	if c.body != "" {
		up = strings.NewReader(c.body)
	}
	req, err := http.NewRequest(c.method, "https://"+demoHost+c.path, up)
	check(t, err)
	req.Header.Set("User-Agent", "CodeForge/test") // the proxy's own
	req.Header.Set("Accept-Encoding", "identity")  // what it asks for when a client takes nothing else
	for i := 0; i+1 < len(c.header); i += 2 {
		req.Header.Set(c.header[i], c.header[i+1])
	}
	resp, err := client.Do(req)
	check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(decode(t, resp))
	check(t, err)
	a := answer{Status: resp.StatusCode, Header: resp.Header, Trailer: resp.Trailer, Body: string(text)}
	if len(a.Trailer) == 0 {
		a.Trailer = nil
	}
	for _, name := range append([]string{"Date", "Trailer"}, c.without...) {
		delete(a.Header, name)
	}
	// Two answers may be made in two different seconds.
	if at, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil && time.Since(at).Abs() < time.Minute {
		a.Header["Last-Modified"] = []string{"now"}
	}
	if c.loose {
		a.Body = regexp.MustCompile(`[0-9a-f]+`).ReplaceAllString(a.Body, "#")
		delete(a.Header, "Etag")
		for name := range a.Trailer {
			a.Trailer[name] = nil
		}
	}
	return a
}

// decode removes the encoding that the proxy has already removed.
func decode(t *testing.T, resp *http.Response) io.Reader {
	switch resp.Header.Get("Content-Encoding") {
	case "gzip":
		z, err := gzip.NewReader(resp.Body)
		check(t, err)
		return z
	case "deflate":
		z, err := zlib.NewReader(resp.Body)
		check(t, err)
		return z
	}
	return resp.Body
}
