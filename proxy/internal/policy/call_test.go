package policy

import (
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// asker is a run, server or installation that may use some APIs.
type asker struct {
	run
	kind ClientType
}

func (a asker) ClientType() ClientType { return a.kind }

func host(t testing.TB, name string) catalog.Host {
	t.Helper()
	h, err := catalog.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestKinds: which hosts each kind of asker reaches. What is of no kind reaches none.
// Promise: servers-reach-less, one-way-to-a-server
func TestKinds(t *testing.T) {
	apis := load(t, map[string]string{
		"server": `{"description": "d", "domains": ["server.test"], "mcp": {"command": ["x"]}}`,
		"other":  `{"description": "d", "domains": ["other.test", "*.wild.test"]}`,
		"remote": `{"description": "d", "mcp": {"url": "https://remote.test/mcp"}}`,
		"wide":   `{"description": "d", "domains": ["*.wide.test"], "mcp": {"url": "https://mcp.wide.test/mcp"}}`,
		"opened": `{"description": "d", "domains": ["opened.test"], "mcp": {"url": "https://opened.test/mcp"}}`,
	})
	registry := NewRegistry(&url.URL{Scheme: "https", Host: "Registry.test."}, nil)
	rules := Rules{Catalog: apis, YOLO: true, Registry: registry}
	reaches := map[ClientType]string{
		ClientNone: "", ClientRun: "server.test other.test a.wild.test api.wide.test opened.test yolo.test registry.test",
		ClientServer: "server.test", ClientInstall: "registry.test", ClientInstall + 1: "",
	}
	for kind, hosts := range reaches {
		who := asker{kind: kind}
		if kind == ClientServer {
			who.run = run{"server"}
		}
		for _, name := range []string{"server.test", "other.test", "a.wild.test", "remote.test", "mcp.wide.test", "api.wide.test", "opened.test",
			"yolo.test", "registry.test", "x.registry.test",
			proxyapi.ServersHost, "codeforge.internal", "x.codeforge.internal"} {
			v := rules.Decide(who, Request{Host: host(t, name), TLS: true, Methods: []string{"GET"}})
			want := strings.Contains(" "+hosts+" ", " "+name+" ") || kind == ClientRun && name == "x.registry.test"
			if v.Allow != want || !want && (v.Refusal.Code == "" || v.Status < 400) {
				t.Errorf("kind %d, %s: %+v", kind, name, v)
			}
		}
	}
	for name, known := range map[string]bool{proxyapi.ServersHost: true, "registry.test": true, "remote.test": true, "yolo.test": true,
		"codeforge.internal": false, "x.codeforge.internal": false, "x." + proxyapi.ServersHost: false} {
		if rules.CanResolve(nil, host(t, name)) != known {
			t.Errorf("%s is known: %t", name, !known)
		}
	}
	if none := (Rules{Catalog: apis}); none.CanResolve(nil, host(t, "registry.test")) || !none.CanResolve(nil, host(t, proxyapi.ServersHost)) {
		t.Error("a registry is known that there is not, or the servers' host is not")
	}
}

// TestRegistries: an installation reaches the registry of the settings and those that active packages name, by GET.
// Promise: servers-reach-less
func TestRegistries(t *testing.T) {
	apis := load(t, map[string]string{
		"packaged": `{"description": "d", "domains": ["other.test"], "mcp": {"package": "npm:x@1.0.0", "registry": "https://named.test/npm/"}}`,
		"second":   `{"description": "d", "mcp": {"package": "npm:y@1.0.0", "registry": "https://second.test"}}`,
		"off":      `{"description": "d", "active": false, "mcp": {"package": "npm:x@1.0.0", "registry": "https://off.test/npm/"}}`,
	})
	private := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	reaches := func(r *catalog.API, hosts string) {
		t.Helper()
		rules := Rules{Catalog: apis, Registry: r}
		for _, name := range []string{"set.test", "named.test", "second.test", "off.test", "x.named.test", "other.test"} {
			for _, method := range []string{"GET", "PUT"} {
				v := rules.Decide(asker{kind: ClientInstall}, Request{Host: host(t, name), TLS: true, Methods: []string{method}})
				if want := method == "GET" && strings.Contains(" "+hosts+" ", " "+name+" "); v.Allow != want {
					t.Errorf("%s %s: %+v", method, name, v)
				}
			}
		}
	}
	set := NewRegistry(&url.URL{Host: "set.test"}, private)
	reaches(MergeRegistries(set, private, apis), "set.test named.test second.test")
	reaches(set, "set.test") // it has stayed as it was
	alone := MergeRegistries(nil, private, apis)
	reaches(alone, "named.test second.test")
	if len(alone.AllowPrivate) != 1 || len(alone.Credentials) != 0 || alone.AllowHTTP {
		t.Errorf("%+v", alone)
	}
	if none := MergeRegistries(nil, nil, load(t, map[string]string{"other": `{"description": "d", "domains": ["other.test"]}`})); none != nil {
		t.Errorf("%+v", none)
	}
}

// TestPackageIndex: an installation reaches the package index of the packages for code, and the hosts of its files.
// Promise: servers-reach-less
func TestPackageIndex(t *testing.T) {
	dir := t.TempDir()
	text := `{"packages": ["pypi:x@1"], "index": "https://index.test/simple", "index_hosts": ["files.test"]}`
	if err := os.WriteFile(filepath.Join(dir, catalog.PackagesFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	apis, problems := catalog.Load(dir, catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rules := Rules{Catalog: apis, Registry: MergeRegistries(nil, nil, apis)}
	for name, want := range map[string]bool{"index.test": true, "files.test": true, "x.index.test": false, "other.test": false} {
		v := rules.Decide(asker{kind: ClientInstall}, Request{Host: host(t, name), TLS: true, Methods: []string{"GET"}})
		if v.Allow != want {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestInstallNeedsRegistry: without a registry an installation reaches nothing.
// Promise: servers-reach-less
func TestInstallNeedsRegistry(t *testing.T) {
	rules := Rules{Catalog: load(t, map[string]string{"other": `{"description": "d", "domains": ["other.test"]}`}), YOLO: true}
	for _, name := range []string{"other.test", "yolo.test", proxyapi.ServersHost} {
		if v := rules.Decide(asker{kind: ClientInstall}, Request{Host: host(t, name), TLS: true, Methods: []string{"GET"}}); v.Allow {
			t.Errorf("%s is open", name)
		}
	}
	if NewRegistry(nil, nil) != nil || NewRegistry(&url.URL{Host: "127.0.0.1"}, nil) != nil || NewRegistry(&url.URL{Host: "*.test"}, nil) != nil {
		t.Error("a registry without a host name")
	}
	private := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	if r := NewRegistry(&url.URL{Host: "r.test"}, private); len(r.AllowPrivate) != 1 || len(r.Credentials) != 0 || r.AllowHTTP {
		t.Errorf("%+v", r)
	}
}

// TestCallAliases: a server is found by its name, or by the only identifier that it can have; never by one of two.
// Promise: one-way-to-a-server
func TestCallAliases(t *testing.T) {
	mcp := `{"description": "d", "mcp": {"command": ["x"]}}`
	rules := Rules{Catalog: load(t, map[string]string{"a-b-c": mcp, "a_b-c": mcp, "x-y": mcp, "x_y": mcp, "one-more": mcp})}
	for path, want := range map[string]string{
		"/a-b-c/t": "/a-b-c/t", "/a_b-c/t": "/a_b-c/t", "/a_b_c/t": "", "/x_y/t": "/x_y/t", "/x-y/t": "/x-y/t", "/one_more/t": "/one-more/t",
		"/one-more": "/one-more", "/$stash/keys": "/$stash/keys", "/$other/keys": "",
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		v, got := rules.DecideCall(asker{kind: ClientRun}, Request{Host: host(t, proxyapi.ServersHost), TLS: true, Methods: []string{"POST"}}, u)
		if got != want || v.Allow != (want != "") {
			t.Errorf("%s: %q, %+v", path, got, v.Refusal)
		}
	}
	u, _ := url.Parse("/x-y/t")
	for _, q := range []Request{
		{Host: host(t, "x."+proxyapi.ServersHost), TLS: true, Methods: []string{"POST"}},
		{TLS: true, Methods: []string{"POST"}},
		{Host: host(t, proxyapi.ServersHost), Methods: []string{"POST"}},
		{Host: host(t, proxyapi.ServersHost), TLS: true},
		{Host: host(t, proxyapi.ServersHost), TLS: true, Methods: []string{"GET"}, Upgrade: "websocket"},
	} {
		if v, path := rules.DecideCall(asker{kind: ClientRun}, q, u); v.Allow || path != "" {
			t.Errorf("%+v is allowed", q)
		}
	}
	for _, kind := range []ClientType{ClientNone, ClientServer, ClientInstall} {
		q := Request{Host: host(t, proxyapi.ServersHost), TLS: true, Methods: []string{"POST"}}
		if v, _ := rules.DecideCall(asker{kind: kind}, q, u); v.Allow {
			t.Errorf("kind %d may call", kind)
		}
	}
}

// FuzzCallPath: a path that is let through names one server of the run in plain letters, and is read back as the same
// two segments by whoever splits it before or after it is unescaped.
// Promise: one-way-to-a-server
func FuzzCallPath(f *testing.F) {
	for _, s := range []string{"/server/tool", "/server/a%2Fb", "//server/x", "/server/%2e%2e", "/server%2f..", "/$stash/get", "/server/%00", "/server?x"} {
		f.Add(s)
	}
	rules := Rules{Catalog: load(f, map[string]string{"server": `{"description": "d", "mcp": {"command": ["x"]}}`})}
	h, _ := catalog.ParseHost(proxyapi.ServersHost)
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		v, path := rules.DecideCall(asker{kind: ClientRun}, Request{Host: h, TLS: true, Methods: []string{http.MethodPost}}, u)
		if !v.Allow {
			return
		}
		segments := strings.Split(path, "/")
		again, err := url.ParseRequestURI(path)
		if err != nil || again.EscapedPath() != path || again.RawQuery != "" || len(segments) < 2 || len(segments) > 3 ||
			segments[0] != "" || segments[1] != "server" && segments[1] != "$stash" {
			t.Fatalf("%q became %q, %v", target, path, err)
		}
		for _, s := range segments[1:] {
			if plain, err := url.PathUnescape(s); err != nil || plain == "" || plain == "." || plain == ".." {
				t.Fatalf("%q became %q", target, path)
			}
		}
	})
}
