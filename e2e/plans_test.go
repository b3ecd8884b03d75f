package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// dry runs code as a dry run, and gives its plan with all steps, or nil. TRIAL in the code marks its requests.
func dry(t *testing.T, w *world.World, language, code, trial string) (*approvalapi.Plan, world.Result) {
	t.Helper()
	r, err := w.Do(within(t, 60), w.Session(), world.Run{Code: strings.ReplaceAll(code, "TRIAL", trial), Language: language, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Receipt.Plan == nil {
		return nil, r
	}
	var p approvalapi.Plan
	out := operate(t, w, "plan", "show", r.Receipt.Plan.ID, "--json")
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if leak := w.Leak(out + r.JSON); leak != "" {
		t.Errorf("the plan shows %s", leak)
	}
	return &p, r
}

// written are the requests of a trial that an upstream got, but for those that only read.
func written(w *world.World, trial string) []upstream.Seen {
	return slices.DeleteFunc(w.Upstream.Seen(trial), func(s upstream.Seen) bool {
		return s.Method == "GET" && s.Header.Get("X-Http-Method-Override") == ""
	})
}

const (
	dependent = "Step %d depends on what step %d answers; approve "
	post      = `async (path, body, more = {}) => await fetch("https://other.test" + path + "?t=TRIAL", { method: "POST",
  headers: { Authorization: "Bearer OTHER_TOKEN", ...more }, body });
`
)

// scripts are dry runs: how many writes each plans, and how it ends, if not with its last write.
var scripts = []struct {
	name, language, code string
	writes               int
	ends                 string // the beginning of a sentence
	picture              string // a part of it
	out                  string // what the code prints
}{
	{name: "a loop over what was read", code: `for (let i = 1; i <= 12; i++) {
  const at = "https://other.test/x/item/TRIAL-loop/" + i + "?t=TRIAL", headers = { Authorization: "Bearer OTHER_TOKEN" };
  const item = await (await fetch(at, { headers })).json();
  await fetch(at, { method: "PATCH", headers, body: JSON.stringify({ state: "closed", labels: [...item.labels, "stale"] }) });
}`, writes: 12, picture: "/{1,2,... 10 more}?"},
	{name: "many at once", code: "const post = " + post + `
const all = await Promise.all([..."abcdefgh"].map((c) => post("/anything/" + c, c)));
console.log(all.every((r) => r.status === 202));`, writes: 8, out: "true"},
	{name: "an answer", code: "const post = " + post + `
const r = await post("/anything/one", "x");
console.log(r.status, r.headers.get("CodeForge-Planned"), JSON.stringify(await r.json(), ["planned", "id"]));`, writes: 1, out: `202 1 {"planned":1,"id":"planned:1"}`},
	{name: "the id of what was made", code: "const post = " + post + `
const { id } = await (await post("/anything/issues", "{}")).json();
const r = await post("/anything/issues/" + id + "/comments", "{}");
console.log(r.status, (await r.json()).code);`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1), out: "409 plan_ended"},
	{name: "the answer itself", code: "const post = " + post + `
await post("/anything/first", "1");
const parent = await (await post("/anything/second", "2")).json();
await post("/anything/third", JSON.stringify({ parent }));`, writes: 2, ends: fmt.Sprintf(dependent, 3, 2)},
	{name: "a sentence with what was made", code: "const post = " + post + `
const ticket = await (await post("/anything/tickets", "{}")).json();
await post("/anything/chat", JSON.stringify({ text: ` + "`Opened ticket ${ticket.number} for you`" + ` }));`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1)},
	{name: "an object in the path", code: "const post = " + post + `
const made = await (await post("/anything/a", "{}")).json();
await post("/anything/" + made, "{}");`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1)},
	{name: "a sum with what was made", code: "const post = " + post + `
const made = await (await post("/anything/a", "{}")).json();
await post("/anything/b", "total=" + (made.amount + 1));`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1)},
	{name: "null in the path", code: "const post = " + post + `
const made = await (await post("/anything/a", "{}")).json();
await post("/anything/" + (made.id ?? null) + "/b", "{}");`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1)},
	{name: "a read of what was made", code: "const post = " + post + `
const { id } = await (await post("/anything/issues", "{}")).json();
const read = await fetch("https://other.test/anything/issues/" + id + "?t=TRIAL"), r = await post("/anything/c", "{}");
console.log(read.status, r.status);`, writes: 1, ends: "A read depends on what step 1 answers; approve 1, ", out: "200 409"},
	{name: "after the end of the plan", code: "const post = " + post + `
await post("/anything/a", "{}"); await post("/anything/undefined", "{}");
const r = await post("/anything/c", "{}"), read = await fetch("https://other.test/anything/d?t=TRIAL");
console.log(r.status, read.status);`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1), out: "409 200"},
	{name: "an upload", code: `const form = new FormData();
form.set("title", "Ünïcode"); form.set("file", new File(["a,b\n1,2\n"], "data.csv", { type: "text/csv" }));
await fetch("https://other.test/anything/upload?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer OTHER_TOKEN" }, body: form });`, writes: 1},
	{name: "a form", code: `await fetch("https://other.test/anything/form?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer OTHER_TOKEN" },
  body: new URLSearchParams({ channel: "C024", text: "a & b = c" }) });`, writes: 1, picture: `channel "C024", text "a & b = c"`},
	{name: "GraphQL mutations", code: `for (const id of ["I_1", "I_2"]) await fetch("https://other.test/anything/graphql?t=TRIAL", { method: "POST",
  headers: { Authorization: "Bearer OTHER_TOKEN", "Content-Type": "application/json" },
  body: JSON.stringify({ query: "mutation($id: ID!) { closeIssue(input: {issueId: $id}) { issue { state } } }", variables: { id } }) });`, writes: 2, picture: "closeIssue"},
	{name: "a batch of GraphQL", code: `await fetch("https://other.test/anything/graphql?t=TRIAL", { method: "POST",
  headers: { Authorization: "Bearer OTHER_TOKEN", "Content-Type": "application/json" },
  body: JSON.stringify([{ query: "{ viewer { login } }" }, { query: "mutation { addStar(input: {starrableId: 1}) { clientMutationId } }" }]) });`, writes: 1},
	{name: "replaced if it is as it was read", code: `const at = "https://other.test/x/item/TRIAL-put?t=TRIAL", headers = { Authorization: "Bearer OTHER_TOKEN" };
const { planned, forged, ...item } = await (await fetch(at, { headers })).json();
await fetch(at, { method: "PUT", headers: { ...headers, "If-Match": '"7"', "Content-Type": "application/json" }, body: JSON.stringify({ ...item, state: "closed" }) });`,
		writes: 1, picture: `state "open" -> "closed"`},
	{name: "deleted", code: `for (const id of [1, 2, 3]) await fetch("https://other.test/anything/old/" + id + "?t=TRIAL", { method: "DELETE", headers: { Authorization: "Bearer OTHER_TOKEN" } });`,
		writes: 3, picture: "/anything/old/{1,2,3}?"},
	{name: "a name in the query", code: `await fetch("https://httpbin.test/anything/q?t=TRIAL&key=HTTPBIN_QUERY", { method: "POST", body: "x" });`, writes: 1, picture: "key=HTTPBIN_QUERY"},
	{name: "a name in the body", code: `await fetch("https://httpbin.test/anything/b?t=TRIAL", { method: "POST",
  headers: { "Content-Type": "application/json" }, body: JSON.stringify({ client_secret: "HTTPBIN_BODY", n: 1 }) });`, writes: 1, picture: `client_secret "HTTPBIN_BODY"`},
	{name: "two APIs", code: `await fetch("https://httpbin.test/anything/1?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer HTTPBIN_TOKEN" }, body: "one" });
await fetch("https://other.test/anything/2?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer OTHER_TOKEN" }, body: "two" });`, writes: 2, picture: "2 writes, 2 APIs"},
	{name: "a stream", code: `const lines = new ReadableStream({ async pull(c) { for (let i = 0; i < 50; i++) c.enqueue(new TextEncoder().encode(JSON.stringify({ index: i }) + "\n")); c.close(); } });
await fetch("https://other.test/anything/_bulk?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer OTHER_TOKEN", "Content-Type": "application/x-ndjson" }, body: lines });`, writes: 1},
	{name: "Python", language: "python", code: `import json, urllib.request
for i in range(3):
    r = urllib.request.Request(f"https://other.test/anything/{i}?t=TRIAL", data=json.dumps({"state": "closed"}).encode(), method="PATCH",
        headers={"Authorization": "Bearer OTHER_TOKEN", "Content-Type": "application/json"})
    with urllib.request.urlopen(r) as a:
        print(a.status, json.load(a)["planned"])`, writes: 3, out: "202 1\n202 2\n202 3", picture: "/anything/{0,1,2}?"},
	{name: "Python: nothing in the path", language: "python", code: `import json, urllib.error, urllib.request
def post(path):
    with urllib.request.urlopen(urllib.request.Request("https://other.test" + path + "?t=TRIAL", data=b"{}", headers={"Authorization": "Bearer OTHER_TOKEN"})) as a:
        return json.load(a)
made = post("/anything/a")
try:
    post(f"/anything/{made.get('id')}/b")
except urllib.error.HTTPError as e:
    print(e.code)`, writes: 1, ends: fmt.Sprintf(dependent, 2, 1), out: "409"},
	{name: "what nobody could read", code: `const send = async (body) => { const r = await fetch("https://other.test/anything/x?t=TRIAL", { method: "POST", body }); return (await r.json()).code; };
console.log(await send(new Uint8Array([255, 254, 0])), await send("a".repeat(300 << 10)));
const ws = new WebSocket("wss://other.test/x/ws?t=TRIAL");
console.log(await new Promise((r) => { ws.onopen = () => r("open"); ws.onerror = () => r("refused"); }));`, writes: 0, out: "plan_unreadable plan_unreadable\nrefused"},
	{name: "what policy refuses", code: `const r = await fetch("https://strict.test/anything/x?t=TRIAL", { method: "DELETE" });
console.log(r.status, (await r.json()).code);`, writes: 0, out: "403 method_restricted"},
	{name: "a method in a header", code: `const r = await fetch("https://other.test/anything/x?t=TRIAL", { headers: { "X-HTTP-Method-Override": "DELETE" } });
console.log(r.status);`, writes: 1, out: "202"},
}

// TestPlans: a dry run sends nothing that writes; the plan that it makes is what is sent after approval, byte for byte,
// with credentials in the place of names; and it ends before what depends on an answer.
// Promise: a-plan-is-what-was-shown
func TestPlans(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := world.Start(t, world.Config{})
	values := []string{}
	for name, c := range w.Canaries {
		values = append(values, name, c.Value())
	}
	for i, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			trial := fmt.Sprintf("plan%d-%d", i, time.Now().UnixNano())
			p, r := dry(t, w, c.language, c.code, trial)
			if n := len(written(w, trial)); n != 0 {
				t.Fatalf("%d writes were sent", n)
			}
			if c.out != "" && strings.TrimSpace(r.Out) != c.out || r.IsError {
				t.Errorf("printed %s %s", r.Out, r.Notes)
			}
			if c.writes == 0 {
				if p != nil || !strings.Contains(r.Notes, "there is no plan") {
					t.Errorf("%+v %s", p, r.Notes)
				}
				return
			}
			if p == nil || len(p.Steps) != c.writes || !strings.HasPrefix(p.Ended, c.ends) || (c.ends == "") != (p.Ended == "") {
				t.Fatalf("%+v %s", p, r.Notes)
			}
			picture := strings.Join(p.Picture, "\n")
			if !strings.Contains(r.Notes, picture) || !strings.Contains(r.Notes, "codeforge plan approve "+p.ID) || !strings.Contains(picture, c.picture) {
				t.Errorf("the model reads:\n%s\nthe picture:\n%s", r.Notes, picture)
			}
			before := len(w.Upstream.Seen(trial))
			if out := operate(t, w, "plan", "approve", p.ID); !strings.Contains(out, "Sent: ") || w.Leak(out) != "" {
				t.Errorf("approved: %s", out)
			}
			if len(w.Upstream.Seen(trial)) < before+c.writes {
				t.Error("not all were sent")
			}
			same(t, p.Steps, written(w, trial), values)
		})
	}
}

// same compares steps as they were shown with requests as they came.
func same(t *testing.T, steps []approvalapi.Step, seen []upstream.Seen, names []string) {
	t.Helper()
	if len(seen) != len(steps) {
		t.Fatalf("%d steps, %d came", len(steps), len(seen))
	}
	var pairs []string
	for i := 0; i < len(names); i += 2 {
		pairs = append(pairs, names[i], names[i+1])
	}
	filled := strings.NewReplacer(pairs...)
	for i, s := range steps {
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		query, err := url.QueryUnescape(seen[i].Target) // a value may have been escaped
		plain, bad := url.QueryUnescape(filled.Replace(u.RequestURI()))
		method, _, _ := strings.Cut(s.Method, ", ") // the others are in headers
		if err != nil || bad != nil || seen[i].Method != method || seen[i].Host != u.Host || query != plain || string(seen[i].Body) != filled.Replace(s.Body) {
			t.Errorf("step %d: shown %s %s %q, came %s %s%s %q", s.N, s.Method, s.URL, s.Body, seen[i].Method, seen[i].Host, seen[i].Target, seen[i].Body)
		}
		for _, h := range s.Headers {
			name, value, _ := strings.Cut(h, ": ")
			if !slices.Contains(seen[i].Header[name], filled.Replace(value)) {
				t.Errorf("step %d: shown %s, came %q", s.N, h, seen[i].Header[name])
			}
		}
		for name := range seen[i].Header {
			usual := slices.Contains([]string{"Accept", "Accept-Language", "Sec-Fetch-Mode", "Accept-Encoding", "Content-Length", "User-Agent", "Connection"}, name)
			if !usual && !slices.ContainsFunc(s.Headers, func(h string) bool { return strings.HasPrefix(h, name+": ") }) {
				t.Errorf("step %d: %s came, and was not shown", s.N, name)
			}
		}
	}
}

// TestPlanChoice: of a plan the chosen steps are sent, once; what has changed since is not changed; and a refused plan
// or one of another configuration is not sent.
// Promise: a-plan-is-what-was-shown
func TestPlanChoice(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := world.Start(t, world.Config{})
	const code = `const headers = { Authorization: "Bearer OTHER_TOKEN" };
for (const id of [1, 2, 3, 4, 5]) {
  const at = "https://other.test/x/item/TRIAL-" + id + "?t=TRIAL";
  await (await fetch(at, { headers })).json();
  await fetch(at, { method: "PATCH", headers, body: JSON.stringify({ state: "closed" }) });
}`
	run := func() (*approvalapi.Plan, string) {
		trial := fmt.Sprintf("choice%d", time.Now().UnixNano())
		p, r := dry(t, w, "", code, trial)
		if p == nil || len(p.Steps) != 5 {
			t.Fatalf("%+v %s", p, r.Notes)
		}
		return p, trial
	}
	tell := func(args ...string) string { out, _ := w.Pipe(t.Context(), "", args...); return out }
	if w.Mode == world.Docker {
		tell = func(args ...string) string { return operate(t, w, args...) }
	}
	p, trial := run()
	if out := tell("plan", "approve", p.ID, "--steps", "1-2,5"); !strings.Contains(out, "Sent: 3 steps") || len(written(w, trial)) != 3 {
		t.Errorf("chosen: %s", out)
	}
	if out := tell("plan", "approve", p.ID, "--steps", "3"); len(written(w, trial)) != 3 {
		t.Errorf("a second time: %s", out)
	}
	p, trial = run()
	_ = tell("plan", "refuse", p.ID)
	if out := tell("plan", "approve", p.ID); len(written(w, trial)) != 0 {
		t.Errorf("refused before: %s", out)
	}
	p, trial = run()
	w.MustExecute(t, strings.ReplaceAll(`await fetch("https://other.test/x/item/TRIAL-2?other", { method: "PATCH", body: JSON.stringify({ state: "locked" }) });`, "TRIAL", trial))
	if out := tell("plan", "approve", p.ID); !strings.Contains(out, "drift") || !strings.Contains(out, "Stopped: 1 step") || len(written(w, trial)) != 2 {
		t.Errorf("drift: %s, %d", out, len(written(w, trial)))
	}
	if out := tell("plans"); !strings.Contains(out, p.ID) || !strings.Contains(out, "stopped") {
		t.Errorf("plans: %s", out)
	}
	if out := tell("audit", "show"); !strings.Contains(out, "approved plan "+p.ID+", 5 steps") {
		t.Errorf("the ledger: %s", out)
	}
}
