package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// sharedDatabase starts Postgres with the roles of the guide and the tables of the proxies, and returns the settings.
func sharedDatabase(t *testing.T) (p *testkit.Postgres, env map[string]string) {
	t.Helper()
	p = testkit.NewPostgres(t)
	page, err := os.ReadFile(filepath.Join(testkit.RootDir(t), "docs/guides/several-proxies.md"))
	testkit.Must(t, err)
	_, rest, _ := strings.Cut(string(page), "```sql\n")
	roles, _, _ := strings.Cut(rest, "```")
	p.RunProgram([]byte(strings.ReplaceAll(roles, "DATABASE codeforge ", "DATABASE postgres ")), "psql", "-d", "postgres", "-v", "ON_ERROR_STOP=1")
	migrate := exec.Command(world.Binary("egress-proxy"), "migrate") //nolint:gosec // built here
	migrate.Env = []string{"PROXY_DATABASE_URL=" + p.URLOf("codeforge_owner", "put_a_password_here")}
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("egress-proxy migrate: %v %s", err, out)
	}
	return p, map[string]string{
		"PROXY_DATABASE_URL": p.URLOf("codeforge_proxy", "put_another_here"), "DATABASE_URL": p.URLOf("codeforge_server", "put_a_third_here"),
	}
}

// startAnother starts one more CodeForge with the APIs of a world, and returns its command line.
func startAnother(t *testing.T, w *world.World, env map[string]string) func(args ...string) string {
	t.Helper()
	dir, err := world.NewDir(w.User, nil, env)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Must(t, exec.Command("cp", "-a", filepath.Join(w.Dir, "apis"), dir).Run()) //nolint:gosec // of the test
	p, err := world.StartUp(w.User, dir, 4)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	if _, err := p.Ready(time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	return commandIn(t, dir)
}

// commandIn returns the command line of the CodeForge in a folder.
func commandIn(t *testing.T, dir string) func(args ...string) string {
	return func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), world.Binary("codeforge"), args...) //nolint:gosec // built here
		cmd.Dir, cmd.Env = dir, []string{"HOME=/nonexistent", "CODEFORGE_HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		out, _ := cmd.Output() // the caller compares the text
		return string(out)
	}
}

// TestSeveralProxies: three CodeForges, each with an mcp-server and a proxy, share one Postgres under the roles of the
// guide. An approval at one frees the run of another, or lets it leave later at the third. A limit holds for all of
// them under load. Without Postgres, requests that need an approval or a limit are refused and others leave, and
// afterwards all works again.
// Promise: several-proxies, exact-approvals, limits
func TestSeveralProxies(t *testing.T) {
	world.RunInOneMode(t, "the proxies and Postgres decide it")
	p, env := sharedDatabase(t)
	w := world.Start(t, world.Config{Env: env, Change: func(apis []world.API) []world.API {
		for i, a := range apis {
			if a.Name == "ruled" {
				apis[i].Config["rules"] = []any{map[string]any{"methods": []string{"PUT"}, "then": "approve"}, map[string]any{"then": "allow"}}
				apis[i].Config["limits"] = map[string]any{"writes": "20/h"}
			}
		}
		return apis
	}})
	at := []func(...string) string{commandIn(t, w.Dir), startAnother(t, w, env), startAnother(t, w, env)}
	trial := fmt.Sprintf("proxies%d", time.Now().UnixNano())
	send := func(i int, method string, times, ms int) string {
		return at[i]("run", "-e", fmt.Sprintf(`const sent = Array.from({length: %d}, async () => {
  try {
    const r = await fetch("https://d.wild.test/anything/notes?t=%s", {method: %q, headers: {Authorization: "Bearer RULED_TOKEN"},
      body: %q === "GET" ? undefined : "note", signal: AbortSignal.timeout(%d)});
    const text = await r.text();
    return r.status === 200 ? "200" : r.status + " " + JSON.parse(text).code;
  } catch (e) { return e.name; }
});
console.log((await Promise.all(sent)).join("\n"));`, times, trial, method, method, ms))
	}
	held := func(i int, waiting bool) (id string) {
		testkit.WaitFor(t, func() bool {
			var list []struct {
				ID, URL string
				Waiting bool
			}
			out := at[i]("held", "--json")
			if err := json.Unmarshal([]byte(out), &list); err != nil {
				t.Fatalf("codeforge held: %s", out)
			}
			for _, h := range list {
				if h.Waiting == waiting && strings.HasSuffix(h.URL, trial) {
					id = h.ID
				}
			}
			return id != ""
		})
		return id
	}

	done := make(chan string, 1)
	go func() { done <- send(0, "PUT", 1, 60_000) }()
	id := held(2, true)
	if text := p.Query(`SELECT * FROM codeforge_proxy.held`); !strings.Contains(text, "RULED_TOKEN") || w.Leak(text) != "" || len(w.Upstream.Seen(trial)) != 0 {
		t.Errorf("before the approval, the database has %s", text)
	}
	at[2]("approve", id)
	if got := <-done; !strings.HasPrefix(got, "200") || len(w.Upstream.Seen(trial)) != 1 {
		t.Errorf("approved at another proxy: %s", got)
	}

	if got := send(0, "PUT", 1, 3000); !strings.HasPrefix(got, "TimeoutError") {
		t.Errorf("without an approval: %s", got)
	}
	at[1]("approve", held(1, false))
	if got := send(2, "PUT", 1, 30_000); !strings.HasPrefix(got, "200") || len(w.Upstream.Seen(trial)) != 2 {
		t.Errorf("approved late, and run at the third: %s", got)
	}
	if got := send(1, "PUT", 1, 3000); !strings.HasPrefix(got, "TimeoutError") || len(w.Upstream.Seen(trial)) != 2 {
		t.Errorf("the approval counts twice: %s", got)
	}

	var load sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range at {
		load.Go(func() {
			got := strings.Fields(strings.ReplaceAll(send(i, "POST", 20, 60_000), "429 ", ""))
			mu.Lock()
			defer mu.Unlock()
			for _, one := range got {
				counts[one]++
			}
		})
	}
	load.Wait()
	if counts["200"] != 18 || counts["limit_reached"] != 42 || len(w.Upstream.Seen(trial)) != 20 {
		t.Errorf("of a limit of 20, two used: %v, and the upstream saw %d", counts, len(w.Upstream.Seen(trial)))
	}

	p.Stop()
	for method, want := range map[string]string{"POST": "503 state_unavailable", "PUT": "503 state_unavailable", "GET": "200"} {
		if got := send(1, method, 1, 60_000); !strings.HasPrefix(got, want) {
			t.Errorf("without Postgres, %s: %s", method, got)
		}
	}
	p.Start()
	testkit.WaitFor(t, func() bool { return strings.HasPrefix(send(1, "POST", 1, 60_000), "429 limit_reached") })
}
