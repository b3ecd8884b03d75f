package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// broker answers as the broker does, as far as code can tell, and remembers what it was asked.
type broker struct {
	*httptest.Server
	mu       sync.Mutex
	asked    []string
	inFlight int
	most     int           // requests in flight at once
	together int           // /s/list answers only when so many were in flight at once
	waiting  chan struct{} // sent to when a request to /s/wait arrives; /s/arrived answers after that
	gone     chan struct{} // sent to when the client of such a request went away
}

// answers of the fake broker by path. A status may stand before the body.
var answers = map[string]string{
	"/s/text":       `{"content":[{"type":"text","text":"plain"},{"type":"text","text":"lines"}]}`,
	"/s/json":       `{"content":[{"type":"text","text":" {\"a\":[1]}"}]}`,
	"/s/array":      `{"content":[{"type":"text","text":"[1,2]"}]}`,
	"/s/number":     `{"content":[{"type":"text","text":"42"}]}`,
	"/s/broken":     `{"content":[{"type":"text","text":"{\"a\":"}]}`,
	"/s/typed":      `{"content":[{"type":"text","text":"{\"a\":1}"}],"_schema":true}`,
	"/s/structured": `{"content":[{"type":"text","text":"other"}],"structuredContent":{"a":1},"_schema":true}`,
	"/s/none":       `{"content":[]}`,
	"/s/string":     `{"content":"plain"}`,
	"/s/block":      `{"content":{"type":"text","text":"one"}}`,
	"/s/strings":    `{"content":["a",{"type":"text","text":{"b":1}},null,7]}`,
	"/s/value":      `{"content":{"a":1}}`,
	"/s/null":       `{"content":null}`,
	"/s/2024":       `{"toolResult":{"a":1},"_meta":{},"_schema":false,"_hint":""}`,
	"/s/say-no":     `{"content":"no such issue","isError":true}`,
	"/s/image":      `{"content":[{"type":"image","data":"UE5H","mimeType":"image/png"}]}`,
	"/s/mixed": `{"content":[{"type":"text","text":"done"},{"type":"audio","data":"AAAA","mimeType":"audio/mpeg"},` +
		`{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"inside"}},` +
		`{"type":"resource","resource":{"uri":"a:c","mimeType":"application/x-../../etc","blob":"AA=="}},` +
		`{"type":"resource_link","uri":"a:d","name":"d"}]}`,
	"/s/no-base64": `{"content":[{"type":"image","data":"%%%","mimeType":"image/png"}]}`,
	"/s/failed":    `{"content":[{"type":"text","text":"no such issue"}],"structuredContent":{"status":404},"isError":true}`,
	"/s/poison": `{"content":[],"structuredContent":{"a":1,"__proto__":{"polluted":true},` +
		`"b":[{"\u005f_proto__":{"polluted":true}}],"constructor":"kept"}}`,
	"/s/poisoned-text": `{"content":[{"type":"text","text":"{\"__\\u0070roto__\":{\"polluted\":true},\"a\":1}"}]}`,
	"/s/refused": `422 {"error":"title is missing: want string","code":"bad_arguments","retryable":false,` +
		`"hint":"create_issue({title: string})","server":"s","tool":"refused"}`,
	"/s/down":        `502 {"error":"no disk","code":"server_error","server":"s","tool":"down","data":{"free":0}}`,
	"/s/busy":        `503 {"error":"s.busy: the server does not start.","code":"server_unavailable","retryable":true}`,
	"/s/page":        `502 <html>bad gateway`,
	"/s/arrived":     `{"content":[]}`,
	"/s/list":        `{"content":[{"type":"text","text":"x"}]}`,
	"/s":             `{"tools":[{"name":"text","inputSchema":{}},{"name":"new-tool"},{"name":"then"}]}`,
	"/s/$resources":  `{"resources":[{"uri":"a:b"}],"templates":[]}`,
	"/s/$read":       `{"contents":[{"uri":"a:b","text":"t"},{"uri":"a:c","mimeType":"image/gif","blob":"UE5H"}]}`,
	"/s/$prompt":     `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`,
	"/$stash/get":    `{"value":{"n":1}}`,
	"/$stash/keys":   `{"keys":["k"]}`,
	"/$stash/set":    `{}`,
	"/$stash/delete": `{}`,
	"/s/dash-ed":     `{"content":[{"type":"text","text":"dashed"}]}`,
	"/s/a/b?c#d":     `{"content":[{"type":"text","text":"odd"}]}`,
}

func newBroker(t *testing.T) *broker {
	b := &broker{waiting: make(chan struct{}), gone: make(chan struct{}, 1)}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	line := r.Method + " " + r.URL.Path + " " + string(body)
	if ms := r.Header.Get("Codeforge-Timeout-Ms"); ms != "" {
		line += " timeout " + ms
	}
	b.asked = append(b.asked, strings.TrimSpace(line))
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	b.mu.Unlock()
	switch r.URL.Path {
	case "/s/wait":
		b.waiting <- struct{}{}
		<-r.Context().Done()
		b.gone <- struct{}{}
		return
	case "/s/arrived":
		<-b.waiting
	case "/s/list":
		for b.mostAtOnce() < b.together && r.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(30 * time.Millisecond) // there is time for one that is too many
	}
	b.mu.Lock()
	b.inFlight--
	b.mu.Unlock()
	text, status := answers[r.URL.Path], http.StatusOK
	if text == "" {
		text = `404 {"error":"there is no such tool","code":"tool_not_found","retryable":false}`
	}
	if text[0] != '{' {
		_, _ = fmt.Sscan(text, &status)
		text = text[4:]
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (b *broker) mostAtOnce() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// known are the servers of the runs below.
var known = map[string][]string{"s": {"text", "dash-ed", "then", "toString"}, "other": {}}

// run runs code in real Deno as an interpreter of sandboxd would, with the broker in the place of the reserved host.
func run(t *testing.T, b *broker, servers map[string][]string, code string) (stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	prelude := ""
	if b != nil {
		prelude = fmt.Sprintf(`const real = fetch; globalThis.fetch = (u, o) => `+
			`real(String(u).replace("https://mcp.codeforge.internal", %q), o);`, b.URL)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.ts"), []byte("// deno-lint-ignore-file\n"+prelude+"\n"+code), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "warm.js"), Warm, 0o600))
	input, err := BuildStartInput(false, nil, servers, []byte(code))
	testkit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), testkit.DenoPath(t), "run", "--no-prompt", "--no-remote", "--no-npm", "--no-config",
		"--no-lock", "--allow-env", "--allow-net=127.0.0.1", "--allow-read=/tmp", "--allow-write=/tmp", "--preload",
		filepath.Join(dir, "warm.js"), filepath.Join(dir, "main.ts"))
	cmd.Dir = "/tmp" // where a run is that is not private
	cmd.Env = []string{"NO_COLOR=1", "HOME=/tmp", "DENO_DIR=" + filepath.Join(dir, "deno"), "DENO_NO_UPDATE_CHECK=1"}
	cmd.Stdin = bytes.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimPrefix(out.String(), "\x00"), strings.ReplaceAll(errs.String(), dir, "DIR")
}

// file matches what a block that is not text became, with a path that differs from run to run.
const readFile = `const read = (f) => { const b = Deno.readFileSync(f.path); Deno.removeSync(f.path);
  return [f.path.replace(/mcp-[0-9a-f-]+/, "mcp-N"), f.mimeType, f.bytes, b.length].join(); };
`

func TestResults(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for _, c := range []struct{ name, code, want string }{
		{"text", `await mcp.s.text()`, `"plain\nlines"`},
		{"json", `await mcp.s.json({})`, `{"a":[1]}`},
		{"array", `await mcp.s.array({})`, `[1,2]`},
		{"number stays text", `await mcp.s.number({})`, `"42"`},
		{"broken json stays text", `await mcp.s.broken({})`, `"{\"a\":"`},
		{"text of a typed tool", `await mcp.s.typed({})`, `"{\"a\":1}"`},
		{"structured", `await mcp.s.structured({})`, `{"a":1}`},
		{"nothing", `await mcp.s.none({})`, `""`},
		{"a string", `await mcp.s.string({})`, `"plain"`},
		{"one block", `await mcp.s.block({})`, `"one"`},
		{"strings and values", `(await mcp.s.strings({})).split("\n")`, `["a","{\"b\":1}","","7"]`},
		{"a value", `await mcp.s.value({})`, `{"a":1}`},
		{"null", `await mcp.s.null({})`, `""`},
		{"of 2024", `await mcp.s["2024"]({})`, `{"toolResult":{"a":1}}`},
		{"a string that is an error", `(await mcp.s["say-no"]({}).catch((e) => e)).text`, `"no such issue"`},
		{"image", `read(await mcp.s.image({}))`, `"/tmp/mcp-N.png,image/png,3,3"`},
		{"mixed", `(await mcp.s.mixed({})).map((v) => v.path ? [v.uri, read(v)] : v)`,
			`["done",[null,"/tmp/mcp-N.mp3,audio/mpeg,3,3"],{"uri":"a:b","mimeType":"text/plain","text":"inside"},` +
				`["a:c","/tmp/mcp-N.x,application/x-../../etc,1,1"],{"type":"resource_link","uri":"a:d","name":"d"}]`},
		{"raw", `await mcp.s.typed.raw({})`, `{"content":[{"type":"text","text":"{\"a\":1}"}]}`},
		{"raw of a failure", `(await mcp.s.failed.raw({})).isError`, `true`},
		{"brackets", `await mcp.s["dash-ed"]({})`, `"dashed"`},
		{"odd name", `await mcp.s["a/b?c#d"]({})`, `"odd"`},
		{"tools", `(await mcp.s.$tools()).map((t) => t.name)`, `["text","new-tool","then"]`},
		{"tools are learned", `(await mcp.s.$tools(), Object.keys(mcp.s))`, `["text","dash-ed","new-tool"]`},
		{"resources", `await mcp.s.$resources()`, `{"resources":[{"uri":"a:b"}],"templates":[]}`},
		{"read", `(await mcp.s.$read("a:b")).contents.map((c) => c.path ? [c.uri, read(c)] : c)`,
			`[{"uri":"a:b","text":"t"},["a:c","/tmp/mcp-N.gif,image/gif,3,3"]]`},
		{"prompt", `(await mcp.s.$prompt("p", {a: "b"})).messages[0].content.text`, `"hi"`},
		{"stash", `[await stash.get("k"), await stash.set("k", 1, {ttl: 9}), await stash.keys(), await stash.delete("k")]`,
			`[{"n":1},null,["k"],null]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, errs := run(t, b, known, readFile+"console.log(JSON.stringify("+c.code+"));")
			if strings.TrimSpace(out) != c.want || errs != "" {
				t.Errorf("got  %s%s\nwant %s", out, errs, c.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	_, errs := run(t, b, known, `
await mcp.s.text({ a: [1] }, { timeout: 1500 });
await mcp.s.text();
await mcp.s.$tools();
for (const c of (await mcp.s.$read("u:r")).contents) if (c.path) Deno.removeSync(c.path);
await mcp.s.$prompt("p", { x: "y" });
await stash.set("k", { v: 1 }, { ttl: 60000 });
for (const bad of ["text", [1], 7, null]) await mcp.s.text(bad).catch((e) => console.log(e.code));
await mcp[".."].x().catch(() => {});
await mcp.s["."]().catch(() => {});
`)
	want := []string{
		`POST /s/text {"a":[1]} timeout 1500`, `POST /s/text {}`, `GET /s`, `POST /s/$read {"uri":"u:r"}`,
		`POST /s/$prompt {"name":"p","arguments":{"x":"y"}}`, `POST /$stash/set {"key":"k","value":{"v":1},"ttl_ms":60000}`,
	}
	if got := strings.Join(b.asked, "\n"); got != strings.Join(want, "\n") || errs != "" {
		t.Errorf("asked:\n%s\n%s", got, errs)
	}
}

// Awaiting, printing, enumerating and serialising call no tool.
func TestIsAnObject(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	out, errs := run(t, b, known, `
console.log(await mcp === mcp, await mcp.s === mcp.s, mcp.s.then, mcp.then, mcp.s.toJSON, mcp[Symbol.iterator]);
console.log(Object.keys(mcp), Object.keys(mcp.s), Object.keys(mcp.other));
console.log("s" in mcp, "x" in mcp, "text" in mcp.s, "nothing" in mcp.s, mcp.s.hasOwnProperty("text"));
console.log(mcp, mcp.s, mcp.other);
console.log(`+"`${mcp} ${mcp.s}`"+`, [mcp.s], typeof mcp.s.text, typeof mcp.constructor);
console.log(JSON.stringify({ mcp }), structuredClone.name, mcp.s.text === mcp.s.text, mcp.s.text.name);
for (const change of [() => { mcp.x = 1; }, () => { mcp.s.text = 1; }, () => { delete mcp.s; }]) {
  try { change(); console.log("changed"); } catch (e) { console.log(e.name); }
}
const { text } = mcp.s;
console.log(typeof text, Object.getOwnPropertyDescriptor(globalThis, "mcp").enumerable);
`)
	want := `true true undefined undefined undefined undefined
[ "s", "other" ] [ "text", "dash-ed" ] []
true false true false true
mcp { s: 4 tools, other } mcp.s { text, dash-ed } mcp.other { its tools are not known yet: await mcp.other.$tools() }
mcp { s: 4 tools, other } mcp.s { text, dash-ed } [ mcp.s { text, dash-ed } ] function function
{"mcp":{"s":{},"other":{}}} structuredClone true text
TypeError
TypeError
TypeError
function false
`
	// Go writes a map's keys in order.
	want = strings.ReplaceAll(strings.ReplaceAll(want, `"s", "other"`, `"other", "s"`), `s: 4 tools, other`, `other, s: 4 tools`)
	want = strings.ReplaceAll(want, `{"s":{},"other":{}}`, `{"other":{},"s":{}}`)
	if out != want || errs != "" || len(b.asked) != 0 {
		t.Errorf("got:\n%s%s%q\nwant:\n%s", out, errs, b.asked, want)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	show := `console.log(JSON.stringify([e instanceof McpError, e instanceof Error, e.name, e.message, e.server, e.tool,
  e.code, e.retryable, e.hint, e.text, e.structured]))`
	for _, c := range []struct{ name, call, want string }{
		{"of a tool", `mcp.s.failed({})`, `[true,true,"McpError","s.failed: no such issue","s","failed","tool_error",false,null,"no such issue",{"status":404}]`},
		{"of the broker", `mcp.s.refused({})`, `[true,true,"McpError","s.refused: title is missing: want string. create_issue({title: string})","s","refused","bad_arguments",false,"create_issue({title: string})",null,null]`},
		{"that names the call", `mcp.s.busy({})`, `[true,true,"McpError","s.busy: the server does not start.","s","busy","server_unavailable",true,null,null,null]`},
		{"with data", `mcp.s.down({}).catch((e) => { e.hint = e.data; throw e; })`, `[true,true,"McpError","s.down: no disk","s","down","server_error",false,{"free":0},null,null]`},
		{"that is a page", `mcp.s.page({})`, `[true,true,"McpError","s.page: the answer had status 502","s","page","bad_answer",false,null,null,null]`},
		{"unknown tool", `mcp.s.unknown({})`, `[true,true,"McpError","s.unknown: there is no such tool","s","unknown","tool_not_found",false,null,null,null]`},
		{"arguments that are no object", `mcp.s.text("x")`, `[true,true,"McpError","s.text: want one object of arguments","s","text","bad_arguments",false,null,null,null]`},
		{"arguments that are no JSON", `mcp.s.text({ n: 1n }).catch((e) => { e.message = e.message.slice(0, 47); throw e; })`, `[true,true,"McpError","s.text: the arguments cannot be written as JSON","s","text","bad_arguments",false,null,null,null]`},
		{"image that is no base64", `mcp.s["no-base64"]({})`, `[true,true,"McpError","s.no-base64: sent image/png that is not base64","s","no-base64","server_error",false,null,null,null]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, errs := run(t, b, known, "try { await "+c.call+"; console.log('no error'); } catch (e) { "+show+" }")
			if strings.TrimSpace(out) != c.want || errs != "" {
				t.Errorf("got  %s%s\nwant %s", out, errs, c.want)
			}
		})
	}
}

// An error that nobody catches prints one sentence and the caller's own lines.
func TestUncaught(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for name, code := range map[string]string{
		"awaited":     "async function make() {\n  await mcp.s.refused({ titel: 'x' });\n}\nawait make();",
		"in parallel": "const [r] = await parallel([async () => await mcp.s.refused({})]);\nthrow r.reason;",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := run(t, b, known, code)
			head, rest, _ := strings.Cut(errs, "\n")
			const want = "error: Uncaught (in promise) McpError: s.refused: title is missing: want string. create_issue({title: string})"
			if head != want || !strings.Contains(rest, "DIR/main.ts:") || strings.Contains(rest, "ext:") || strings.Contains(rest, "warm.js") {
				t.Errorf("%s", errs)
			}
		})
	}
}

func TestPrototypesStay(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	out, errs := run(t, b, known, `
function merge(to, from) {
  for (const k of Object.keys(from)) typeof from[k] === "object" ? merge(to[k] ??= {}, from[k]) : to[k] = from[k];
  return to;
}
for (const r of [await mcp.s.poison(), await mcp.s["poisoned-text"]()]) {
  merge({}, r);
  console.log({}.polluted, Object.keys(r), Object.assign({}, r).polluted);
}
`)
	want := "undefined [ \"a\", \"b\", \"constructor\" ] undefined\nundefined [ \"a\" ] undefined\n"
	if out != want || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

func TestParallel(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.together = 4
	out, errs := run(t, b, known, `
const calls = Array.from({ length: 12 }, (_, i) => () => i === 5 ? mcp.s.refused() : mcp.s.list({ i }));
const settled = await parallel(calls, { limit: 4 });
console.log(settled.length, settled.map((s) => s.status === "fulfilled" ? s.value : s.reason.code).join());
console.log(await parallel([]), (await parallel([Promise.reject(1), mcp.s.list(), 7])).map((s) => s.value ?? s.reason));
console.log((await parallel([() => { throw 3; }], { limit: 0 }))[0].reason);
`)
	want := "12 x,x,x,x,x,bad_arguments,x,x,x,x,x,x\n[] [ 1, \"x\", 7 ]\n3\n"
	if out != want || errs != "" || b.most != 4 {
		t.Errorf("%s%s, %d at once", out, errs, b.most)
	}
}

// A signal closes the request, which is what cancels the call.
func TestSignal(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	out, errs := run(t, b, known, `
const stop = new AbortController();
const call = mcp.s.wait({}, { signal: stop.signal });
await mcp.s.arrived();
stop.abort(new DOMException("late", "TimeoutError")); // as AbortSignal.timeout does
try { await call; } catch (e) { console.log(e.name, e instanceof McpError); }
`)
	if out != "TimeoutError false\n" || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	select {
	case <-b.gone:
	case <-time.After(time.Minute):
		t.Error("the request stayed open")
	}
}

// Code may use the names for itself, and a connection that breaks is an McpError.
func TestReplaced(t *testing.T) {
	t.Parallel()
	out, errs := run(t, nil, known, `
globalThis.parallel = 1;
const stash = 2;
globalThis.fetch = () => Promise.reject(new TypeError("reset"));
try { await mcp.s.text(); } catch (e) { console.log(e.code, e.message, e.cause.name); }
console.log(parallel, stash, typeof McpError);
mcp = 3;
console.log(mcp);
`)
	if want := "connection_lost s.text: the connection broke: reset TypeError\n1 2 function\n3\n"; out != want || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

// A run without servers whose code names no helper lacks all globals. Many servers fit too.
func TestGo(t *testing.T) {
	t.Parallel()
	out, errs := run(t, nil, nil, "console.log(['mcp', 'par' + 'allel', 'st' + 'ash', 'Mcp' + 'Error'].filter((n) => n in globalThis));")
	if out != "[]\n" || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	many := map[string][]string{}
	for i := range 100 {
		for j := range 100 {
			name := fmt.Sprintf("server%d", i)
			many[name] = append(many[name], fmt.Sprintf("a_tool_with_a_rather_long_name_%d", j))
		}
	}
	out, errs = run(t, nil, many, "console.log(Object.keys(mcp).length, Object.keys(mcp.server7).length, await Deno.stdin.read(new Uint8Array(1)));")
	if out != "100 100 null\n" || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	out, errs = run(t, nil, nil, "const [a, b] = await parallel([() => 1, () => { throw 2; }]);\nconsole.log(a.value, b.reason, typeof stash.set, Object.keys(mcp).length);")
	if out != "1 2 function 0\n" || errs != "" {
		t.Errorf("without servers: %s%s", out, errs)
	}
	if first, err := BuildStartInput(false, nil, nil, []byte("console.log(1)")); err != nil || !bytes.Equal(first, []byte{GoByte}) {
		t.Errorf("%q %v", first, err)
	}
	var servers map[string][]string
	line, _ := BuildStartInput(false, nil, known, nil)
	if err := json.NewDecoder(bytes.NewReader(line[1+lengthDigits:])).Decode(&servers); err != nil || line[0] != ServersByte || len(servers) != 2 {
		t.Errorf("%v %v", servers, err)
	}
}

// TestStartEnviron: only code that may read variables gets them.
func TestStartEnviron(t *testing.T) {
	environ := map[string]string{"A_TOKEN": "A_TOKEN"}
	const line = "e00000015{\"A_TOKEN\":\"A_TOKEN\"}\n"
	for code, want := range map[string]string{
		"console.log(1)": "\n", "process.env.A_TOKEN": line, "import './x.ts'": line, "await import('npm:x')": line,
	} {
		if got, err := BuildStartInput(false, environ, nil, []byte(code)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", code, got, err)
		}
	}
	if got, err := BuildStartInput(true, environ, nil, []byte("print(1)")); err != nil || string(got) != line {
		t.Errorf("Python: %q %v", got, err)
	}
}
