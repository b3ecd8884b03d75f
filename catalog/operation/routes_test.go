package operation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

func routes() *Routes {
	r := NewRoutes()
	h := Head{Server: "https://API.shop.test/v1"}
	for _, key := range []string{
		"GET /refunds", "POST /refunds", "GET /refunds/{id}", "GET /files/{id}/thumbnail.{ext}", "POST /calls/{Sid}.json", "PUT /{a}:{verb}",
		"GET /raw/{path+}", "DELETE /x/{a}/y", "GET /x/b/z", "POST /?Action=Create", "GET /slash/", "DELETE /users/{id}/avatar",
		"POST /ops/{id}:cancel", "GET /map/points;at={x}", "GET /pages/{title}",
	} {
		m, p, _ := strings.Cut(key, " ")
		add(r, h, Line{Method: m, Path: p})
	}
	add(r, h, Line{Method: "GET", Path: "/other", Server: "https://up.shop.test"})
	add(r, h, Line{Method: "GET", Path: "/dev", Server: "https://up.shop.test:8443"})
	return r
}

func add(r *Routes, h Head, l Line) {
	if err := r.AddOperation(h, l); err != nil {
		panic(err)
	}
}

// TestRoutesAllow: what is an operation of the document passes, and nothing that a server could take for something else.
// Promise: documented-operations
func TestRoutesAllow(t *testing.T) {
	r := routes()
	for _, ok := range []string{
		"GET /v1/refunds", "HEAD /v1/refunds", "POST /v1/refunds", "GET /v1/refunds/re_1", "GET /v1/refunds/a%20b", "GET /v1/refunds/..a", "GET /v1/refunds/a;b",
		"GET /v1/files/1/thumbnail.png", "POST /v1/calls/CA1.json", "PUT /v1/a:b", "GET /v1/raw/a/b/c", "DELETE /v1/x/b/y", "GET /v1/x/b/z", "GET /v1/slash/",
		"GET /v1/pages/What%3F", "GET /v1/pages/C%23", "GET /v1/raw/a%3Fb/c", "GET /v1/map/points;at=1", "POST /v1/ops/7:cancel", "DELETE /v1/users/5/avatar",
	} {
		m, p, _ := strings.Cut(ok, " ")
		if !r.Allows("api.shop.test", m, p) {
			t.Errorf("%s is refused", ok)
		}
	}
	for _, bad := range []string{
		"DELETE /v1/refunds", "GET /v1/refund", "GET /v1/refunds/", "GET /v1/Refunds", "GET /refunds", "GET /v1/refunds/1/2", "GET v1/refunds", "GET ",
		"GET /v1//refunds", "GET //v1/refunds", "GET /v1/refunds/..", "GET /v1/refunds/.", "GET /v1/refunds/%2e%2e", "GET /v1/refunds/%252e%252e", "GET /v1/refunds/%25252e",
		"GET /v1/refunds/a%2fb", "GET /v1/refunds/a%2Fb", "GET /v1/refunds/a%252fb", "GET /v1/refunds/a%5cb", "GET /v1/refunds/..;x", "GET /v1/refunds/;x", "GET /v1/refunds/a%00", "GET /v1/refunds/%",
		"GET /v1/refunds/a%0ab", "GET /v1/refunds/. .", "GET /v1/%72efunds", "GET /v1/raw/", "GET /v1/raw", "GET /v1/raw/a/../b", "GET /v1/raw/a/%2e%2e/b", "GET /v1/raw//a",
		"POST /v1/calls/.json", "PUT /v1/:b", "PUT /v1/a:", "GET /v1/files/1/thumbnail.", "DELETE /v1/x/b/z", "POST /v1/", "POST /v1/?Action=Create", "get /v1/refunds", "OPTIONS /v1/refunds",
		"GET /v1/" + strings.Repeat("a/", 100),
		// What is left of it to a server that decodes and then looks for a query, or leaves out what is behind a semicolon.
		"DELETE /v1/users/5%3F/avatar", "DELETE /v1/users/5%23/avatar", "DELETE /v1/users/5%253f/avatar", "GET /v1/pages/%3Fx", "GET /v1/pages/a%3Fb/c",
		"POST /v1/ops/7;:cancel", "POST /v1/ops/7%3b:cancel", "POST /v1/ops/7%253B:cancel", "POST /v1/calls/CA1;.json", "POST /v1/calls/CA1%3F.json", "PUT /v1/a:b;c", "GET /v1/map/points;at=1;x",
		"GET /v1/refunds/..%c0%afx", "GET /v1/refunds/%ff",
	} {
		m, p, _ := strings.Cut(bad, " ")
		if r.Allows("api.shop.test", m, p) {
			t.Errorf("%s is allowed", bad)
		}
	}
	if !r.Allows("up.shop.test", "GET", "/other") || r.Allows("up.shop.test", "GET", "/v1/refunds") || r.Allows("api.shop.test", "GET", "/v1/other") || r.Allows("evil.test", "GET", "/v1/refunds") {
		t.Error("an operation is allowed at another host than its own")
	}
	if !r.Allows("up.shop.test:8443", "GET", "/dev") || r.Allows("up.shop.test", "GET", "/dev") || r.Allows("up.shop.test:8443", "GET", "/other") {
		t.Error("an operation is allowed at another port than its own")
	}
	if (*Routes)(nil).Allows("api.shop.test", "GET", "/v1/refunds") {
		t.Error("no routes allow something")
	}
}

func TestNearest(t *testing.T) {
	for asked, want := range map[string]string{
		"GET /v1/refund": "GET /v1/refunds", "DELETE /v1/refunds": "GET /v1/refunds", "GET /v1/refund/re_1": "GET /v1/refunds/{id}",
		"POST /v1/refunds/": "POST /v1/refunds", "GET /v2/nothing/of/the/kind": "", "GET /refunds": "GET /v1/refunds", "GET /v1/zebra": "", "GET /v1/refunds/1/2": "GET /v1/refunds/{id}",
	} {
		m, p, _ := strings.Cut(asked, " ")
		if got := routes().NearestOperation(m, p); got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
	for _, c := range []struct {
		template, path string
		want           bool
	}{
		{"/v1/refunds", "/v1/refunds", true}, {"/v1/refunds/{id}", "/v1/refunds/1", true}, {"/v1/refunds/{id}", "/v1/refunds", false},
		{"/a/{b}.json", "/a/x.json", true}, {"/a/{b+}", "/a/b/c", true}, {"/a", "/a/b", false},
	} {
		if got := MatchesTemplate(c.template, c.path); got != c.want {
			t.Errorf("%s %s: %v", c.template, c.path, got)
		}
	}
}

// TestRoutesBounds: no document makes the proxy hold many times its size, or work long for it.
// Promise: documented-operations
func TestRoutesBounds(t *testing.T) {
	h := Head{Server: "https://a.test"}
	r := NewRoutes()
	add(r, h, Line{Method: "GET", Path: "/a" + strings.Repeat("/a", maxSegments)})
	if r.size != 0 {
		t.Errorf("%d routes for a path that no request can have", r.size)
	}
	for range 1000 {
		add(r, h, Line{Method: "GET", Path: "/x/{id}"})
	}
	if n := len(r.hosts["a.test"].literal["x"].patterns[0].next.methods); n != 2 || r.size != 3 {
		t.Errorf("an operation that is repeated has %d methods, and %d routes", n, r.size)
	}
	var err error
	for i := 0; err == nil && i < maxRoutes; i++ {
		err = r.AddOperation(h, Line{Method: "GET", Path: fmt.Sprintf("/%d", i) + strings.Repeat("/a", maxSegments-1)})
	}
	if err == nil || r.size > maxRoutes {
		t.Errorf("%d routes: %v", r.size, err)
	}
	r = NewRoutes()
	costtest.RequireBounded(t, "adding many patterns", 20*time.Second, func() {
		for i := range 100_000 {
			add(r, h, Line{Method: "GET", Path: fmt.Sprintf("/{x}%d", i)})
		}
	})
}

// TestNearestBounded: neither a document nor a request makes the search for the nearest operation long.
func TestNearestBounded(t *testing.T) {
	const segment = "abababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababab"
	keys := make([]string, 200_000)
	for i := range keys {
		keys[i] = "GET /" + strings.Repeat(fmt.Sprintf("/%d", i)+segment, 8)
	}
	key := func(i int) string { return keys[i] }
	costtest.RequireBounded(t, "a document made for it", 5*time.Second, func() {
		NearestKey("GET", strings.Repeat("/1"+segment[2:]+"c", 8), len(keys), key)
	})
	costtest.RequireBounded(t, "a path made for it", 5*time.Second, func() { NearestKey("GET", strings.Repeat("/x", 60), len(keys), key) })
}

// FuzzRoutes: a path that is allowed has as many segments as an operation, however a server decodes it.
func FuzzRoutes(f *testing.F) {
	r := routes()
	for _, s := range []string{"/v1/refunds/1", "/v1/raw/a/b", "/v1/refunds/%2e%2e/x", "/v1/x/..;/y", "/v1/a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, m := range []string{"GET", "PUT", "DELETE", "POST"} {
			if r.Allows("api.shop.test", m, path) && !strings.HasPrefix(path, "/v1/") {
				t.Errorf("%s %q", m, path)
			}
		}
		_ = r.NearestOperation("GET", path)
		if strings.Contains(path, "..") && strings.Contains(path+"/", "/../") && r.Allows("api.shop.test", "GET", path) {
			t.Error(path)
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	r := NewRoutes()
	for i := range 16000 {
		add(r, Head{Server: "https://a.test"}, Line{Method: "GET", Path: fmt.Sprintf("/v1/a%d/{id}/b%d/{x}", i%500, i)})
	}
	for b.Loop() {
		r.Allows("a.test", "GET", "/v1/a77/1/b577/zz")
	}
}
