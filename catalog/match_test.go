package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

func TestMatch(t *testing.T) {
	c := clean(t, writeTree(t, map[string]string{
		"live/config.json":   `{"description": "x", "domains": ["api.stripe.com"], "credentials": {"LIVE_TOKEN": "value-live"}}`,
		"test/config.json":   `{"description": "x", "domains": ["API.stripe.com."], "credentials": {"TEST_TOKEN": "value-test"}}`,
		"off/config.json":    `{"description": "x", "domains": ["off.example.com", "api.stripe.com"], "credentials": {"OFF_TOKEN": "value-off"}, "active": false}`,
		"wide/config.json":   `{"description": "x", "domains": ["*.example.com", "*.stripe.com"]}`,
		"wide2/config.json":  `{"description": "x", "domains": ["*.example.com"]}`,
		"local/config.json":  `{"description": "x", "domains": ["localhost", "gitlab"], "allow_private": ["127.0.0.0/8", "::1/128"]}`,
		"umlaut/config.json": `{"description": "x", "domains": ["bücher.example.org"]}`,
	}), nil)
	for host, want := range map[string]string{
		"api.stripe.com":            "live test", // two accounts
		"API.STRIPE.COM.":           "live test",
		"dashboard.stripe.com":      "wide",
		"a.example.com":             "wide wide2",
		"off.example.com":           "", // the exact name of an inactive API beats the wildcards
		"gitlab":                    "local",
		"localhost":                 "local",
		"xn--bcher-kva.example.org": "umlaut",
		"example.com":               "",
		"a.b.example.com":           "",
		"stripe.com":                "",
		"api.stripe.com.evil.com":   "",
		"com":                       "",
		"evil.com":                  "",
	} {
		if got := matched(t, c, host); got != want {
			t.Errorf("%s is held by %q, want %q", host, got, want)
		}
	}
	for host, want := range map[string]bool{"off.example.com": true, "api.stripe.com": true, "x.example.com": true, "evil.com": false, "example.com": false} {
		if got := c.MayHold(mustHost(t, host)); got != want {
			t.Errorf("Holds(%s) = %v", host, got)
		}
	}
	if c.ListHolders(catalog.Host{}) != nil || c.MayHold(catalog.Host{}) {
		t.Error("the zero host is in an API")
	}
	var all []string
	for _, cred := range c.AllCredentials() {
		all = append(all, cred.Name)
	}
	if got := strings.Join(all, " "); got != "LIVE_TOKEN OFF_TOKEN TEST_TOKEN" {
		t.Errorf("all credentials: %s", got)
	}
}

// TestMatchPorts: a host with a port is held at that port alone, and one without at 443 and 80 alone.
// Promise: one-host-one-port
func TestMatchPorts(t *testing.T) {
	c := clean(t, writeTree(t, map[string]string{
		"dev/config.json":  `{"description": "x", "domains": ["localhost:3000", "LOCALHOST.:3001"]}`,
		"es/config.json":   `{"description": "x", "domains": ["es.home.lan:9200"], "credentials": {"ES_TOKEN": "value-es1"}}`,
		"web/config.json":  `{"description": "x", "domains": ["es.home.lan", "*.home.lan:3000"], "credentials": {"WEB_TOKEN": "value-web"}}`,
		"off/config.json":  `{"description": "x", "domains": ["es.home.lan:9300", "es.home.lan:9201"], "active": false}`,
		"both/config.json": `{"description": "x", "domains": ["es.home.lan:9200"]}`,
	}), nil)
	for _, row := range []struct {
		host string
		port uint16
		want string
	}{
		{"localhost", 3000, "dev"}, {"localhost", 3001, "dev"}, {"localhost", 443, ""}, {"localhost", 80, ""}, {"localhost", 3002, ""},
		{"es.home.lan", 9200, "both es"}, {"es.home.lan", 443, "web"}, {"es.home.lan", 80, "web"}, {"es.home.lan", 0, "web"}, {"es.home.lan", 9300, ""}, {"es.home.lan", 9201, ""},
		{"es.home.lan", 3000, "web"}, {"a.home.lan", 3000, "web"}, {"a.home.lan", 9200, ""}, {"a.home.lan", 443, ""}, {"a.b.home.lan", 3000, ""},
	} {
		var got []string
		for _, a := range c.ListHolders(mustHost(t, row.host).AtPort(row.port)) {
			got = append(got, a.Name)
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s at %d is held by %q, want %q", row.host, row.port, got, row.want)
		}
	}
	if got := fmt.Sprint(c.ListPorts()); got != "[3000 3001 9200]" {
		t.Errorf("ports %s, want those of active APIs", got)
	}
	for host, want := range map[string]string{"es.home.lan": "[es.home.lan *.home.lan:3000 es.home.lan:9200]", "localhost": "[localhost:3000 localhost:3001]", "x.home.lan": "[*.home.lan:3000]", "evil.com": "[]"} {
		h := mustHost(t, host)
		if got := fmt.Sprint(c.OtherPorts(h.AtPort(1))); got != want {
			t.Errorf("%s is at %s, want %s", host, got, want)
		}
		if c.MayHold(h) != (want != "[]") || c.MayHold(h.AtPort(7)) != c.MayHold(h) {
			t.Errorf("%s: held %v, at another port %v", host, c.MayHold(h), c.MayHold(h.AtPort(7)))
		}
	}
	if got := fmt.Sprint(c.OtherPorts(mustHost(t, "es.home.lan"))); got != "[*.home.lan:3000 es.home.lan:9200]" {
		t.Errorf("besides the usual ports es.home.lan is at %s", got)
	}
}

func TestNilCatalog(t *testing.T) {
	var c *catalog.Catalog
	h := mustHost(t, "api.example.com")
	if c.ListHolders(h) != nil || c.MayHold(h) || c.API("x") != nil || c.AllCredentials() != nil || c.APIs() != nil || c.Version() != "" {
		t.Error("the nil catalog holds something")
	}
}

// TestBrokenAPIStaysClosed: YOLO_MODE opens hosts that are in no API, and a broken API is one.
// Promise: configuration-fails-closed
func TestBrokenAPIStaysClosed(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": `{"domains": ["api.example.com", "*.example.org"], "restricted_methods": ["DELET"]}`,
	})
	c, _ := catalog.Load(dir, catalog.Options{})
	closedHosts(t, c)
	write(t, dir, "a/config.json", `{"domains": [`)
	c, _ = catalog.Load(dir, catalog.Options{Previous: c})
	closedHosts(t, c)
	write(t, dir, "a/config.json", plainConfig)
	if c = clean(t, dir, c); c.MayHold(mustHost(t, "api.example.com")) {
		t.Error("a mended API keeps hosts it does not have")
	}
}

// TestUnreadAPIClosesAll: of an API that could never be read no host is known, so none is one that is in no API.
// Mended, or gone, it closes nothing any more.
// Promise: configuration-fails-closed
func TestUnreadAPIClosesAll(t *testing.T) {
	dir := writeTree(t, map[string]string{"a/config.json": `{"domains": ["api.example.com"`, "b/config.json": api("b.example.com", "B_TOKEN", "Wq7ZtNc4-XbKp2Vm9RdL")})
	c, _ := catalog.Load(dir, catalog.Options{})
	if !c.MayHold(mustHost(t, "api.example.com")) || !c.MayHold(mustHost(t, "any.example.org")) || len(c.ListHolders(mustHost(t, "b.example.com"))) != 1 {
		t.Error("a host that may be of the API is in none")
	}
	c, _ = catalog.Load(dir, catalog.Options{Previous: c})
	if !c.MayHold(mustHost(t, "any.example.org")) {
		t.Error("a reload forgets it")
	}
	write(t, dir, "a/config.json", plainConfig)
	if c = clean(t, dir, c); c.MayHold(mustHost(t, "any.example.org")) {
		t.Error("a mended API closes hosts of others")
	}
}

// TestMisnamedAPIClosesAll: a folder with a config.json and a bad name is an API that was never read.
// Promise: configuration-fails-closed
func TestMisnamedAPIClosesAll(t *testing.T) {
	dir := writeTree(t, map[string]string{"My API/config.json": plainConfig})
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems.Errors()) != 1 || !c.MayHold(mustHost(t, "any.example.org")) {
		t.Errorf("a host that may be of the API is in none; %v", problems)
	}
}

func closedHosts(t *testing.T, c *catalog.Catalog) {
	t.Helper()
	for host, want := range map[string]bool{"api.example.com": true, "x.example.org": true, "example.org": false, "other.example.com": false} {
		if h := mustHost(t, host); c.MayHold(h) != want || c.ListHolders(h) != nil {
			t.Errorf("%s: held %v, want %v; matched %v", host, c.MayHold(h), want, c.ListHolders(h))
		}
	}
}

// TestNothingPrintsCredentials marshals and prints a whole catalog.
// Promise: never-printed
func TestNothingPrintsCredentials(t *testing.T) {
	const value = "sk-canary-0123456789"
	c := clean(t, writeTree(t, map[string]string{"a/config.json": api("a.example.com", "A_TOKEN", value)}), nil)
	data, err := json.Marshal(c.APIs())
	if err != nil || !strings.Contains(string(data), "[secret]") {
		t.Errorf("json: %s, %v", data, err)
	}
	out := string(data) + c.Version()
	for _, x := range []any{c, *c, c.APIs(), c.API("a"), *c.API("a"), c.AllCredentials()} {
		out += fmt.Sprintf("%v %+v %#v %s %x", x, x, x, x, x)
	}
	if strings.Contains(out, value) || strings.Contains(out, fmt.Sprintf("%x", value)) {
		t.Error("a credential shows")
	}
	if c.AllCredentials()[0].Value.Reveal() != value {
		t.Error("the credential is lost")
	}
}

func TestDefaults(t *testing.T) {
	c := clean(t, writeTree(t, map[string]string{"a/config.json": api("a.example.com", "A_TOKEN", "first-value"), "a/types.d.ts": "declare const x: 1;\n"}), nil)
	a := c.API("a")
	if !a.Active || a.AllowHTTP || a.Compress || a.MessageFraming || a.AllowPrivate != nil || a.CAs != nil || a.Methods.Allowed != nil || a.Methods.Restricted != nil || a.Stale != "" {
		t.Errorf("defaults: %+v", a)
	}
	if s := a.Credentials[0].Surfaces; len(s) != 1 || s[0] != (catalog.Surface{Kind: catalog.SurfaceHeader}) {
		t.Errorf("default surfaces: %v", s)
	}
	if got := textOf(t, a.Types); got != "declare const x: 1;\n" {
		t.Errorf("types: %q", got)
	}
}

func TestEverything(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": `{"$schema": "../config.schema.json", "description": "x", "domains": ["a.example.com"], "reference": "https://docs.example.com",
			"credentials": {"A_FILE": {"file": "keys/a"}, "A_SHARED": {"file": "../shared"}, "A_ENV": {"env": "A_VALUE"}, "A_VALUE": {"value": "value-value", "in": ["header:x-api-key", "query:key", "path", "body:client_secret"]}},
			"allowed_methods": ["get", "Post", "PROPFIND"], "allow_private": true, "active": true}`,
		"a/keys/a": "value-of-file\r\n",
		"shared":   "value-shared",
	})
	c, problems := catalog.Load(dir, catalog.Options{Getenv: environment("A_VALUE=value-of-env")})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	a := c.API("a")
	var got []string
	for _, cred := range a.Credentials {
		got = append(got, cred.Name+"="+cred.Value.Reveal()+fmt.Sprint(cred.Surfaces))
	}
	want := "A_ENV=value-of-env[header] A_FILE=value-of-file[header] A_SHARED=value-shared[header] A_VALUE=value-value[header:X-Api-Key query:key path body:client_secret]"
	if strings.Join(got, " ") != want {
		t.Errorf("credentials:\n%v\nwant\n%v", strings.Join(got, " "), want)
	}
	if fmt.Sprint(a.Methods.Allowed) != "[GET POST PROPFIND]" || fmt.Sprint(a.AllowPrivate) != "[10.0.0.0/8 172.16.0.0/12 192.168.0.0/16]" {
		t.Errorf("methods %v, private %v", a.Methods, a.AllowPrivate)
	}
}
