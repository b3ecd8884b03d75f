// Package tasks solves tasks as a model does, in both languages, with the tools alone: reports over pages, writes that
// a person approves, streams, files and MCP servers. The servers behind them stand in for real ones.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

// importOperations returns the operations.jsonl that codeforge api add makes of a document.
func importOperations(t *testing.T, document, token string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	if len(more) == 0 {
		more = []string{"--openapi"}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "document.yaml"), []byte(document), 0o600))
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), program, append([]string{"api", "add", "x", "--token", token, "--apis", "apis"}, append(more, "document.yaml")...)...) //nolint:gosec // the product
	cmd.Stdin = strings.NewReader("not the credential of the test\n")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "apis", "x", "operations.jsonl"))
	testkit.Must(t, err)
	return string(text)
}

// startWorld starts CodeForge with the APIs of the tasks. Each uses a credential of an API of world.Standard.
func startWorld(t *testing.T, s *standIns) *world.World {
	t.Helper()
	operations := importOperations(t, billingDocument, "OTHER_TOKEN")
	return world.Start(t, world.Config{TrustCA: true, Hosts: s.hosts(), Change: func(standard []world.API) []world.API {
		values := map[string]any{}
		for _, a := range standard {
			if c, ok := a.Config["credentials"].(map[string]any); ok {
				for name, value := range c {
					values[name] = value
				}
			}
		}
		newAPI := func(name, token, description string, hosts ...string) world.API {
			s.keys[hosts[0]], _ = values[token].(string)
			return world.API{Name: name, Config: map[string]any{
				"description": description, "domains": hosts, "credentials": map[string]any{token: values[token]},
				"allow_private": standard[0].Config["allow_private"], "ca_file": standard[0].Config["ca_file"],
			}}
		}
		apis := []world.API{
			newAPI("billing", "OTHER_TOKEN", "Invoices", billing),
			newAPI("tickets", "STRICT_TOKEN", "Tickets of the support team: /tickets, /labels", tickets),
			newAPI("feed", "PLAIN_TOKEN", "Events and exports: /events (SSE), /export.ndjson", feed),
			newAPI("drive", "ALLOWED_TOKEN", "Files: /files, /files/{id}/content; POST /files with the parts metadata and file", drive, storage),
			newAPI("orders", "WILD_TOKEN", "Orders of the shop", orders),
			newAPI("crm", "SHARED_A_TOKEN", "Customers and projects", crm),
			newAPI("deploys", "SHARED_B_TOKEN", "Deploys: GET /deploys/{id}/events (SSE), GET /watch (NDJSON), POST /jobs, GET /jobs/{id}", deploys),
			newAPI("media", "CERTS_TOKEN", "Files: GET /archive, GET /archive.zip (ranges), POST /uploads then PUT pieces to its Location", media),
			newAPI("graph", "DOCUMENTED_TOKEN", "Issues, GraphQL", graph),
			newAPI("stock", "RULED_TOKEN", "Items in the warehouses", stock),
			newAPI("telemetry", "PORTS_TOKEN", "gRPC: /telemetry.Sensors/Stream answers messages {value: int32 = 1, at: fixed64 ms = 2}", telemetry),
		}
		apis[5].Operations, apis[5].Config["operations"] = importOperations(t, crmDocument, "SHARED_A_TOKEN"), map[string]any{"only": false}
		apis[6].Config["framing"], apis[10].Config["framing"] = "message", "message"
		apis[8].Operations = importOperations(t, graphSchema, "DOCUMENTED_TOKEN", "--server", "https://graph.limited.test/graphql", "--graphql")
		apis[9].Config["mcp"] = map[string]any{
			"url": "https://" + stock + "/mcp", "headers": map[string]string{"Authorization": "Bearer RULED_TOKEN"},
		}
		delete(apis[9].Config, "domains")
		apis[0].Operations, apis[0].Config["operations"] = operations, map[string]any{"only": false}
		apis[4].Config["mcp"] = map[string]any{
			"url": "https://" + orders + "/mcp", "headers": map[string]string{"Authorization": "Bearer WILD_TOKEN"},
		}
		delete(apis[4].Config, "domains")
		return apis
	}})
}

// task is a task with its solution in both languages: the files of testdata with its name. notes is a part of the
// notes.
type task struct {
	name, out, notes string
	// writes is the number of writes of the task if it is a dry run first. sent counts the writes that arrived.
	writes int
	sent   func() int
}

// TestTasks solves each task in both languages, without a false note. A dry run sends nothing before its plan is
// approved.
func TestTasks(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, the proxy and the runners decide it")
	s := newStandIns()
	w := startWorld(t, s)
	const refused = "tool_error order o%d: refunds over 50 EUR need a manager\n"
	const short = ` tool_error stock.reserve: insufficient stock {"available":0,"code":"INSUFFICIENT"}` + "\n"
	for _, c := range []task{
		{name: "report", out: "30 72000 67500\n"},
		{name: "sweep", out: "closed 37\n", writes: 37, sent: func() int { return 37 - s.countStale() }},
		{name: "revenue", out: "60 customers\nPL 174.00\nBR 156.00\nJP 138.00\nFR 120.00\nDE 102.00\n"},
		{name: "stock", out: "30 8 8\ns0" + short + "s13" + short + "s26" + short + "["},
		{name: "deploy", out: "first failure: s9 disk full on node-3\n"},
		{name: "upload", out: "1200000 checksum ok\n"},
		{name: "download", out: "checksum ok 2\n", notes: "GET media.limited.test: left without its Range header"},
		{name: "grpc", out: "200 0 20 messages, highest 35 in time: true\n"},
		{name: "tier", out: "gold: 12\n", writes: 12, sent: func() int { n, _, _ := s.shop.countChanges(); return n },
			notes: " 1-12  12 x PATCH crm.limited.test/customers/{c5,c10,... 10 more}  SHARED_A_TOKEN\n       If-Match {"},
		{name: "graph", out: "labelled 24\n", writes: 24, sent: func() int { _, n, _ := s.shop.countChanges(); return n },
			notes: ` 1-24  24 x POST  graph.limited.test/graphql  DOCUMENTED_TOKEN  variables {{"issue":"I_46"`},
		{name: "events", out: "20 20 20 60 500 500\n"},
		{name: "files", out: `2602317 {"north":10000000,"south":10000000,"east":10000000} report 2026.json 51` + "\n"},
		{name: "orders", out: "15 13 6 image/png 70\no27: " + fmt.Sprintf(refused, 27) + "o30: " + fmt.Sprintf(refused, 30)},
	} {
		for language, end := range map[string]string{"typescript": ".ts", "python": ".py"} {
			t.Run(c.name+end, func(t *testing.T) {
				code, err := os.ReadFile(filepath.Join("testdata", c.name+end))
				if errors.Is(err, fs.ErrNotExist) { // Python has no HTTP/2 client
					return
				}
				testkit.Must(t, err)
				s.resetTickets()
				s.shop.reset()
				r := runCode(t, w, world.Run{Code: string(code), Language: language, DryRun: c.writes > 0})
				isSilent := c.writes == 0 && c.notes == ""
				if r.IsError || !strings.HasPrefix(r.Out, c.out) || isSilent && r.Notes != "" || !strings.Contains(r.Notes, c.notes) {
					t.Fatalf("printed %s\nnotes %s\nwant %s\nnotes %s", r.Out, r.Notes, c.out, c.notes)
				}
				if c.writes > 0 {
					approvePlan(t, w, r, c.writes, c.sent)
				}
			})
		}
	}
}

// approvePlan approves the plan of a dry run that sent nothing.
func approvePlan(t *testing.T, w *world.World, r world.Result, writes int, sent func() int) {
	t.Helper()
	if p := r.Receipt.Plan; p == nil || p.Writes != writes || sent() != 0 {
		t.Fatalf("the plan %+v, notes %s; %d writes arrived", p, r.Notes, sent())
	}
	out, err := w.Operate(t.Context(), t.TempDir(), "plan", "approve", r.Receipt.Plan.ID)
	if err != nil || sent() != writes {
		t.Errorf("approved: %v, %d writes arrived\n%s", err, sent(), out)
	}
}

// TestDependentPlan: code makes a project and tasks in it. Its plan ends after the project and gives the reason. The
// plan of the tasks comes after the first plan's approval.
func TestDependentPlan(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, the proxy and the runners decide it")
	s := newStandIns()
	w := startWorld(t, s)
	for language, end := range map[string]string{"typescript": ".ts", "python": ".py"} {
		t.Run(language, func(t *testing.T) {
			s.shop.reset()
			dry := func(name string) world.Result {
				code, err := os.ReadFile(filepath.Join("testdata", name+end))
				testkit.Must(t, err)
				return runCode(t, w, world.Run{Code: string(code), Language: language, DryRun: true})
			}
			projects := func() int {
				s.shop.mu.Lock()
				defer s.shop.mu.Unlock()
				return len(s.shop.projects)
			}
			r := dry("project")
			if !r.IsError || !strings.Contains(r.Notes, "INCOMPLETE") ||
				!strings.Contains(r.Notes, "Step 2 depends on what step 1 answers; approve 1, or run without dry_run and be asked.") {
				t.Errorf("printed %s\nnotes %s", r.Out, r.Notes)
			}
			approvePlan(t, w, r, 1, projects)
			if r = dry("project-tasks"); r.IsError || strings.Contains(r.Notes, "INCOMPLETE") {
				t.Errorf("printed %s\nnotes %s", r.Out, r.Notes)
			}
			approvePlan(t, w, r, 3, func() int { _, _, n := s.shop.countChanges(); return n })
		})
	}
}

// TestStashOfLanguages: runs that may use one plain API alone have stash and parallel, with the same names and results in
// both languages. Code in one language reads and changes values that code in the other keeps.
func TestStashOfLanguages(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the runners decide it")
	w := startWorld(t, newStandIns())
	for _, c := range []struct{ language, code, want string }{
		{"typescript", `await stash.set("basket", { items: ["a", "b"], total: 12.5, note: "für Zoë" }); console.log("kept");`, "kept\n"},
		{"python", "b = stash.get('basket')\nb['items'].append('c')\nstash.set('basket', b)\nprint(b['note'], stash.get('none'))", "für Zoë None\n"},
		{"typescript", `console.log(JSON.stringify(await stash.get("basket")), await stash.get("none"));`, `{"items":["a","b","c"],"total":12.5,"note":"für Zoë"} undefined` + "\n"},
		{"typescript", `const r = await parallel([() => 1, () => { throw new Error("no"); }, () => stash.keys()], { limit: 2 });
console.log(r.map((s) => s.status + " " + (s.value ?? s.reason.message)).join(), await stash.delete("basket") ?? "", await stash.keys());`,
			"fulfilled 1,rejected no,fulfilled basket  []\n"},
		{"python", `def fail(): raise ValueError("no")
stash.set("basket", 1)
r = parallel([lambda: 1, fail, lambda: ",".join(stash.keys())], limit=2)
print(",".join(s.status + " " + str(s.value if s.status == "fulfilled" else s.reason) for s in r), stash.delete("basket") or "", stash.keys())`,
			"fulfilled 1,rejected no,fulfilled basket  []\n"},
	} {
		if r := runCode(t, w, world.Run{Code: c.code, Language: c.language, APIs: []string{"billing"}}); r.IsError || r.Out != c.want || r.Notes != "" {
			t.Errorf("%s: printed %s\nnotes %s\nwant %s", c.code, r.Out, r.Notes, c.want)
		}
	}
}

// TestNotSilent: code that overlooks a failure gets a note or an error that names it.
func TestNotSilent(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, the proxy and the runners decide it")
	w := startWorld(t, newStandIns())
	const auth = `{ headers: { Authorization: "Bearer %s" } }`
	for _, c := range []struct {
		name, language, code, want string
		dry                        bool
	}{
		{"a page with 429", "typescript", `const r = await fetch("https://b.wild.test/v1/invoices?starting_after=in_10", ` + fmt.Sprintf(auth, "OTHER_TOKEN") + `);
console.log(((await r.json()).data ?? []).length);`, "1 of 1 responses of b.wild.test had status 429.", false},
		{"a step without the id", "typescript", `const post = async (path, body) => (await fetch("https://c.wild.test" + path, { method: "POST", headers: { Authorization: "Bearer STRICT_TOKEN" }, body: JSON.stringify(body) })).json();
const label = await post("/labels", { name: "swept" });
console.log((await post("/tickets/1/labels", { label: label.id })).code);`, "Step 2 depends on what step 1 answers; approve 1, or run without dry_run and be asked.", true},
		{"a step without the id", "python", `import json, urllib.error, urllib.request
def post(path, body):
    r = urllib.request.Request("https://c.wild.test" + path, json.dumps(body).encode(), {"Authorization": "Bearer STRICT_TOKEN"})
    return json.load(urllib.request.urlopen(r))
label = post("/labels", {"name": "swept"})
try: post("/tickets/1/labels", {"label": label.get("id")})
except urllib.error.HTTPError: pass`, "Step 2 depends on what step 1 answers; approve 1, or run without dry_run and be asked.", true},
		{"a stream that breaks off", "typescript", `let n = 0;
for await (const chunk of (await fetch("https://d.wild.test/events", ` + fmt.Sprintf(auth, "PLAIN_TOKEN") + `)).body!) n += chunk.length;
console.log(n);`, "error reading a body from connection", false},
		{"a stream that breaks off", "python", `import urllib.request
r = urllib.request.urlopen(urllib.request.Request("https://d.wild.test/events", headers={"Authorization": "Bearer PLAIN_TOKEN"}))
print(sum(line.startswith(b"id:") for line in r))`, "A response of d.wild.test broke off after", false},
		{"a credential after a redirect", "python", `import urllib.request
print(len(urllib.request.urlopen(urllib.request.Request("https://files.limited.test/files/f1/content", headers={"Authorization": "Bearer ALLOWED_TOKEN"})).read()))`,
			"urllib sent ALLOWED_TOKEN to another host after a redirect.", false},
		{"failed calls of tools", "typescript", `const calls = [1, 100].map((amount) => () => mcp.orders["refund-order"]({ order: "o1", amount }));
console.log((await parallel(calls)).length);`, "1 of 2 calls of tools failed", false},
		{"failed calls taken for results", "python", `res = parallel([lambda a=a: mcp.orders.refund_order(order="o1", amount=a) for a in (1, 100)])
print(len([r for r in res if not isinstance(r, Exception)]))`, "1 of 2 calls of tools failed", false},
		{"a read of a planned object", "typescript", `const auth = { Authorization: "Bearer SHARED_B_TOKEN" };
const { id } = await (await fetch("https://deploys.limited.test/jobs", { method: "POST", headers: auth })).json();
console.log((await fetch("https://deploys.limited.test/jobs/" + id, { headers: auth })).status);`, "INCOMPLETE", true},
		{"failed calls of tools", "python", `print(len(parallel([lambda a=a: mcp.orders.refund_order(order="o1", amount=a) for a in (1, 100)])))`,
			"1 of 2 calls of tools failed", false},
	} {
		t.Run(strings.ReplaceAll(c.name+" "+c.language, " ", "-"), func(t *testing.T) {
			r := runCode(t, w, world.Run{Code: c.code, Language: c.language, DryRun: c.dry})
			if !strings.Contains(r.Out+r.Notes, c.want) {
				t.Errorf("printed %s\nnotes %s\nwant %s", r.Out, r.Notes, c.want)
			}
		})
	}
}

// runCode runs code in the session of the world.
func runCode(t *testing.T, w *world.World, r world.Run) world.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	got, err := w.Do(ctx, w.Session(), r)
	testkit.Must(t, err)
	if where := w.Leak(got.JSON); where != "" {
		t.Errorf("the result shows a credential: %s", where)
	}
	return got
}
