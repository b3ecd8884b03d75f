package setuppage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// victim is a page that counts its requests, and a browser that has used the link.
type victim struct {
	s       *Server
	reached atomic.Int32
	cookie  *http.Cookie
	ended   chan error
	end     context.CancelFunc
}

func open(t *testing.T) *victim {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Listen(ctx)
	testkit.Must(t, err)
	v := &victim{s: s, ended: make(chan error, 1), end: cancel}
	go func() {
		v.ended <- s.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				return
			}
			v.reached.Add(1)
			_, _ = io.WriteString(w, "page "+r.URL.Path)
		}))
		close(v.ended)
	}()
	t.Cleanup(func() {
		cancel()
		for range v.ended { //nolint:revive // until it is closed
		}
	})
	return v
}

// ask sends a request to the page. A header without a value is left out. The Host is that of the header Host.
func (v *victim) ask(t *testing.T, method, path string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+v.s.listener.Addr().String()+path, nil)
	testkit.Must(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	if v.cookie != nil {
		r.AddCookie(v.cookie)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func (v *victim) path() string { return "/" + v.s.link + "/" }

// useLink opens the link in the user's browser.
func (v *victim) useLink(t *testing.T) {
	t.Helper()
	if a := v.ask(t, http.MethodGet, v.path(), "Sec-Fetch-Site: none"); a.StatusCode != http.StatusOK || len(a.Cookies()) != 1 {
		t.Fatalf("the user gets %s, %v", a.Status, a.Cookies())
	} else {
		v.cookie = a.Cookies()[0]
	}
	v.reached.Store(0)
}

// attacks are mounted on a page that the user has opened. Each returns whether it reached the page.
var attacks = []struct {
	defence, name string
	mount         func(t *testing.T, v *victim) bool
}{
	{"setup-host", "a name that resolves to 127.0.0.1, and knows link and cookie", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodPost, v.path()+"add", "Host: evil.test:"+v.s.port)
		return v.reached.Load() > 0
	}},
	{"setup-host", "the right name with another port", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodGet, v.path(), "Host: localhost")
		return v.reached.Load() > 0
	}},
	{"setup-origin", "a form of another site", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodPost, v.path()+"add", "Origin: https://evil.test", "Sec-Fetch-Site: cross-site")
		return v.reached.Load() > 0
	}},
	{"setup-origin", "a form of another port of this machine, to which browsers send the cookie", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodPost, v.path()+"add", "Origin: http://127.0.0.1:3000", "Sec-Fetch-Site: same-site")
		return v.reached.Load() > 0
	}},
	{"setup-origin", "a form of an old browser", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodPost, v.path()+"add", "Origin: null")
		return v.reached.Load() > 0
	}},
	{"setup-link", "who knows only the port", func(t *testing.T, v *victim) bool {
		v.ask(t, http.MethodGet, "/")
		v.ask(t, http.MethodPost, "/add")
		v.ask(t, http.MethodGet, "/"+strings.Repeat("A", len(v.s.link))+"/")
		return v.reached.Load() > 0
	}},
	{"setup-once", "the link used twice", func(t *testing.T, v *victim) bool {
		v.cookie = nil
		v.ask(t, http.MethodGet, v.path())
		v.ask(t, http.MethodPost, v.path()+"add")
		return v.reached.Load() > 0
	}},
	{"setup-frames", "a frame of another page", func(t *testing.T, v *victim) bool {
		a := v.ask(t, http.MethodGet, v.path())
		return !strings.Contains(a.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	}},
	{"setup-user", "another user of the machine, who knows link and cookie", func(t *testing.T, v *victim) bool {
		if os.Getuid() != 0 {
			testkit.SkipBecause(t, "only root can be another user")
		}
		script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s; printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%[1]s\r\nCookie: %[3]s\r\n`+
			`Connection: close\r\n\r\n' >&3; head -n 1 <&3`, v.s.port, v.path(), v.cookie.Name+"="+v.cookie.Value)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 31338, Gid: 31338}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return v.reached.Load() > 0
	}},
}

// TestAttacks: only the browser that used the link first reaches the page.
// Promise: setup-page
func TestAttacks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.defence+" "+a.name, func(t *testing.T) {
			v := open(t)
			v.useLink(t)
			if a.mount(t, v) {
				t.Error("it reached the page")
			}
		})
	}
}

// TestUser: the browser reaches the page under both names, by forms and links, and gets a cookie for this path only.
func TestUser(t *testing.T) {
	v := open(t)
	u, err := url.Parse(v.s.Address())
	testkit.Must(t, err)
	if len(v.s.link) < 26 || u.Path != v.path() || u.Hostname() != "127.0.0.1" {
		t.Errorf("the address is %s", v.s.Address())
	}
	v.useLink(t)
	c := v.cookie
	if c.Path != v.path() || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || len(c.Value) < 26 {
		t.Errorf("the cookie is %s", c)
	}
	v.ask(t, http.MethodPost, v.path()+"add", "Origin: http://127.0.0.1:"+v.s.port, "Sec-Fetch-Site: same-origin")
	for _, n := range []int{maxForm, maxForm + 1} { // the second does not reach it
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.s.Address()+"add", strings.NewReader(strings.Repeat("a", n)))
		testkit.Must(t, err)
		r.AddCookie(v.cookie)
		answer, err := http.DefaultClient.Do(r)
		testkit.Must(t, err)
		_ = answer.Body.Close()
	}
	a := v.ask(t, http.MethodGet, v.path()+"style.css", "Host: localhost:"+v.s.port)
	if text, _ := io.ReadAll(a.Body); string(text) != "page /style.css" || v.reached.Load() != 3 {
		t.Errorf("%q, %d", text, v.reached.Load())
	}
	if a.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("headers %v", a.Header)
	}
}

// TestEnds: the page ends after Done, without requests, and on Ctrl-C. Then its port is closed.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*victim)
		want error
	}{
		"done":   {func(v *victim) { v.s.End(nil) }, nil},
		"idle":   {func(v *victim) { v.s.idle.Reset(time.Millisecond) }, ErrIdle},
		"Ctrl-C": {func(v *victim) { v.end() }, context.Canceled},
	} {
		v := open(t)
		v.useLink(t)
		c.end(v)
		if err := <-v.ended; !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if conn, err := net.Dial("tcp4", v.s.listener.Addr().String()); err == nil {
			_ = conn.Close()
			t.Errorf("%s: the port is open", name)
		}
	}
}
