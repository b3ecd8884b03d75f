package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// issuer is where the OpenID provider is.
const issuer = "c.wild.test"

// person is somebody with a browser, who fills in every form with what there is for a field, and else with a name.
type person struct {
	http.Client
	knows map[string]string
}

func newPerson(t *testing.T, knows map[string]string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testkit.Must(t, err)
	return &person{knows: knows, Client: http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: insecure(), // the tests' own upstream
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, port, _ := net.SplitHostPort(address); host == issuer {
				address = net.JoinHostPort(upstream.Embedded.Private.String(), port)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}}
}

// follow opens an address, fills in the forms that come, and returns the text of the last page.
func (p *person) follow(t *testing.T, address string) string {
	t.Helper()
	resp, err := p.Get(address)
	for range 10 {
		testkit.Must(t, err)
		page, err2 := io.ReadAll(resp.Body)
		testkit.Must(t, errors.Join(err2, resp.Body.Close()))
		action, form := p.form(string(page))
		if form == nil {
			return fmt.Sprintf("%d %s", resp.StatusCode, page)
		}
		to, err2 := resp.Request.URL.Parse(action)
		testkit.Must(t, err2)
		resp, err = p.PostForm(to.String(), form)
	}
	t.Fatal("one form after the other")
	return ""
}

// form is the first form of a page as a person sends it.
func (p *person) form(page string) (action string, form url.Values) {
	node, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return "", nil
	}
	for n := range node.Descendants() {
		attr := func(name string) string {
			for _, a := range n.Attr {
				if a.Key == name {
					return a.Val
				}
			}
			return ""
		}
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "form" && form == nil:
			action, form = attr("action"), url.Values{}
		case n.Data == "input" && form != nil && attr("type") != "submit" && attr("name") != "":
			form.Set(attr("name"), attr("value"))
			if attr("value") == "" {
				form.Set(attr("name"), cmp.Or(p.knows[attr("name")], "ann"))
			}
		}
	}
	return action, form
}

// provider is an API of a provider, with a credential by browser and one by device.
func provider(browser, device map[string]any) world.API {
	credential := func(more map[string]any) map[string]any {
		config := map[string]any{"token_url": "https://" + issuer + "/token"}
		for k, v := range more {
			config[k] = v
		}
		return map[string]any{"oauth2": config}
	}
	ca := "ca.pem"
	if world.CurrentMode() == world.Docker {
		ca = "/e2e/ca.pem"
	}
	return world.API{Name: "idp", Config: map[string]any{
		"description": "who the user is", "domains": []string{issuer}, "ca_file": ca,
		"allow_private": []string{upstream.Embedded.Private.String() + "/32"},
		"credentials":   map[string]any{"USER_TOKEN": credential(browser), "OTHER_USER_TOKEN": credential(device)},
	}}
}

// asking is code that asks a provider who the user is, and what it prints.
func asking(t *testing.T, w *world.World, path, name string) string {
	t.Helper()
	return strings.TrimSpace(w.MustExecute(t, fmt.Sprintf(`const r = await fetch("https://%s%s", { headers: { Authorization: "Bearer %s" } });
		console.log(r.status, await r.text());`, issuer, path, name)).Out)
}

// TestOpenIDProvider: a person logs in at a real provider in a browser, and by device; the token it gives is used,
// renewed with its rotating refresh token after a refusal, survives a restart, and ends with a logout.
// Promise: scrubbed-before-use
func TestOpenIDProvider(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "oidc.sock")
	s := start(t, socket, node(t, dir, "oidc.mjs", "oidc"), "node", "oidc.mjs", "https://"+issuer, socket)
	config := map[string]any{
		"auth_url": "https://" + issuer + "/auth", "device_url": "https://" + issuer + "/device/auth",
		"client_id": "codeforge", "client_secret": "inner-canary-of-the-client", "scopes": []string{"openid", "offline_access", "email"},
		"params": map[string]string{"prompt": "consent"},
	}
	w := world.Start(t, world.Config{APIs: []world.API{provider(config, config)}, Hosts: map[string]http.Handler{issuer: s}})
	ask := func(name string) string { t.Helper(); return asking(t, w, "/me", name) }
	if got := ask("USER_TOKEN"); !strings.Contains(got, "login_needed") || len(s.said("access_token")) != 0 {
		t.Fatalf("before the login: %s", got)
	}
	const ann = `200 {"sub":"ann","email":"ann@example.com"}`
	for name, flag := range map[string]string{"USER_TOKEN": "--no-browser", "OTHER_USER_TOKEN": "--device"} {
		if page := login(t, w, newPerson(t, nil), name, "login", name, flag); !strings.HasPrefix(page, "200") {
			t.Fatalf("%s: the last page: %s", flag, page)
		}
		if got := ask(name); got != ann {
			t.Errorf("%s: %s", flag, got)
		}
	}
	s.post(t, "/revoke", nil)
	for _, name := range []string{"USER_TOKEN", "OTHER_USER_TOKEN"} { // each with a refresh token that is good once
		refreshed := len(s.said("refresh_token"))
		if got := ask(name); got != ann || len(s.said("refresh_token")) != refreshed+1 {
			t.Errorf("%s after a refusal: %s, %d refresh tokens; refused %v", name, got, len(s.said("refresh_token"))-refreshed, s.said("refused"))
		}
	}
	var tokens []string
	for _, kind := range []string{"access_token", "refresh_token"} {
		if len(s.said(kind)) < 3 {
			t.Errorf("%d of %s", len(s.said(kind)), kind)
		}
		tokens = append(tokens, s.said(kind)...)
	}
	nowhere(t, w, append(tokens, "inner-canary-of-the-client"), ask("USER_TOKEN")+ask("OTHER_USER_TOKEN"))
	out, code, err := world.Tool(t.Context(), command(t, w, "logout", "USER_TOKEN"))
	if got := ask("USER_TOKEN"); err != nil || code != 0 || !strings.Contains(got, "login_needed") {
		t.Errorf("after the logout: %d %s %v: %s", code, out, err, got)
	}
	paste(t, w, newPerson(t, nil), "USER_TOKEN")
	if got := ask("USER_TOKEN"); got != ann {
		t.Errorf("--paste: %s", got)
	}
}

// paste logs in for a credential as a person on another machine does, who brings the address at which the browser ends,
// after one of another login. The terminal shows neither.
func paste(t *testing.T, w *world.World, who *person, name string) {
	t.Helper()
	c := command(t, w, "login", name, "--paste")
	c.Terminal = true
	p, err := world.Launch(c)
	testkit.Must(t, err)
	asks := func(times int) { // for the address, with the echo switched off
		t.Helper()
		testkit.WaitFor(t, func() bool { return strings.Count(p.Output(), "(not shown): ") == times })
		time.Sleep(100 * time.Millisecond)
	}
	asks(1)
	var end string
	who.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Hostname() != "127.0.0.1" {
			return nil
		}
		end = r.URL.String()
		return http.ErrUseLastResponse
	}
	who.follow(t, address.FindString(p.Output()))
	testkit.Must(t, p.Type("http://127.0.0.1:8765/callback?code=planted-code&state=another-login\n"))
	asks(2)
	testkit.Must(t, p.Type(end+"\n"))
	exit, err := p.Wait(testkit.Patience)
	if out := p.Output(); err != nil || exit != 0 || !strings.Contains(out, "belongs to another login") ||
		!strings.Contains(out, name+" is logged in.") || strings.Contains(out, "code=") {
		t.Errorf("codeforge login --paste: %d, %v: %s\n%s", exit, err, out, end)
	}
}

// TestOtherProvider is TestOpenIDProvider with another one, zitadel's example: a public client in the browser, and one
// that authenticates in the header by device, without a refresh token.
func TestOtherProvider(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "zitadel.sock")
	s := start(t, socket, t.TempDir(), program(t, "zitadel"), "https://"+issuer+"/", socket)
	browser := map[string]any{"token_url": "https://" + issuer + "/oauth/token", "auth_url": "https://" + issuer + "/auth", "client_id": "native",
		"scopes": []string{"openid", "offline_access", "email"}}
	device := map[string]any{"token_url": "https://" + issuer + "/oauth/token", "device_url": "https://" + issuer + "/device_authorization",
		"client_id": "device", "client_secret": "inner-canary-of-the-device", "auth": "basic", "scopes": []string{"openid", "email"}}
	w := world.Start(t, world.Config{APIs: []world.API{provider(browser, device)}, Hosts: map[string]http.Handler{issuer: bearerErrors{s}}})
	ask := func(name string) string { t.Helper(); return asking(t, w, "/userinfo", name) }
	if got := ask("USER_TOKEN"); !strings.Contains(got, "login_needed") {
		t.Fatalf("before the login: %s", got)
	}
	somebody := newPerson(t, map[string]string{"password": "verysecure"})
	for name, flag := range map[string]string{"USER_TOKEN": "--no-browser", "OTHER_USER_TOKEN": "--device"} {
		login(t, w, somebody, name, "login", name, flag)
		if got := ask(name); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "ann@example.com") {
			t.Errorf("%s: %s", flag, got)
		}
	}
	before := stored(t, w, "USER_TOKEN")
	s.post(t, "/revoke", url.Values{"token": {before.Access}, "client_id": {"native"}})
	if got := ask("USER_TOKEN"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("after a refusal: %s", got)
	}
	after, other := stored(t, w, "USER_TOKEN"), stored(t, w, "OTHER_USER_TOKEN")
	if after.Access == before.Access || after.Refresh == before.Refresh || other.Refresh != "" {
		t.Error("the tokens after a refusal are those of before")
	}
	tokens := []string{before.Access, before.Refresh, after.Access, after.Refresh, other.Access, "inner-canary-of-the-device"}
	nowhere(t, w, tokens, ask("USER_TOKEN")+ask("OTHER_USER_TOKEN"))
}

// bearerErrors answers 401 where the example answers 403 to a token that was revoked, as RFC 6750 has it.
type bearerErrors struct{ http.Handler }

func (b bearerErrors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.Handler.ServeHTTP(bearerWriter{w}, r)
}

type bearerWriter struct{ http.ResponseWriter }

func (b bearerWriter) WriteHeader(status int) {
	if status == http.StatusForbidden {
		status = http.StatusUnauthorized
	}
	b.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (b bearerWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// command is a codeforge command about the world's own CodeForge.
func command(t *testing.T, w *world.World, args ...string) world.Command {
	t.Helper()
	c, err := w.Command(args...)
	testkit.Must(t, err)
	return c
}

var (
	address = regexp.MustCompile(`https://\S+`)
	code    = regexp.MustCompile(`enter the code (\S+)`)
	confirm = regexp.MustCompile(`\./confirm\?action=allowed`)
)

// login runs a codeforge command that logs in for a credential while a person does what it says, and returns the last
// page that the person sees.
func login(t *testing.T, w *world.World, who *person, name string, args ...string) string {
	t.Helper()
	p, err := world.Launch(command(t, w, args...))
	testkit.Must(t, err)
	var at string
	testkit.WaitFor(t, func() bool {
		at = address.FindString(p.Output())
		select {
		case <-p.Done():
			t.Fatalf("codeforge %q: %s", args, p.Output())
		default:
		}
		return at != "" && strings.Contains(p.Output(), "Ctrl-C")
	})
	if found := code.FindStringSubmatch(p.Output()); found != nil {
		at += "?user_code=" + found[1]
	}
	page := who.follow(t, at)
	if confirm.MatchString(page) {
		page = who.follow(t, "https://"+issuer+"/device/confirm?action=allowed")
	}
	if exit, err := p.Wait(testkit.Patience); err != nil || exit != 0 || !strings.Contains(p.Output(), name+" is logged in.") {
		t.Fatalf("codeforge %q: %d, %v: %s\n%s", args, exit, err, p.Output(), page)
	}
	return page
}
