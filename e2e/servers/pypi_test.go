package servers

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// Servers of PyPI. Today's versions of mcp break the last three.
const (
	timeServer   = "mcp-server-time==2026.10.19"
	fetchServer  = "mcp-server-fetch==2025.4.7"
	sqliteServer = "mcp-server-sqlite==2025.4.25"
	sentryServer = "mcp-server-sentry==2025.1.14"
)

// wheels are the packages of PyPI for registry.Fetch.
var wheels = []string{"pypi:" + timeServer, "pypi:" + fetchServer + " mcp<2", "pypi:" + sqliteServer + " mcp<2", "pypi:" + sentryServer + " mcp<2", "pypi:mcp==2.3.0"}

// pythonServer is a server of PyPI.
func pythonServer(name, pkg string, mcp map[string]any) world.API {
	mcp["package"] = "pypi:" + strings.Replace(pkg, "==", "@", 1)
	mcp["registry"] = "https://" + upstream.Registry + "/" + registry.IndexPath
	return world.API{Name: name, Config: map[string]any{"description": "the server " + name, "domains": []string{upstream.HTTPBin}, "mcp": mcp}}
}

// TestPyPI: servers of PyPI are installed and called. Their requests go through the proxy, which swaps their key. If a
// dependency is too new for one, the error names the constraint that helps. The packages decide most of it, so one user
// starts all servers, and the others the one with a key.
// Promise: server-confinement, first-installed-package
func TestPyPI(t *testing.T) {
	key := canary.New("SENTRY_AUTH_TOKEN")
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			sentry := pythonServer("sentry", sentryServer, map[string]any{
				"constraints": []string{"mcp<2"}, "env": map[string]string{"SENTRY_TOKEN": "SENTRY_AUTH_TOKEN"},
			})
			sentry.Config["domains"], sentry.Config["credentials"] = []string{"sentry.io"}, map[string]string{"SENTRY_AUTH_TOKEN": key.Value()}
			all := user == world.Ordinary || testkit.IsThorough()
			w := world.Start(t, world.Config{Registry: true, User: user, Change: func(apis []world.API) []world.API {
				list := []world.API{sentry}
				if all {
					list = append(list,
						pythonServer("time", timeServer, map[string]any{}),
						pythonServer("fetch", fetchServer, map[string]any{"constraints": []string{"mcp<2"}, "args": []string{"--ignore-robots-txt"}}),
						pythonServer("sqlite", sqliteServer, map[string]any{"constraints": []string{"mcp<2"}, "args": []string{"--db-path", "~/x.db"}}),
						pythonServer("broken", sqliteServer, map[string]any{}),
						pythonServer("nothing", "mcp-server-time==1", map[string]any{}),
					)
				}
				for _, api := range list {
					for _, key := range []string{"allow_private", "ca_file"} {
						api.Config[key] = apis[0].Config[key]
					}
				}
				return list
			}})
			for _, c := range []struct{ server, code, want string }{
				{"time", `mcp.time.convert_time({ source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" })`, `+09:00`},
				{"fetch", `mcp.fetch.fetch({ url: "https://` + upstream.HTTPBin + `/headers", raw: true })`, `"Host"`},
				{"sqlite", `mcp.sqlite.write_query({ query: "CREATE TABLE a (b TEXT)" })`, ``},
				{"sqlite", `mcp.sqlite.list_tables({})`, `'a'`},
				// The host answers with another body than this server expects, after it got the key.
				{"sentry", `mcp.sentry.get_sentry_issue({ issue_id_or_url: "1" }).catch((e) => e.code)`, ``},
				{"broken", `mcp.broken.list_tables({}).catch((e) => e.code + e.message)`, `"constraints": ["mcp<2"`},
				{"nothing", `mcp.nothing.x({}).catch((e) => e.code + e.message)`, "install_failed"},
			} {
				if !all && c.server != "sentry" {
					continue
				}
				res := w.MustExecute(t, "const got = await "+c.code+`; console.log(typeof got === "string" ? got : JSON.stringify(got));`)
				if res.IsError || !strings.Contains(res.Out, c.want) {
					t.Errorf("%s: out %q, notes %q", c.code, res.Out, res.Notes)
				}
				if where := canary.Join(map[string]*canary.Canary{"sentry": key}).Find([]byte(res.JSON)); where != "" {
					t.Errorf("the result has the key: %s", where)
				}
			}
			injected(t, w, "sentry.io", key.Value())
		})
	}
}

// TestOtherWheel: an index that answers other bytes for a version than at its first installation gets no package installed.
// Promise: first-installed-package
func TestOtherWheel(t *testing.T) {
	if world.CurrentMode() == world.Docker {
		t.Skip("the package is removed by hand: tested in embedded mode")
	}
	api := pythonServer("time", timeServer, map[string]any{})
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{api}})
	const call = `console.log(await mcp.time.get_current_time({ timezone: "UTC" }).then(() => "ok", (e) => e.code + "\n" + e.message));`
	if res := w.MustExecute(t, call); res.Out != "ok\n" {
		t.Fatalf("out %q, notes %q", res.Out, res.Notes)
	}
	requireOtherBytesRefused(t, w, api, call, "ok\n")
}

// TestNoPython: without Python a server of PyPI fails with the reason.
func TestNoPython(t *testing.T) {
	if world.CurrentMode() == world.Docker {
		t.Skip("the image has Python")
	}
	w := world.Start(t, world.Config{Registry: true, Env: map[string]string{"PYTHON_PATH": "/bin/false"}, APIs: []world.API{
		pythonServer("time", timeServer, map[string]any{}),
	}})
	res := w.MustExecute(t, `console.log(await mcp.time.get_current_time({ timezone: "UTC" }).catch((e) => e.message));`)
	if !strings.Contains(res.Out, "packages of PyPI need Python") {
		t.Errorf("out %q, notes %q", res.Out, res.Notes)
	}
}
