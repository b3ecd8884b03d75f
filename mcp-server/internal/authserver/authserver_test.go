package authserver

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"golang.org/x/net/html"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

const (
	callback = "https://client.example.com/callback"
	state    = "a state / with ~ odd + characters"
	verifier = "a-verifier-of-at-least-43-characters-for-the-tests"
	annToken = "the-token-of-the-tenant-ann"
)

// forge is a server behind TLS, with the tenant ann.
type forge struct {
	*Server
	url string
	db  *database.DB
	log *testkit.Buffer

	mu      sync.Mutex
	removed bool // the tenant's token
	gone    bool // the tenant
	apis    []string
	later   time.Duration
}

func newForge(t *testing.T) *forge {
	t.Helper()
	db, err := database.OpenLogins(t.TempDir())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return newForgeOn(t, db, "")
}

// newForgeOn makes a server with a database. A second replica has the issuer of the first one.
func newForgeOn(t *testing.T, db *database.DB, issuer string) *forge {
	t.Helper()
	f := &forge{db: db, log: &testkit.Buffer{}, apis: []string{"stripe", "github"}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.ServeHTTP(w, r) }))
	s.StartTLS()
	t.Cleanup(s.Close)
	f.url = s.URL
	if issuer == "" {
		issuer = s.URL
	}
	f.Server = New(Config{
		Issuer: issuer, DB: db, Style: []byte("body {}"), Log: logline.New(f.log, "text", nil),
		FindTenant: func(token string) (string, string) {
			if token == annToken && f.HasTenant("ann", "proof") {
				return "ann", "proof"
			}
			return "", ""
		},
		HasTenant: f.HasTenant,
		ListAPIs:  func(string) []string { return f.apis },
	})
	f.store.now = func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return time.Now().Add(f.later)
	}
	return f
}

func (f *forge) HasTenant(tenant, proof string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return tenant == "ann" && !f.gone && (proof == "" || !f.removed)
}

// change removes the tenant or its token, and adds it again.
func (f *forge) change(t *testing.T, without *bool) {
	t.Helper()
	for _, is := range []bool{true, false} {
		f.mu.Lock()
		*without = is
		f.mu.Unlock()
		testkit.Must(t, f.EndUnownedLogins(t.Context()))
	}
}

// wait lets time pass.
func (f *forge) wait(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.later += d
}

// send sends a request and returns the status and the body.
func (f *forge) send(t *testing.T, c *http.Client, method, path, kind, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	testkit.Must(t, err)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := c.Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp.StatusCode, string(text), resp.Header
}

// browser has cookies and follows no redirect. It trusts every server.
func (f *forge) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testkit.Must(t, err)
	c := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(c.Close)
	trusting := c.Client()
	trusting.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // a test's server
	trusting.Jar = jar
	trusting.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return trusting
}

const form = "application/x-www-form-urlencoded"

// register registers a client and returns its ID, or "".
func (f *forge) register(t *testing.T, metadata map[string]any, headers ...string) string {
	t.Helper()
	text, err := json.Marshal(metadata)
	testkit.Must(t, err)
	_, body, _ := f.send(t, f.browser(t), http.MethodPost, "/oauth/register", "application/json", string(text), headers...)
	var out struct {
		ID string `json:"client_id"`
	}
	_ = json.Unmarshal([]byte(body), &out)
	return out.ID
}

func (f *forge) registerAt(t *testing.T, redirects ...string) string {
	t.Helper()
	return f.register(t, map[string]any{"client_name": "Claude", "redirect_uris": redirects})
}

// query returns an authorization request with changes: a name and a value each. An empty value removes the parameter.
func (f *forge) query(id string, changes ...string) string {
	sum := sha256.Sum256([]byte(verifier))
	v := url.Values{
		"client_id": {id}, "redirect_uri": {callback}, "response_type": {"code"}, "state": {state}, "resource": {f.cfg.Issuer + "/mcp"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	for i := 0; i+1 < len(changes); i += 2 {
		if v.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			v.Del(changes[i])
		}
	}
	return v.Encode()
}

// fields returns the hidden fields of a page's form.
func fields(t *testing.T, page string) url.Values {
	t.Helper()
	node, err := html.Parse(strings.NewReader(page))
	testkit.Must(t, err)
	out := url.Values{}
	for n := range node.Descendants() {
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
		}
		if n.Type == html.ElementNode && n.Data == "input" && attr["type"] == "hidden" {
			out.Set(attr["name"], attr["value"])
		}
	}
	return out
}

// open opens the login page, and returns its fields.
func (f *forge) open(t *testing.T, b *http.Client, query string) url.Values {
	t.Helper()
	status, page, _ := f.send(t, b, http.MethodGet, "/oauth/authorize?"+query, "", "")
	if status != http.StatusOK {
		return nil
	}
	return fields(t, page)
}

// post sends a form from a page of this server.
func (f *forge) post(t *testing.T, b *http.Client, path string, v url.Values, headers ...string) (int, string, http.Header) {
	t.Helper()
	return f.send(t, b, http.MethodPost, path, form, v.Encode(), append([]string{"Origin", f.cfg.Issuer}, headers...)...)
}

// signIn opens the login page and enters a secret. It returns the fields of the consent page, or nil.
func (f *forge) signIn(t *testing.T, b *http.Client, query, secret string) url.Values {
	t.Helper()
	v := f.open(t, b, query)
	if v == nil {
		return nil
	}
	v.Set("secret", secret)
	status, page, _ := f.post(t, b, "/oauth/login", v)
	if status != http.StatusOK {
		return nil
	}
	return fields(t, page)
}

// approve decides about a consent page, and returns the address to which the browser is led.
func (f *forge) approve(t *testing.T, b *http.Client, v url.Values) *url.URL {
	t.Helper()
	v.Set("decision", "approve")
	_, _, h := f.post(t, b, "/oauth/decide", v)
	to, err := url.Parse(h.Get("Location"))
	testkit.Must(t, err)
	return to
}

// code logs a client in, and returns its code.
func (f *forge) code(t *testing.T, id string) string {
	t.Helper()
	b := f.browser(t)
	code := f.approve(t, b, f.signIn(t, b, f.query(id), annToken)).Query().Get("code")
	if code == "" {
		t.Fatalf("no code\n%s", f.log)
	}
	return code
}

// pair is the answer of the token endpoint.
type pair struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Error   string `json:"error"`
}

func (f *forge) token(t *testing.T, v ...string) pair {
	t.Helper()
	in := url.Values{}
	for i := 0; i+1 < len(v); i += 2 {
		in.Set(v[i], v[i+1])
	}
	_, body, _ := f.send(t, f.browser(t), http.MethodPost, "/oauth/token", form, in.Encode())
	var out pair
	testkit.Must(t, json.Unmarshal([]byte(body), &out))
	return out
}

func (f *forge) exchange(t *testing.T, id, code string, more ...string) pair {
	t.Helper()
	return f.token(t, append([]string{"grant_type", "authorization_code", "client_id", id, "code", code, "redirect_uri", callback, "code_verifier", verifier}, more...)...)
}

func (f *forge) renew(t *testing.T, id, refresh string) pair {
	t.Helper()
	return f.token(t, "grant_type", "refresh_token", "client_id", id, "refresh_token", refresh)
}

// isValid reports whether an access token counts.
func (f *forge) isValid(t *testing.T, token string) bool {
	t.Helper()
	a, err := f.Verify(t.Context(), token)
	if err != nil && !errors.Is(err, auth.ErrInvalidToken) {
		t.Fatal(err)
	}
	return err == nil && a.Tenant == "ann"
}

// TestEmptyParameters: a parameter without a value counts as omitted: RFC 6749, sections 3.1 and 3.2.
func TestEmptyParameters(t *testing.T) {
	f := newForge(t)
	id := f.registerAt(t, callback)
	b := f.browser(t)
	code := f.approve(t, b, f.signIn(t, b, f.query(id, "resource", "")+"&resource=&request=&request_uri=&response_mode=&scope=", annToken)).Query().Get("code")
	if got := f.exchange(t, id, code, "redirect_uri", "", "resource", ""); got.Error != "" || !f.isValid(t, got.Access) {
		t.Errorf("%+v\n%s", got, f.log)
	}
}

// TestLogin: a client registers, a person signs in with the tenant's token and with a one-time code, and the client gets
// tokens, renews them and gives them back. The state comes back as it was. The list has the login.
// Promise: hosted-logins
func TestLogin(t *testing.T) {
	f := newForge(t)
	id := f.registerAt(t, callback)
	code := mustCode(t, f)
	for _, secret := range []string{annToken, code, strings.ToLower(strings.ReplaceAll(mustCode(t, f), "-", " "))} {
		b := f.browser(t)
		to := f.approve(t, b, f.signIn(t, b, f.query(id), secret))
		if !strings.HasPrefix(to.String(), callback+"?") || to.Query().Get("state") != state || to.Query().Get("iss") != f.url {
			t.Fatalf("%s\n%s", to, f.log)
		}
		p := f.exchange(t, id, to.Query().Get("code"))
		if !f.isValid(t, p.Access) {
			t.Fatalf("%+v", p)
		}
		a, err := f.Verify(t.Context(), p.Access)
		testkit.Must(t, err)
		next := f.renew(t, id, p.Refresh)
		if !f.isValid(t, next.Access) || !f.isValid(t, p.Access) || next.Refresh == p.Refresh {
			t.Fatalf("renewed: %+v", next)
		}
		if b, err := f.Verify(t.Context(), next.Access); err != nil || b.Login != a.Login || time.Until(b.Expires) < 59*time.Minute {
			t.Errorf("%+v %v, before %+v", b, err, a)
		}
		list, err := f.ListLogins(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != a.Login || list[0].Client.Name != "Claude" || list[0].Tenant != "ann" {
			t.Errorf("%+v %v", list, err)
		}
		f.send(t, b, http.MethodPost, "/oauth/revoke", form, url.Values{"token": {next.Refresh}, "client_id": {id}}.Encode())
		if f.isValid(t, next.Access) || f.renew(t, id, next.Refresh).Access != "" {
			t.Error("the token still counts after its revocation")
		}
	}
	p := f.exchange(t, id, f.code(t, id))
	list, err := f.ListLogins(t.Context())
	testkit.Must(t, err)
	testkit.Must(t, f.RevokeLogin(t.Context(), list[0].ID))
	if f.isValid(t, p.Access) || f.RevokeLogin(t.Context(), list[0].ID) == nil {
		t.Error("the login still counts after its end")
	}
	b := f.browser(t)
	v := f.signIn(t, b, f.query(id), annToken)
	v.Set("decision", "deny")
	status, _, h := f.post(t, b, "/oauth/decide", v)
	if to, err := url.Parse(h.Get("Location")); status != http.StatusSeeOther || err != nil || to.Query().Get("error") != "access_denied" || to.Query().Get("state") != state || to.Query().Has("code") {
		t.Errorf("denied: %d %v", status, to)
	}
	for _, secret := range []string{annToken, code, p.Access, p.Refresh} {
		if strings.Contains(f.log.String(), secret) {
			t.Errorf("the log has a secret: %s", f.log)
		}
	}
}

func mustCode(t *testing.T, f *forge) string {
	t.Helper()
	code, err := f.NewOneTimeCode(t.Context(), "ann", []string{"Client.example.com"})
	testkit.Must(t, err)
	return code
}

// TestConsent: the page names the tenant's APIs. A tenant without any is not one with all.
// Promise: hosted-logins
func TestConsent(t *testing.T) {
	for want, apis := range map[string][]string{"<b>stripe, github</b>": {"stripe", "github"}, "<b>all APIs</b>": nil, "<b>no API</b>": {}} {
		f := newForge(t)
		f.apis = apis
		b := f.browser(t)
		v := f.open(t, b, f.query(f.registerAt(t, callback)))
		v.Set("secret", annToken)
		if _, page, _ := f.post(t, b, "/oauth/login", v); !strings.Contains(page, want) {
			t.Errorf("%q: want %s in %s", apis, want, page)
		}
	}
}

// TestUnowned: the logins of a tenant stay while another of its tokens is removed, and while another tenant is.
// Promise: hosted-logins
func TestUnowned(t *testing.T) {
	f := newForge(t)
	id, b := f.registerAt(t, callback), f.browser(t)
	byToken := f.exchange(t, id, f.code(t, id))
	byCode := f.exchange(t, id, f.approve(t, b, f.signIn(t, b, f.query(id), mustCode(t, f))).Query().Get("code"))
	testkit.Must(t, f.store.addOneTimeCode(t.Context(), "AAAA-AAAA-AAAA", "bob", "client.example.com"))
	unused := mustCode(t, f)
	f.change(t, &f.removed)
	if f.isValid(t, byToken.Access) || !f.isValid(t, byCode.Access) || f.signIn(t, b, f.query(id), unused) == nil {
		t.Errorf("by a token: %v, by a code: %v", f.isValid(t, byToken.Access), f.isValid(t, byCode.Access))
	}
	if text := dump(t, f.db, "login_code"); strings.Contains(text, "bob") {
		t.Errorf("the codes of a missing tenant: %s", text)
	}
}

// TestMetadata: the metadata names this server's own paths, whatever host a request names.
// Promise: hosted-logins
func TestMetadata(t *testing.T) {
	f := newForge(t)
	_, body, h := f.send(t, f.browser(t), http.MethodGet, MetadataPath, "", "", "X-Forwarded-Host", "evil.example.com", "Forwarded", "host=evil.example.com")
	var got map[string]any
	testkit.Must(t, json.Unmarshal([]byte(body), &got))
	if got["issuer"] != f.url || got["token_endpoint"] != f.url+"/oauth/token" || fmt.Sprint(got["code_challenge_methods_supported"]) != "[S256]" || strings.Contains(body, "evil") || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", body, h)
	}
	if status, _, _ := f.send(t, f.browser(t), http.MethodGet, "/oauth/style.css", "", ""); status != http.StatusOK {
		t.Errorf("the style sheet: %d", status)
	}
}

// TestSecretsAreHashed: the database has no code, no cookie and no token, so a reader of it cannot log in.
// Promise: hosted-logins
func TestSecretsAreHashed(t *testing.T) {
	f := newForge(t)
	id, oneTime := f.registerAt(t, callback), mustCode(t, f)
	b := f.browser(t)
	waiting := f.signIn(t, b, f.query(id), annToken)
	p := f.exchange(t, id, f.code(t, id))
	code := f.code(t, id)
	secrets := map[string]string{"one-time code": oneTime, "access": p.Access, "refresh": p.Refresh, "family": familyOf(p.Refresh), "code": code, "form": waiting.Get("form"), "tenant's token": annToken}
	for _, table := range []string{"login_client", "login_code", "login_request", "login", "login_access"} {
		text := dump(t, f.db, table)
		if text == "" {
			t.Errorf("%s is empty", table)
		}
		for name, secret := range secrets {
			if secret == "" || strings.Contains(text, secret) {
				t.Errorf("%s has the %s %q", table, name, secret)
			}
		}
	}
}

func dump(t *testing.T, db *database.DB, table string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT * FROM `+table)
	testkit.Must(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	testkit.Must(t, err)
	var b strings.Builder
	for rows.Next() {
		row := make([]any, len(names))
		for i := range row {
			row[i] = new(sql.RawBytes)
		}
		testkit.Must(t, rows.Scan(row...))
		for _, one := range row {
			b.Write(*one.(*sql.RawBytes))
			b.WriteByte(' ')
		}
	}
	testkit.Must(t, rows.Err())
	return b.String()
}

// TestLoginBounds: a tenant's rows, and clients without a login, have bounds. The latest rows stay.
// Promise: hosted-logins
func TestLoginBounds(t *testing.T) {
	f := newForge(t)
	first := f.registerAt(t, callback)
	p := f.exchange(t, first, f.code(t, first))
	last := fillClients(t, f)
	count := func(table string) (n int) {
		testkit.Must(t, f.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		return n
	}
	if n := count("login_client"); n != maxUnused+1 {
		t.Errorf("%d clients", n)
	}
	if _, _, err := f.store.findClient(t.Context(), last); err != nil || !f.isValid(t, p.Access) {
		t.Errorf("the last client: %v", err)
	}
	for i := range maxLogins + 5 {
		testkit.Must(t, f.store.addRequest(t.Context(), fmt.Sprint("id", i), "cookie", request{client: first, tenant: "ann"}))
		testkit.Must(t, f.db.Transact(t.Context(), func(tx *sql.Tx) error {
			_, err := f.store.addLogin(t.Context(), tx, request{client: first, tenant: "ann"}, fmt.Sprint("code", i))
			return err
		}))
		mustCode(t, f)
	}
	for range 5 {
		p = f.renew(t, first, p.Refresh)
	}
	if a, b, c := count("login"), count("login_request"), count("login_code"); a != maxLogins || b != maxRequests || c != maxCodes {
		t.Errorf("%d logins, %d requests, %d codes", a, b, c)
	}
	f.wait(loginTime + time.Hour)
	mustCode(t, f)
	if list, err := f.ListLogins(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// fillClients registers more clients than may wait for their first login, and returns the last one.
func fillClients(t *testing.T, f *forge) (last string) {
	t.Helper()
	for i := range maxUnused + 10 {
		last = fmt.Sprint("client", i)
		_, err := f.store.addClient(t.Context(), client{last, "flood", []string{callback}})
		testkit.Must(t, err)
	}
	return last
}

// TestAddressLimit: many addresses together have a bound. A sender counts by the last address that a proxy has added, and
// a whole /48 counts as one.
// Promise: hosted-logins
func TestAddressLimit(t *testing.T) {
	l := addresslimit.New(0, 10, 1)
	passed := 0
	for i := range 500 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/oauth/login", nil)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.%d.%d", i/250, i%250))
		if !l.IsExceeded(addresslimit.AddressOf(r)) {
			passed++
		}
	}
	if passed < 55 || passed > 65 {
		t.Errorf("%d of 500 passed", passed)
	}
	for forwarded, want := range map[string]string{
		"": "192.0.2.1", "203.0.113.7": "203.0.113.7", "1.1.1.1, 203.0.113.7": "203.0.113.7", "2001:db8::1": "2001:db8::/48", "2001:db8:0:ffff::1": "2001:db8::/48", "2001:db8:1::1": "2001:db8:1::/48", "unknown": "unknown", "_hidden": "unknown", strings.Repeat("x", 5000): "unknown", "203.0.113.7:4711": "203.0.113.7", "[2001:db8::1]:4711": "2001:db8::/48",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/oauth/login", nil)
		if forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
		}
		if got := addresslimit.AddressOf(r); got != want {
			t.Errorf("%q: %s, want %s", forwarded, got, want)
		}
	}
}

// TestRedirects: only https and loopback addresses are registered, and an address matches by every character. The port of
// a loopback host is free.
// Promise: hosted-logins
func TestRedirects(t *testing.T) {
	for _, bad := range []string{
		"", "javascript:alert(1)", "javascript://client.example.com/%0aalert(1)", "data:text/html,x", "cursor://callback", "http://client.example.com/", "https://", "https:///callback", "//client.example.com/",
		"https://a@client.example.com/", "https://client.example.com/#x", "https://client.example.com/#", "https://client.example.com/\n", "https://client.example.com/ ;x", "https://client.example.com/\"", "https://client.example.com;frame-ancestors",
		"https://cliént.example.com/", "http://127.0.0.1.example.com/", "http://localhost.example.com/", "http://0.0.0.0/", "https://" + strings.Repeat("a", 1000), "https:client.example.com", "https://[fe80::1%25eth0]/",
	} {
		if !isBadRedirect(bad) {
			t.Errorf("%q may be registered", bad)
		}
	}
	c := client{Redirects: []string{callback, "http://127.0.0.1:3000/cb", "http://localhost/cb", "http://[::1]:1/cb?x=1"}}
	for text, want := range map[string]bool{
		callback: true, callback + "/": false, callback + "?a=b": false, callback + "/../evil": false, strings.ToUpper(callback): false, "https://client.example.com:443/callback": false, "https://client.example.com.evil.com/callback": false,
		"https://client.example.com/callback#x": false, "http://client.example.com/callback": false,
		"http://127.0.0.1:3000/cb": true, "http://127.0.0.1:9/cb": true, "http://127.0.0.1/cb": true, "http://127.0.0.1:9/evil": false, "http://127.0.0.2:9/cb": false, "https://127.0.0.1:9/cb": false, "http://127.0.0.1:9@evil.com/cb": false,
		"http://localhost:8/cb": true, "http://localhost:8/cb?x": false, "http://[::1]:7/cb?x=1": true, "http://[::1]:7/cb": false, "": false,
	} {
		if got := c.hasRedirect(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestReplicas: two servers on one Postgres have the same clients, codes and logins. Of two at the same time, one at most
// gets tokens for a code or for a refresh token, and then the login has ended. A removed token ends its logins on both.
// Promise: hosted-logins
func TestReplicas(t *testing.T) {
	store := testkit.NewPostgres(t)
	open := func() *database.DB {
		db, err := database.OpenPostgres(secret.New(store.URL()))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		testkit.Must(t, db.Migrate(t.Context(), database.Migrations))
		return db
	}
	a := newForgeOn(t, open(), "")
	b := newForgeOn(t, open(), a.url)
	id := a.registerAt(t, callback)
	w := b.browser(t)
	to := b.approve(t, w, b.signIn(t, w, b.query(id), mustCode(t, a)))
	p := a.exchange(t, id, to.Query().Get("code"))
	if !b.isValid(t, p.Access) {
		t.Fatalf("%+v %s", p, b.log)
	}
	both := func(do func(f *forge) pair) (got []pair) {
		t.Helper()
		answers := make(chan pair, 2)
		for _, f := range []*forge{a, b} {
			go func() { answers <- do(f) }()
		}
		for range 2 {
			if p := <-answers; p.Access != "" {
				got = append(got, p)
			}
		}
		return got
	}
	if got := both(func(f *forge) pair { return f.renew(t, id, p.Refresh) }); len(got) > 1 || a.isValid(t, p.Access) || len(got) == 1 && (b.isValid(t, got[0].Access) || b.renew(t, id, got[0].Refresh).Access != "") {
		t.Errorf("two renewals: %+v", got)
	}
	for range 10 {
		code := a.code(t, id)
		if got := both(func(f *forge) pair { return f.exchange(t, id, code) }); len(got) > 1 || len(got) == 1 && a.isValid(t, got[0].Access) {
			t.Fatalf("two exchanges: %+v", got)
		}
	}
	last := b.exchange(t, id, b.code(t, id))
	a.change(t, &a.removed)
	if b.isValid(t, last.Access) {
		t.Error("a login by a token that was removed and added again")
	}
	list, err := b.ListLogins(t.Context())
	if err != nil || slices.ContainsFunc(list, func(l Login) bool { return l.Client.Name != "Claude" }) {
		t.Errorf("%+v %v", list, err)
	}
}
