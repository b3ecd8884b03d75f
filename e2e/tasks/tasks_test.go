// Package tasks solves tasks as a model does, in both languages, with the tools alone: reports over pages, writes that
// a person approves, streams, files and MCP servers. The servers behind them stand in for real ones.
package tasks

import (
	"context"
	"fmt"
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
func importOperations(t *testing.T, document, token string) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "document.yaml"), []byte(document), 0o600))
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), program, "api", "add", "x", "--openapi", "document.yaml", "--token", token, "--apis", "apis") //nolint:gosec // the product
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
		}
		apis[0].Operations, apis[0].Config["operations"] = operations, map[string]any{"only": false}
		apis[4].Config["mcp"] = map[string]any{
			"url": "https://" + orders + "/mcp", "headers": map[string]string{"Authorization": "Bearer WILD_TOKEN"},
		}
		delete(apis[4].Config, "domains")
		return apis
	}})
}

// task is a task with its solution in both languages: the files of testdata with its name.
type task struct {
	name, out string
	// writes is the number of writes of the task if it is a dry run first.
	writes int
}

// TestTasks solves each task in both languages, without a false note. A dry run sends nothing before its plan is
// approved.
func TestTasks(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, the proxy and the runners decide it")
	s := newStandIns()
	w := startWorld(t, s)
	const refused = "tool_error order o%d: refunds over 50 EUR need a manager\n"
	for _, c := range []task{
		{name: "report", out: "30 72000 67500\n"},
		{name: "sweep", out: "closed 37\n", writes: 37},
		{name: "events", out: "20 20 20 60 500 500\n"},
		{name: "files", out: `2602317 {"north":10000000,"south":10000000,"east":10000000} report 2026.json 51` + "\n"},
		{name: "orders", out: "15 13 6 image/png 70\no27: " + fmt.Sprintf(refused, 27) + "o30: " + fmt.Sprintf(refused, 30)},
	} {
		for language, end := range map[string]string{"typescript": ".ts", "python": ".py"} {
			t.Run(c.name+end, func(t *testing.T) {
				code, err := os.ReadFile(filepath.Join("testdata", c.name+end))
				testkit.Must(t, err)
				s.resetTickets()
				r := runCode(t, w, world.Run{Code: string(code), Language: language, DryRun: c.writes > 0})
				if r.IsError || r.Out != c.out || c.writes == 0 && r.Notes != "" {
					t.Fatalf("printed %s\nnotes %s\nwant %s", r.Out, r.Notes, c.out)
				}
				if c.writes == 0 {
					return
				}
				if p := r.Receipt.Plan; p == nil || p.Writes != c.writes || s.countStale() != c.writes {
					t.Fatalf("the plan %+v, notes %s; %d tickets are stale", p, r.Notes, s.countStale())
				}
				out, err := w.Operate(t.Context(), t.TempDir(), "plan", "approve", r.Receipt.Plan.ID)
				if err != nil || s.countStale() != 0 {
					t.Errorf("approved: %v, %d tickets are stale\n%s", err, s.countStale(), out)
				}
			})
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
