package authserver

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

const evil = "https://evil.example.com/callback"

// attack is one attempt to get access, or to lead a user astray. run reports whether it succeeded.
type attack struct {
	name string
	// defence is the only defence that stops it, or why there is no control, in parentheses.
	defence string
	run     func(t *testing.T, f *forge) bool
}

// atLogin returns an attack by an authorization request with changes: it succeeds if the login page comes.
func atLogin(changes ...string) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool {
		t.Helper()
		return f.open(t, f.browser(t), f.query(f.registerAt(t, callback), changes...)) != nil
	}
}

// atToken returns an attack by a code with changed parameters.
func atToken(more ...string) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool {
		t.Helper()
		id := f.registerAt(t, callback)
		return f.exchange(t, id, f.code(t, id), more...).Access != ""
	}
}

// atConsent returns an attack by a browser that sends the user's consent form with another Origin.
func atConsent(origin string) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool {
		t.Helper()
		b := f.browser(t)
		v := f.signIn(t, b, f.query(f.registerAt(t, callback)), annToken)
		v.Set("decision", "approve")
		_, _, h := f.send(t, b, http.MethodPost, "/oauth/decide", form, v.Encode(), "Origin", origin)
		_, _, again := f.post(t, b, "/oauth/decide", v) // the user's own decision, unless the attack has used the form
		return h.Get("Location") != "" || again.Get("Location") == ""
	}
}

// atRegistration returns an attack by a redirect URI.
func atRegistration(redirect string) func(t *testing.T, f *forge) bool {
	return func(t *testing.T, f *forge) bool { t.Helper(); return f.registerAt(t, redirect) != "" }
}

// attacks are the attacks of TestLoginAttacks and TestDisarmed.
var attacks = []attack{
	{"a code of another client", "client-code", func(t *testing.T, f *forge) bool {
		victim, thief := f.registerAt(t, callback), f.registerAt(t, callback)
		return f.exchange(t, thief, f.code(t, victim)).Access != ""
	}},
	{"a code used again, then the tokens of its first use", "client-replay", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		code := f.code(t, id)
		p := f.exchange(t, id, code)
		return f.exchange(t, id, code).Access != "" || f.isValid(t, p.Access) || f.renew(t, id, p.Refresh).Access != ""
	}},
	{"a code used again with a wrong verifier", "client-replay", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		code := f.code(t, id)
		first := f.exchange(t, id, code, "code_verifier", strings.Repeat("x", 43))
		return first.Access != "" || f.exchange(t, id, code).Access != ""
	}},
	{"a code after a minute", "client-expiry", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		code := f.code(t, id)
		f.wait(codeTime + time.Second)
		return f.exchange(t, id, code).Access != ""
	}},
	{"no challenge", "client-challenge", atLogin("code_challenge", "", "code_challenge_method", "")},
	{"the method plain", "client-challenge", atLogin("code_challenge_method", "plain")},
	{"no method, which means plain", "client-challenge", atLogin("code_challenge_method", "")},
	{"a short challenge", "client-challenge", atLogin("code_challenge", "abc")},
	{"a challenge that Postgres refuses after the sign-in", "client-challenge", atLogin("code_challenge", strings.Repeat("\x00", 43))},
	{"a wrong verifier", "client-verifier", atToken("code_verifier", strings.Repeat("x", 43))},
	{"no verifier", "client-verifier", atToken("code_verifier", "")},
	{"the challenge as the verifier", "client-verifier", func(t *testing.T, f *forge) bool {
		v, _ := url.ParseQuery(f.query(""))
		return atToken("code_verifier", v.Get("code_challenge"))(t, f)
	}},
	{"another redirect URI", "client-redirect", atLogin("redirect_uri", evil)},
	{"a longer redirect URI", "client-redirect", atLogin("redirect_uri", callback+"/evil")},
	{"a redirect URI with a query", "client-redirect", atLogin("redirect_uri", callback+"?to="+evil)},
	{"a redirect URI of another subdomain", "client-redirect", atLogin("redirect_uri", "https://client.example.com.evil.com/callback")},
	{"no redirect URI", "client-redirect", atLogin("redirect_uri", "")},
	{"another redirect URI at the token endpoint", "client-redirect", atToken("redirect_uri", evil)},
	{"a redirect URI of javascript", "client-scheme", atRegistration("javascript://client.example.com/%0aalert(1)")},
	{"a redirect URI of an app", "client-scheme", atRegistration("cursor://client.example.com/callback")},
	{"a redirect URI without TLS", "client-scheme", atRegistration("http://client.example.com/callback")},
	{"a redirect URI with a user", "client-url", atRegistration("https://claude.ai@evil.example.com/")},
	{"a redirect by a mistake, as an open redirect", "(no code leads back)", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, evil)
		for _, changes := range [][]string{{"response_type", "token"}, {"scope", "x\ny", "state", "\x00"}, {"resource", "https://other.example.com/mcp"}, {"code_challenge", ""}, {"prompt", "none", "response_mode", "fragment"}} {
			status, page, h := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(id, append(changes, "redirect_uri", evil)...), "", "")
			if status != http.StatusBadRequest || h.Get("Location") != "" || strings.Contains(page, "evil.example.com") {
				return true
			}
		}
		return false
	}},
	{"an answer without its issuer, for a mix-up", "client-issuer", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		return f.approve(t, b, f.signIn(t, b, f.query(f.registerAt(t, callback)), annToken)).Query().Get("iss") != f.url
	}},
	{"the resource of another server", "client-resource", atLogin("resource", "https://other.example.com/mcp")},
	{"the resource of a path beside the endpoint", "client-resource", atLogin("resource", "https://forge.example.com/mcp/other")},
	{"the resource of another server at the token endpoint", "client-resource", atToken("resource", "https://other.example.com/mcp")},
	{"two resources", "client-repeated", func(t *testing.T, f *forge) bool {
		return f.open(t, f.browser(t), f.query(f.registerAt(t, callback))+"&resource=https%3A%2F%2Fother.example.com%2Fmcp") != nil
	}},
	{"two redirect URIs", "client-repeated", func(t *testing.T, f *forge) bool {
		return f.open(t, f.browser(t), f.query(f.registerAt(t, callback))+"&redirect_uri="+url.QueryEscape(evil)) != nil
	}},
	{"an unknown client", "(it has no redirect URI either)", func(t *testing.T, f *forge) bool { return f.open(t, f.browser(t), f.query("unknown")) != nil }},
	{"the implicit grant", "client-kind", atLogin("response_type", "token")},
	{"a request object", "client-kind", atLogin("request_uri", "https://evil.example.com/request")},
	{"parameters of a token in the address", "client-body", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		v := url.Values{"grant_type": {"authorization_code"}, "client_id": {id}, "code": {f.code(t, id)}, "code_verifier": {verifier}}
		_, body, _ := f.send(t, f.browser(t), http.MethodPost, "/oauth/token?"+v.Encode(), form, "")
		return strings.Contains(body, "access_token")
	}},
	{"a refresh token used again, then its successor", "client-reuse", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		next := f.renew(t, id, p.Refresh)
		return f.renew(t, id, p.Refresh).Access != "" || f.isValid(t, next.Access) || f.renew(t, id, next.Refresh).Access != ""
	}},
	{"a refresh token of another client", "client-owner", func(t *testing.T, f *forge) bool {
		victim, thief := f.registerAt(t, callback), f.registerAt(t, callback)
		p := f.exchange(t, victim, f.code(t, victim))
		return f.renew(t, thief, p.Refresh).Access != "" || f.renew(t, "", p.Refresh).Access != "" || f.renew(t, "\x00\xff", p.Refresh).Access != ""
	}},
	{"a refresh token after thirty days", "client-expiry", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		f.wait(loginTime + time.Second)
		return f.renew(t, id, p.Refresh).Access != ""
	}},
	{"an access token after an hour", "client-expiry", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		f.wait(accessTime + time.Second)
		return f.isValid(t, p.Access)
	}},
	{"other secrets as an access token", "(no row has its hash)", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		return slices.ContainsFunc([]string{"", p.Refresh, f.code(t, id), id, mustCode(t, f), p.Access + "x", hashSecret(p.Access), "cf_access_"}, func(s string) bool { return f.isValid(t, s) })
	}},
	{"a token of a login whose tenant's token was removed", "client-tenant", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		f.mu.Lock()
		f.removed = true
		f.mu.Unlock()
		return f.isValid(t, p.Access)
	}},
	{"a renewal after the tenant's token was removed", "client-tenant", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		f.mu.Lock()
		f.removed = true
		f.mu.Unlock()
		return f.renew(t, id, p.Refresh).Access != ""
	}},
	{"a login by a token that was removed and added again", "client-unowned", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p, code := f.exchange(t, id, f.code(t, id)), f.code(t, id)
		f.change(t, &f.removed)
		return f.isValid(t, p.Access) || f.renew(t, id, p.Refresh).Access != "" || f.exchange(t, id, code).Access != ""
	}},
	{"a login by a one-time code of a tenant that was removed and added again", "client-unowned", func(t *testing.T, f *forge) bool {
		id, unused, b := f.registerAt(t, callback), mustCode(t, f), f.browser(t)
		p := f.exchange(t, id, f.approve(t, b, f.signIn(t, b, f.query(id), mustCode(t, f))).Query().Get("code"))
		f.change(t, &f.gone)
		return f.isValid(t, p.Access) || f.renew(t, id, p.Refresh).Access != "" || f.signIn(t, f.browser(t), f.query(id), unused) != nil
	}},
	{"the revocation of a token by another client", "client-owner", func(t *testing.T, f *forge) bool {
		victim, thief := f.registerAt(t, callback), f.registerAt(t, callback)
		p := f.exchange(t, victim, f.code(t, victim))
		f.send(t, f.browser(t), http.MethodPost, "/oauth/revoke", form, url.Values{"token": {p.Access}, "client_id": {thief}}.Encode())
		return !f.isValid(t, p.Access)
	}},
	{"consent from another page", "client-origin", atConsent("https://evil.example.com")},
	{"consent from a page without an origin", "client-origin", atConsent("null")},
	{"consent without an Origin", "client-origin", atConsent("")},
	{"a sign-in from another page", "client-origin", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		v := f.open(t, b, f.query(f.registerAt(t, callback)))
		v.Set("secret", annToken)
		before := dump(t, f.db, "login_request")
		status, _, _ := f.post(t, b, "/oauth/login", v, "Origin", "https://evil.example.com")
		return status == http.StatusOK || dump(t, f.db, "login_request") != before
	}},
	{"a sign-in with the form of another browser", "client-form", func(t *testing.T, f *forge) bool {
		b, query := f.browser(t), f.query(f.registerAt(t, callback))
		v := f.open(t, b, query)
		v.Set("form", f.open(t, f.browser(t), query).Get("form"))
		v.Set("secret", annToken)
		status, _, _ := f.post(t, b, "/oauth/login", v)
		return status == http.StatusOK
	}},
	{"a sign-in without the cookie", "client-form", func(t *testing.T, f *forge) bool {
		v := f.open(t, f.browser(t), f.query(f.registerAt(t, callback)))
		v.Set("secret", annToken)
		v.Set("form", formToken(""))
		status, _, _ := f.post(t, f.browser(t), "/oauth/login", v)
		return status == http.StatusOK
	}},
	{"consent for the request of another browser", "client-form", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		attacker, user := f.browser(t), f.browser(t)
		v := f.signIn(t, attacker, f.query(id), annToken)
		f.open(t, user, f.query(id)) // has a cookie too
		return f.approve(t, user, v).Query().Has("code") || f.approve(t, f.browser(t), v).Query().Has("code")
	}},
	{"consent without a sign-in", "(there is no request to approve)", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		v := f.open(t, b, f.query(f.registerAt(t, callback)))
		return f.approve(t, b, v).Query().Has("code") || f.approve(t, b, url.Values{}).Query().Has("code")
	}},
	{"one form of consent sent twice", "(the row has another hash, and no cookie)", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		v := f.signIn(t, b, f.query(f.registerAt(t, callback)), annToken)
		return !f.approve(t, b, v).Query().Has("code") || f.approve(t, b, v).Query().Has("code")
	}},
	{"a code for the client as a form of consent", "client-form", func(t *testing.T, f *forge) bool {
		code := f.code(t, f.registerAt(t, callback))
		return f.approve(t, f.browser(t), url.Values{"form": {code}}).Query().Has("code")
	}},
	{"consent after ten minutes", "client-expiry", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		v := f.signIn(t, b, f.query(f.registerAt(t, callback)), annToken)
		f.wait(approveTime + time.Second)
		return f.approve(t, b, v).Query().Has("code")
	}},
	{"a request changed between its page and the sign-in", "client-redirect", func(t *testing.T, f *forge) bool {
		b, id := f.browser(t), f.registerAt(t, callback)
		v := f.open(t, b, f.query(id))
		v.Set("query", f.query(id, "redirect_uri", evil))
		v.Set("secret", annToken)
		status, _, _ := f.post(t, b, "/oauth/login", v)
		return status == http.StatusOK
	}},
	{"a page in a frame", "client-frames", func(t *testing.T, f *forge) bool {
		_, _, h := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(f.registerAt(t, callback)), "", "")
		return !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("X-Frame-Options") != "DENY"
	}},
	{"a page from a cache, or its address as a referrer", "client-cache", func(t *testing.T, f *forge) bool {
		_, _, h := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(f.registerAt(t, callback)), "", "")
		return h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "same-origin"
	}},
	{"the cookie over plain HTTP, from scripts or from other sites", "client-cookie", func(t *testing.T, f *forge) bool {
		_, _, h := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(f.registerAt(t, callback)), "", "")
		c, err := http.ParseSetCookie(h.Get("Set-Cookie"))
		return err != nil || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || !strings.HasPrefix(c.Name, "__Host-") || c.Domain != "" || c.Path != "/"
	}},
	{"thirty guesses of one address", "client-attempts", func(t *testing.T, f *forge) bool {
		b := f.browser(t)
		v := f.open(t, b, f.query(f.registerAt(t, callback)))
		judged := 0
		for i := range 30 {
			v.Set("secret", fmt.Sprintf("AAAA-AAAA-%04d", i))
			if status, _, _ := f.post(t, b, "/oauth/login", v, "X-Forwarded-For", "203.0.113.7"); status == http.StatusForbidden {
				judged++
			}
		}
		return judged > 12
	}},
	{"a hundred registrations of one address", "client-flood", func(t *testing.T, f *forge) bool {
		n := 0
		for range 90 {
			if f.register(t, map[string]any{"redirect_uris": []string{callback}}, "X-Forwarded-For", "203.0.113.7") != "" {
				n++
			}
		}
		return n > 12
	}},
	{"registrations that fill the database", "client-room", func(t *testing.T, f *forge) bool {
		fillClients(t, f)
		var n int
		if err := f.db.QueryRowContext(t.Context(), `SELECT count(*) FROM login_client`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > maxUnused
	}},
	{"registrations of odd and of too much metadata", "client-metadata", func(t *testing.T, f *forge) bool {
		many := slices.Repeat([]string{callback}, maxRedirects+1)
		for _, m := range []map[string]any{
			{}, {"redirect_uris": []string{}}, {"redirect_uris": many}, {"redirect_uris": callback}, {"redirect_uris": []any{1}}, {"redirect_uris": []string{callback}, "client_name": strings.Repeat("a", maxBody)},
			{"redirect_uris": []string{callback}, "response_types": []string{"token"}}, {"redirect_uris": []string{callback}, "grant_types": []string{"password"}}, {"redirect_uris": []string{callback, evil + "#"}},
		} {
			if f.register(t, m, "X-Forwarded-For", fmt.Sprint("203.0.113.", len(fmt.Sprint(m))%200)) != "" {
				return true
			}
		}
		status, _, _ := f.send(t, f.browser(t), http.MethodPost, "/oauth/register", "text/plain", `{"redirect_uris": ["`+callback+`"]}`)
		return status == http.StatusCreated
	}},
	{"markup and hidden characters in a client's name", "client-name", func(t *testing.T, f *forge) bool {
		name := "<script>alert(1)</script>\"'>\u202eedualC\u200b\x1b[31m" + strings.Repeat("long ", 100)
		id := f.register(t, map[string]any{"client_name": name, "redirect_uris": []string{callback}})
		_, page, _ := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(id), "", "")
		return id == "" || strings.Contains(page, "<script") || strings.ContainsAny(page, "\u202e\u200b\x1b") || strings.Count(page, "long ") > 20
	}},
	{"markup in parameters", "(html/template escapes each value)", func(t *testing.T, f *forge) bool {
		_, page, _ := f.send(t, f.browser(t), http.MethodGet, "/oauth/authorize?"+f.query(f.registerAt(t, callback), "state", `"><script>alert(1)</script>`), "", "")
		return strings.Contains(page, "<script")
	}},
	{"a state that splits headers", "(the Location is encoded too)", atLogin("state", "a\r\nSet-Cookie: b")},
	{"a one-time code used twice", "client-once", func(t *testing.T, f *forge) bool {
		id, code := f.registerAt(t, callback), mustCode(t, f)
		b := f.browser(t)
		if f.signIn(t, b, f.query(id), code) == nil {
			t.Fatal("the code does not work")
		}
		return f.signIn(t, b, f.query(id), code) != nil
	}},
	{"a stolen refresh token, used before its client gives it back", "client-reuse", func(t *testing.T, f *forge) bool {
		id := f.registerAt(t, callback)
		p := f.exchange(t, id, f.code(t, id))
		stolen := f.renew(t, id, p.Refresh)
		if !f.isValid(t, stolen.Access) {
			t.Fatal("the token cannot be renewed")
		}
		f.send(t, f.browser(t), http.MethodPost, "/oauth/revoke", form, url.Values{"token": {p.Refresh}, "client_id": {id}}.Encode())
		return f.isValid(t, stolen.Access) || f.renew(t, id, stolen.Refresh).Access != ""
	}},
	{"a one-time code typed at another client with the same name", "client-bound", func(t *testing.T, f *forge) bool {
		code := mustCode(t, f)
		for _, other := range []string{
			evil, "https://client.example.com.evil.test/", "https://client.example.com:8443/callback", "http://localhost/callback",
			"https://example.com/callback", "https://x.client.example.com/callback",
		} {
			id := f.register(t, map[string]any{"client_name": "Claude", "redirect_uris": []string{other}})
			b := f.browser(t)
			v := f.open(t, b, f.query(id, "redirect_uri", other))
			v.Set("secret", code)
			status, page, _ := f.post(t, b, "/oauth/login", v)
			if status == http.StatusOK {
				return true
			}
			if !strings.Contains(page, "for another client") {
				t.Fatalf("%s: %d %s", other, status, page)
			}
		}
		// Its own client still gets it.
		if f.signIn(t, f.browser(t), f.query(f.registerAt(t, callback)), code) == nil {
			t.Fatal("the code does not work any more")
		}
		return false
	}},
	{"a one-time code for every host", "client-bound", func(t *testing.T, f *forge) bool {
		return slices.ContainsFunc([][]string{nil, {}, {""}, {"client.example.com", "*"}, {"a b"}}, func(hosts []string) bool {
			_, err := f.NewOneTimeCode(t.Context(), "ann", hosts)
			return err == nil
		})
	}},
	{"a one-time code after ten minutes", "client-expiry", func(t *testing.T, f *forge) bool {
		id, code := f.registerAt(t, callback), mustCode(t, f)
		f.wait(oneTimeTime + time.Second)
		return f.signIn(t, f.browser(t), f.query(id), code) != nil
	}},
	{"a sign-in without a secret", "(no tenant has it, and no row has its hash)", func(t *testing.T, f *forge) bool {
		mustCode(t, f)
		id := f.registerAt(t, callback)
		return slices.ContainsFunc([]string{"", " ", "----", "%", "ann", hashSecret(annToken), "' OR 1=1 --"}, func(s string) bool { return f.signIn(t, f.browser(t), f.query(id), s) != nil })
	}},
}

// TestLoginAttacks: no attack succeeds.
// Promise: hosted-logins
func TestLoginAttacks(t *testing.T) {
	for _, a := range slices.Concat(attacks, documentAttacks) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t)
			if a.run(t, f) {
				t.Errorf("the attack succeeds\n%s", f.log)
			}
		})
	}
}
