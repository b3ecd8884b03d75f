package authserver

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// site serves the document of a client at each path.
type site struct {
	*httptest.Server
	id string // of its client

	mu      sync.Mutex
	fetches int
}

// newSite starts a site on loopback, where only the guard keeps f from it. change changes the document.
func newSite(t *testing.T, f *forge, change func(document map[string]any)) *site {
	t.Helper()
	s := &site{}
	return s.serve(t, f, func(w http.ResponseWriter, r *http.Request) {
		document := map[string]any{"client_id": s.URL + r.URL.Path, "client_name": "Claude", "redirect_uris": []string{callback}, "token_endpoint_auth_method": "none"}
		if change != nil {
			change(document)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	})
}

func (s *site) serve(t *testing.T, f *forge, answer http.HandlerFunc) *site {
	t.Helper()
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.fetches++
		answer(w, r)
		s.mu.Unlock()
	}))
	t.Cleanup(s.Close)
	s.id = s.URL + "/client.json"
	f.documents.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a test's server
	return s
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

// openGuard lets f reach the sites, as if their addresses were public.
func (f *forge) openGuard() *forge {
	f.documents.Transport.(*http.Transport).DialContext = (&net.Dialer{}).DialContext
	return f
}

// atDocument returns an attack by a client's document: it succeeds if the login page comes.
func atDocument(change func(document map[string]any)) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool {
		t.Helper()
		return f.open(t, f.browser(t), f.query(newSite(t, f.openGuard(), change).id)) != nil
	}
}

// atDocumentServer returns an attack by a server of documents.
func atDocumentServer(answer func(s *site, w http.ResponseWriter, r *http.Request)) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool {
		t.Helper()
		s := &site{}
		s.serve(t, f.openGuard(), func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) })
		return f.open(t, f.browser(t), f.query(s.id)) != nil
	}
}

// documentAttacks are the attacks by documents of clients.
var documentAttacks = []attack{
	{"a document on this machine, in five spellings", "dialguard", func(t *testing.T, f *forge) bool {
		s := newSite(t, f, nil)
		_, port, err := net.SplitHostPort(s.Listener.Addr().String())
		testkit.Must(t, err)
		for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1"} {
			f.open(t, f.browser(t), f.query("https://"+host+":"+port+"/client.json"))
		}
		return s.count() > 0
	}},
	{"a document of another client", "client-document", atDocument(func(d map[string]any) { d["client_id"] = "https://claude.ai/client.json" })},
	{"a document without an ID", "client-document", atDocument(func(d map[string]any) { delete(d, "client_id") })},
	{"a redirect URI that is not in the document", "client-redirect", atDocument(func(d map[string]any) { d["redirect_uris"] = []string{evil} })},
	{"a document with a redirect URI of javascript", "client-scheme", atDocument(func(d map[string]any) {
		d["redirect_uris"] = []string{callback, "javascript://client.example.com/%0aalert(1)"}
	})},
	{"a document with a client secret", "client-document", atDocument(func(d map[string]any) { d["client_secret"] = "secret" })},
	{"a document that relies on a secret", "client-document", atDocument(func(d map[string]any) { d["token_endpoint_auth_method"] = "client_secret_basic" })},
	{"a document whose name is a number", "(it is not read as a registration)", atDocument(func(d map[string]any) { d["client_name"] = 5 })},
	{"a document of 6 KiB", "(a part of it is no JSON either)", atDocument(func(d map[string]any) { d["more"] = strings.Repeat("a", 6<<10) })},
	{"a document behind a redirect", "client-document", atDocumentServer(func(s *site, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/client.json" {
			http.Redirect(w, r, "/other.json", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"client_id": s.id, "redirect_uris": []string{callback}})
	})},
	{"a page as a document", "client-document", atDocumentServer(func(s *site, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_ = json.NewEncoder(w).Encode(map[string]any{"client_id": s.id, "redirect_uris": []string{callback}})
	})},
	{"a document that does not end", "(the time limit is net/http's)", func(t *testing.T, f *forge) bool {
		done := make(chan struct{})
		s := (&site{}).serve(t, f.openGuard(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"client_id": `))
			w.(http.Flusher).Flush()
			<-done
		})
		defer close(done)
		f.documents.Timeout /= 10
		began := time.Now()
		return f.open(t, f.browser(t), f.query(s.id)) != nil || time.Since(began) > testkit.Patience/2
	}},
	{"a document that changes its redirect URIs after the approval", "client-redirect", func(t *testing.T, f *forge) bool {
		redirect := callback
		s := newSite(t, f.openGuard(), func(d map[string]any) { d["redirect_uris"] = []string{redirect} })
		p := f.exchange(t, s.id, f.code(t, s.id))
		s.mu.Lock()
		redirect = evil
		s.mu.Unlock()
		if !f.isValid(t, p.Access) || f.open(t, f.browser(t), f.query(s.id)) == nil || s.count() != 1 {
			t.Fatalf("no login by a document, or no cache: %d requests", s.count())
		}
		// The new address counts after the cache's time only, and the old one does not any more.
		early := f.open(t, f.browser(t), f.query(s.id, "redirect_uri", evil)) != nil
		f.wait(documentFresh + time.Second)
		return early || f.open(t, f.browser(t), f.query(s.id)) != nil || f.renew(t, s.id+"/", p.Refresh).Access != ""
	}},
	{"a document that takes another client's name after the approval", "client-approved", func(t *testing.T, f *forge) bool {
		name, redirects := "Evil", []string{callback}
		s := newSite(t, f.openGuard(), func(d map[string]any) { d["client_name"], d["redirect_uris"] = name, redirects })
		f.exchange(t, s.id, f.code(t, s.id))
		s.mu.Lock()
		name, redirects = "Claude", []string{"https://claude.ai/callback"}
		s.mu.Unlock()
		f.wait(documentFresh + time.Second)
		// Anyone on the internet can make the server read the document again.
		f.open(t, f.browser(t), f.query(s.id, "redirect_uri", redirects[0]))
		list, err := f.ListLogins(t.Context())
		testkit.Must(t, err)
		if len(list) != 1 || s.count() != 2 {
			t.Fatalf("%d logins, %d requests", len(list), s.count())
		}
		return list[0].Client.Name != "Evil" || !slices.Equal(list[0].Client.Redirects, []string{callback})
	}},
	{"URLs of documents in other spellings", "client-url", func(t *testing.T, f *forge) bool {
		s := newSite(t, f.openGuard(), nil)
		for _, id := range []string{s.URL, s.URL + "/", s.URL + "/a/../client.json", s.id + "?x", s.id + "?", s.id + "#x", strings.Replace(s.id, "https://", "https://user@", 1), strings.Replace(s.id, "https", "http", 1), s.URL + "/%63lient.json", s.URL + "//client.json", s.id + "/"} {
			f.open(t, f.browser(t), f.query(id))
		}
		return s.count() > 0
	}},
	{"ninety documents from one address", "client-flood", func(t *testing.T, f *forge) bool {
		s := newSite(t, f.openGuard(), nil)
		for i := range 90 {
			f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(fmt.Sprint(s.URL, "/", i)), "", "", "X-Forwarded-For", "203.0.113.7")
		}
		return s.count() > 12
	}},
	{"a host of a document that reads like another", "client-document", func(t *testing.T, f *forge) bool {
		s := newSite(t, f.openGuard(), func(d map[string]any) { d["client_name"] = "</b>claude.ai<b>" })
		b := f.browser(t)
		v := f.open(t, b, f.query(s.id))
		v.Set("secret", annToken)
		_, page, _ := f.post(t, b, "/oauth/login", v)
		return !strings.Contains(page, "Described by the site</dt><dd class=\"wrapany\"><b>"+strings.TrimPrefix(s.URL, "https://")+"</b>") || strings.Contains(page, "</b>claude")
	}},
}

// TestDocument: a client with a document logs in, renews its token, and is listed and revoked like others.
// Promise: hosted-logins
func TestDocument(t *testing.T) {
	f := newForge(t)
	s := newSite(t, f.openGuard(), nil)
	p := f.exchange(t, s.id, f.code(t, s.id))
	next := f.renew(t, s.id, p.Refresh)
	list, err := f.ListLogins(t.Context())
	if err != nil || len(list) != 1 || list[0].Client.ID != s.id || list[0].Client.Name != "Claude" || !slices.Equal(list[0].Client.Redirects, []string{callback}) {
		t.Fatalf("%+v %v\n%s", list, err, f.log)
	}
	if !f.isValid(t, next.Access) {
		t.Error("the renewed token is not valid")
	}
	testkit.Must(t, f.RevokeLogin(t.Context(), list[0].ID))
	if f.isValid(t, next.Access) {
		t.Error("valid after the revocation")
	}
}
