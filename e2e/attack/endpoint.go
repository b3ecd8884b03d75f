package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// call is one HTTP request to the MCP endpoint.
type call struct {
	method, path, host, body string
	header                   map[string]string
	// stranger leaves out the world's token.
	stranger bool
}

func (c call) send(ctx context.Context, w *world.World) (int, string, http.Header, error) {
	url := strings.TrimSuffix(w.URL, "/mcp") + or(c.path, "/mcp")
	req, err := http.NewRequestWithContext(ctx, or(c.method, http.MethodPost), url, strings.NewReader(or(c.body, initialize)))
	if err != nil {
		return 0, "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	req.Close = true // every call has a client of its own, which would keep its connection
	if c.host != "" {
		req.Host = c.host
	}
	client := w.HTTP()
	if c.stranger {
		client = w.Stranger()
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(text), resp.Header, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// endpoint are attempts on the MCP endpoint from outside the sandbox.
func endpoint() []Attack {
	one := func(name, expected string, c call, statuses ...int) Attack {
		return Attack{Section: "E", Name: name, Expected: expected, Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			status, text, _, err := c.send(ctx, w)
			if err != nil {
				return clip(err.Error(), 80), len(statuses) > 1 && statuses[1] == 0 && alive(ctx, w)
			}
			seen := fmt.Sprintf("%d %s", status, clip(strings.TrimSpace(text), 50))
			for _, s := range statuses {
				if s == status {
					return seen, alive(ctx, w)
				}
			}
			return seen, false
		}}
	}
	h := func(k, v string) map[string]string { return map[string]string{k: v} }
	return []Attack{
		one("foreign Host", "403", call{host: "evil.test"}, 403),
		one("foreign Host with our port", "403", call{host: "evil.test:8080"}, 403),
		one("Host that ends in localhost", "403", call{host: "evil.localhost"}, 403),
		one("Host that starts with localhost", "403", call{host: "localhost.evil.test"}, 403),
		one("Host with userinfo", "refused", call{host: "localhost@evil.test"}, 403, 400),
		one("Host of the machine's address", "403", call{host: "10.99.0.1"}, 403),
		one("Host 0.0.0.0", "403", call{host: "0.0.0.0"}, 403),
		one("foreign Origin", "403", call{header: h("Origin", "https://evil.test")}, 403),
		one("Origin null", "403", call{header: h("Origin", "null")}, 403),
		one("Origin of another port", "403", call{header: h("Origin", "http://localhost:3000")}, 403),
		one("Origin of a similar name", "403", call{header: h("Origin", "http://127.0.0.1.evil.test")}, 403),
		one("Sec-Fetch-Site cross-site", "403", call{header: h("Sec-Fetch-Site", "cross-site")}, 403),
		one("Sec-Fetch-Site same-site", "403", call{header: h("Sec-Fetch-Site", "same-site")}, 403),
		one("text/plain, as a form of a web page sends it", "refused", call{header: h("Content-Type", "text/plain")}, 415, 400, 403),
		one("preflight", "no CORS", call{method: http.MethodOptions, header: h("Origin", "https://evil.test")}, 403, 405),
		one("foreign Origin on other paths", "403", call{method: http.MethodGet, path: "/healthz", host: "evil.test"}, 403),
		one("session of somebody", "a new, empty session", call{body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header: h("Mcp-Session-Id", "AAAAAAAAAAAAAAAAAAAAAAAAAA")}, 200),
		one("session id of another form", "404", call{body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header: h("Mcp-Session-Id", "../AAAAAAAAAAAAAAAAAAAAAAA")}, 404),
		one("deleting the session of somebody", "404", call{method: http.MethodDelete, header: h("Mcp-Session-Id", "BBBBBBBBBBBBBBBBBBBBBBBBBB")}, 404, 400),
		one("body of 64 MiB", "413 or cut", call{body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"` + strings.Repeat("x", 64<<20) + `"}}}`}, 413, 0),
		one("JSON nested 200,000 deep", "400", call{body: strings.Repeat("[", 200000)}, 400, 413),
		one("objects nested 200,000 deep", "400", call{body: strings.Repeat(`{"a":`, 200000) + "1" + strings.Repeat("}", 200000)}, 400, 413),
		one("no JSON", "400", call{body: "hello"}, 400),
		one("invalid UTF-8", "an error or harmless", call{body: strings.Replace(initialize, `"name":"x"`, "\"name\":\"\xff\xfe\"", 1)}, 400, 200),
		one("batch of 20,000 calls", "refused or bounded", call{body: "[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 20000), ",") + "]", header: h("Mcp-Protocol-Version", "2025-03-26")}, 400, 413, 403, 429),
		one("unknown protocol version", "400", call{header: h("Mcp-Protocol-Version", "1999-01-01")}, 400, 200),
		one("unknown path", "404", call{path: "/admin"}, 404),
		one("debug path", "404", call{method: http.MethodGet, path: "/debug/pprof/"}, 404),
		one("path with dots", "refused", call{path: "/mcp/../../etc/passwd"}, 404, 400, 301, 307),
		one("private header of ours", "ignored", call{header: h("X-Codeforge-Context", "1")}, 200),
		one("console: its API without a session", "401", call{method: http.MethodGet, path: "/console/api/settings"}, 401),
		one("console: its API with a session of somebody", "401", call{method: http.MethodGet, path: "/console/api/runs", header: h("Authorization", "Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")}, 401),
		one("console: its API as the page of another port", "403", call{method: http.MethodGet, path: "/console/api/settings", header: h("Sec-Fetch-Site", "same-site")}, 403),
		one("console: signing in from another page", "403", call{path: "/console/api/session", body: `{"secret": "x"}`, header: h("Origin", "https://evil.test")}, 403),
		one("console: signing in with a form", "415", call{path: "/console/api/session", body: `{"secret": "x"}`, header: h("Content-Type", "text/plain")}, 415),
		one("console: in a frame of another page", "403", call{method: http.MethodGet, path: "/console", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}}, 403),
		one("console: under a foreign name", "403", call{method: http.MethodGet, path: "/console", host: "evil.test"}, 403),
		one("console: a way in over the address", "404", call{path: "/operator/v1/console"}, 404),
		one("console: a session's bearer in the address", "401", call{method: http.MethodGet, path: "/console/api/settings?access_token=AAAA&code=AAAA"}, 401),
		{Section: "E", Name: "console: a session that somebody has ended", Expected: "401", Do: endedSession},
		{Section: "E", Name: "console: a code used twice", Expected: "401", Do: codeTwice},
		{Section: "E", Name: "console: a page without a policy", Expected: "no script but its own files", Do: noPolicy},
		{Section: "E", Name: "1,000 sessions", Expected: "bounded, the server stays up", Alone: true, Seconds: 60, Do: manySessions},
		{Section: "E", Name: "a client that stops reading", Expected: "others are served", Do: deaf},
		{Section: "E", Name: "slow headers, 200 connections", Expected: "others are served", Do: slowloris},
		{Section: "E", Name: "cancelling somebody else's call", Expected: "it goes on", Do: cancelOther},
		{Section: "E", Name: "arguments of wrong types", Expected: "an error each, the server stays up", Do: wrongArguments},
	}
}

// alive returns true if a new session lists execute_code.
func alive(ctx context.Context, w *world.World) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	s, err := w.Connect(ctx)
	if err != nil {
		return false
	}
	defer s.Close()
	tools, err := s.ListTools(ctx, nil)
	return err == nil && slices.ContainsFunc(tools.Tools, func(t *mcp.Tool) bool { return t.Name == "execute_code" })
}

func manySessions(ctx context.Context, w *world.World) (string, bool) {
	const clients, each = 10, 100
	var mu sync.Mutex
	statuses := map[int]int{}
	var ids []string
	var open, closing sync.WaitGroup
	for range clients {
		open.Go(func() {
			for range each {
				status, _, header, err := call{}.send(ctx, w)
				mu.Lock()
				if err == nil {
					ids = append(ids, header.Get("Mcp-Session-Id"))
				}
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	open.Wait()
	ok := alive(ctx, w)
	for n := range clients {
		closing.Go(func() {
			for i := n; i < len(ids); i += clients {
				_, _, _, _ = call{method: http.MethodDelete, header: map[string]string{"Mcp-Session-Id": ids[i]}}.send(ctx, w)
			}
		})
	}
	closing.Wait()
	return fmt.Sprintf("statuses %v, then served: %v", statuses, ok), ok
}

// deaf starts a run with much output and never reads its answer.
func deaf(ctx context.Context, w *world.World) (string, bool) {
	status, _, header, err := call{}.send(ctx, w)
	if err != nil || status != http.StatusOK {
		return fmt.Sprint(status, err), false
	}
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"progressToken":"p"},"name":"execute_code","arguments":{"timeout":6,"code":"for(;;){console.log('x'.repeat(1000)); await new Promise(r => setTimeout(r, 1))}"}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader([]byte(body)))
	if err != nil {
		return err.Error(), false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	resp, err := w.HTTP().Do(req)
	if err != nil {
		return err.Error(), false
	}
	defer resp.Body.Close()
	r, err := w.Execute(ctx, "console.log('served')")
	return "meanwhile: " + clip(r.Out, 20), err == nil && r.Out == "served\n"
}

// slowloris opens connections that send a byte of a header now and then.
func slowloris(ctx context.Context, w *world.World) (string, bool) {
	for range 200 {
		c, err := w.Dial(ctx)
		if err != nil {
			return err.Error(), false
		}
		defer c.Close()
		_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	}
	time.Sleep(time.Second)
	r, err := w.Execute(ctx, "console.log('served')")
	return "meanwhile: " + clip(r.Out, 20), err == nil && r.Out == "served\n"
}

// cancelOther sends, in a session of its own, cancellations for every call that another session may have under way.
func cancelOther(ctx context.Context, w *world.World) (string, bool) {
	victim, err := w.Connect(ctx)
	if err != nil {
		return err.Error(), false
	}
	defer victim.Close()
	started := mark()
	ran := make(chan string, 1)
	go func() {
		r, err := w.Do(ctx, victim, world.Run{Timeout: 25, Code: fmt.Sprintf(`Deno.writeTextFileSync("/tmp/%[1]s", ""); for (let i = 0; i < 400; i++) { try { Deno.statSync("/tmp/%[1]s-go"); break; } catch { await new Promise((d) => setTimeout(d, 50)); } } Deno.removeSync("/tmp/%[1]s"); console.log("ran to its end");`, started)})
		ran <- fmt.Sprint(strings.TrimSpace(r.Out), " ", err)
	}()
	if _, err := w.Execute(ctx, fmt.Sprintf(`for (let i = 0; i < 400; i++) { try { Deno.statSync("/tmp/%s"); break; } catch { await new Promise((d) => setTimeout(d, 50)); } }`, started)); err != nil {
		return err.Error(), false
	}
	_, _, header, err := call{}.send(ctx, w)
	if err != nil {
		return err.Error(), false
	}
	for id := range 20 {
		c := call{header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}, body: fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)}
		if _, _, _, err := c.send(ctx, w); err != nil {
			return err.Error(), false
		}
	}
	if _, err := w.Execute(ctx, fmt.Sprintf(`Deno.writeTextFileSync("/tmp/%s-go", "")`, started)); err != nil {
		return err.Error(), false
	}
	seen := <-ran
	return seen, seen == "ran to its end <nil>"
}

// wrongArguments calls the tools with what no schema allows.
func wrongArguments(ctx context.Context, w *world.World) (string, bool) {
	_, _, header, err := call{}.send(ctx, w)
	if err != nil {
		return err.Error(), false
	}
	n := 0
	for _, arguments := range []string{
		`{}`, `[]`, `null`, `"x"`, `{"code":1}`, `{"code":null}`, `{"code":["x"]}`, `{"code":"1","timeout":-1}`, `{"code":"1","timeout":1e308}`,
		`{"code":"1","apis":["no-such-api"]}`, `{"code":"1","apis":[1]}`, `{"code":"1","apis":["../httpbin"]}`, `{"code":"1","extra":true}`, `{"code":"` + strings.Repeat("x", 5<<20) + `"}`,
	} {
		body := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"execute_code","arguments":` + arguments + `}}`
		_, text, _, err := call{body: body, header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}}.send(ctx, w)
		if err == nil && strings.Contains(text, `"exited"`) {
			return "ran with " + clip(arguments, 40), false
		}
		if err == nil && !strings.Contains(text, "rror") && !strings.Contains(text, "too large") {
			return clip(arguments, 40) + " gave " + clip(text, 80), false
		}
		n++
	}
	return fmt.Sprintf("%d errors", n), alive(ctx, w)
}

// strangers are callers without the right to call: without the bearer token where one is set, or of another user of the
// machine where none is.
func strangers() []Attack {
	with := func(name, expected string, status int, header map[string]string) Attack {
		return Attack{Section: "E", Name: name, Expected: expected, Token: true, Do: func(ctx context.Context, w *world.World) (string, bool) {
			got, _, _, err := call{header: header, stranger: true}.send(ctx, w)
			return fmt.Sprint(got, " ", err), err == nil && got == status
		}}
	}
	h := func(v string) map[string]string { return map[string]string{"Authorization": v} }
	const no = http.StatusUnauthorized
	return []Attack{
		with("control: the right bearer", "200", http.StatusOK, h("Bearer "+Token)),
		with("no bearer where one is set", "401", no, nil),
		with("a wrong bearer", "401", no, h("Bearer "+Token+"x")),
		with("a part of the bearer", "401", no, h("Bearer "+Token[:8])),
		with("an empty bearer", "401", no, h("Bearer ")),
		with("the bearer as Basic", "401", no, h("Basic "+Token)),
		with("the bearer twice", "401", no, h("Bearer "+Token+" "+Token)),
		otherUser("another user of the machine", call{}),
		otherUser("console: another user of the machine", call{method: http.MethodGet, path: "/console"}),
	}
}

// Token is the bearer token of the world in which attacks with Token are mounted.
const Token = "correct-horse-battery-staple"

// otherUser sends a request as another user of the machine, who is not served. In Docker mode the engine opens the port
// for every user.
func otherUser(name string, c call) Attack {
	return Attack{Section: "E", Name: name, Expected: "not served", Only: []world.Mode{world.Embedded}, NoPod: "the port is the cluster's, and a token is always set", Root: true, Do: func(ctx context.Context, w *world.World) (string, bool) {
		other := *w
		other.As = 12345
		status, _, _, err := c.send(ctx, &other)
		if err == nil {
			return fmt.Sprint(status), false
		}
		ours, _, _, again := c.send(ctx, w) // the endpoint is there, for the user whose it is
		return fmt.Sprintf("%v; to its owner: %d %v", err, ours, again), ours == http.StatusOK
	}}
}

// consoleCode is a code of codeforge console.
func consoleCode(ctx context.Context, w *world.World) (string, error) {
	out, err := w.Pipe(ctx, "", "console", "--json")
	_, rest, found := strings.Cut(out, "#code=")
	code, _, ended := strings.Cut(rest, `"`)
	if err == nil && (!found || !ended) {
		err = fmt.Errorf("codeforge console printed %.80q", out)
	}
	return code, err
}

// endedSession signs in to the console, signs out, and asks for something.
func endedSession(ctx context.Context, w *world.World) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	code, err := consoleCode(ctx, w)
	if err != nil {
		return clip(err.Error(), 80), false
	}
	_, body, _, err := call{path: "/console/api/session", body: `{"secret": "` + code + `"}`}.send(ctx, w)
	var in struct{ Bearer string }
	if err = errors.Join(err, json.Unmarshal([]byte(body), &in)); err != nil {
		return clip(err.Error(), 80), false
	}
	header := map[string]string{"Authorization": "Bearer " + in.Bearer}
	var seen []int
	for _, c := range []call{
		{method: http.MethodGet, path: "/console/api/settings"}, {method: http.MethodDelete, path: "/console/api/sessions/this"},
		{method: http.MethodGet, path: "/console/api/settings"},
	} {
		c.header = header
		status, _, _, err := c.send(ctx, w)
		if err != nil {
			return clip(err.Error(), 80), false
		}
		seen = append(seen, status)
	}
	return fmt.Sprint(seen), slices.Equal(seen, []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized})
}

// codeTwice signs in to the console twice with one code of codeforge console.
func codeTwice(ctx context.Context, w *world.World) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	code, err := consoleCode(ctx, w)
	if err != nil {
		return clip(err.Error(), 80), false
	}
	var seen []int
	for range 2 {
		status, _, _, err := call{path: "/console/api/session", body: `{"secret": "` + code + `"}`}.send(ctx, w)
		if err != nil {
			return clip(err.Error(), 80), false
		}
		seen = append(seen, status)
	}
	return fmt.Sprint(seen), seen[0] == http.StatusOK && seen[1] == http.StatusUnauthorized
}

// noPolicy looks whether the console's page lets a browser run what gets into it.
func noPolicy(ctx context.Context, w *world.World) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, _, header, err := call{method: http.MethodGet, path: "/console"}.send(ctx, w)
	if err != nil {
		return clip(err.Error(), 80), false
	}
	policy := header.Get("Content-Security-Policy")
	held := status == http.StatusOK
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "trusted-types 'none'", "frame-ancestors 'none'"} {
		held = held && strings.Contains(policy, want)
	}
	return fmt.Sprintf("%d, a policy of %d bytes", status, len(policy)), held
}
