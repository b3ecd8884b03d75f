package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// told prints the McpError of a call.
const told = `console.log(await mcp.everything.echo({ message: "hi" }).catch((e) => e.code + "\n" + e.message));`

// TestNotInstalled: a package that cannot be installed is an error that says why and what to do.
func TestNotInstalled(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, sandboxd and the proxy decide it")
	const gone = "@modelcontextprotocol/server-everything@9.9.9"
	for _, c := range []struct {
		name string
		env  map[string]string
		says map[string]string // by package
	}{
		{"the registry lacks it", nil, map[string]string{"@modelcontextprotocol/no-such-server@1.0.0": "no such package or version", gone: "9.9.9"}},
		{"no registry", map[string]string{"PACKAGE_REGISTRY": ""}, map[string]string{everything: "PACKAGE_REGISTRY"}},
		{"the registry has a certificate of nobody", map[string]string{"PACKAGE_REGISTRY": "https://" + upstream.BadCA + "/"}, map[string]string{everything: "certificate"}},
		{"the registry has no address", map[string]string{"PACKAGE_REGISTRY": "https://nowhere.invalid/"}, map[string]string{everything: "nowhere.invalid"}},
		{"a private address", map[string]string{"PACKAGE_REGISTRY_PRIVATE": ""}, map[string]string{everything: "PACKAGE_REGISTRY_PRIVATE"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			var apis []world.API
			for i, pkg := range slices.Sorted(maps.Keys(c.says)) {
				apis = append(apis, server(fmt.Sprint("server", i), pkg, nil))
			}
			w := world.Start(t, world.Config{Registry: true, Env: c.env, APIs: apis})
			for i, pkg := range slices.Sorted(maps.Keys(c.says)) {
				res := w.MustExecute(t, strings.Replace(told, "everything", apis[i].Name, 1))
				if !strings.HasPrefix(res.Out, "install_failed\n") || !strings.Contains(res.Out, c.says[pkg]) || !strings.Contains(res.Out, "Tell the user") {
					t.Errorf("%s: out %q, notes %q; want %q", pkg, res.Out, res.Notes, c.says[pkg])
				}
				t.Log(res.Out)
			}
		})
	}
}

// TestFirstPackage: a CodeForge that was started without a package, and so without a registry, installs the first one that
// mcp add writes: it names the registry that npm on this machine names.
func TestFirstPackage(t *testing.T) {
	w := world.Start(t, world.Config{Registry: true, Env: map[string]string{"PACKAGE_REGISTRY": ""}, APIs: []world.API{}})
	c, err := w.Command("mcp", "add", "everything")
	testkit.Must(t, err)
	if w.Mode == world.Docker { // the host's folder is not that of the stack
		c.Args = append(c.Args, "--apis", filepath.Join(w.Dir, "apis"))
	}
	c.Args = append(c.Args, "--", "npx", "-y", everything)
	bin := t.TempDir()
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	c.Env["PATH"] = bin + ":" + os.Getenv("PATH")
	const npm = "#!/bin/sh\necho https://" + upstream.Registry + "/\n"
	testkit.Must(t, errors.Join(os.Chmod(bin, 0o755), os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o755))) //nolint:gosec // a program
	out, code, err := world.Tool(t.Context(), c)
	if code != 0 || err != nil || !strings.Contains(out, "Wrote ") {
		t.Fatalf("%d %v\n%s", code, err, out)
	}
	if w.Mode == world.Docker {
		testkit.WaitFor(t, func() bool { return w.MustExecute(t, `console.log(typeof mcp)`).Out == "object\n" })
	} // otherwise at once: add has waited until it is loaded
	if res := w.MustExecute(t, told); res.Out != "Echo: hi\n" {
		t.Errorf("out %q, notes %q", res.Out, res.Notes)
	}
}

// TestOtherBytes: a registry that answers other bytes for a version than at its first installation gets nothing
// installed, and the user is told how to go on.
func TestOtherBytes(t *testing.T) {
	if world.CurrentMode() == world.Docker {
		t.Skip("the package is removed by hand: tested in embedded mode, and the jail's part by sandbox-image/internal/packages")
	}
	api := server("everything", everything, nil)
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{api}})
	if res := w.MustExecute(t, told); res.Out != "Echo: hi\n" {
		t.Fatalf("out %q, notes %q", res.Out, res.Notes)
	}
	requireOtherBytesRefused(t, w, api, told, "Echo: hi\n")
}

// requireOtherBytesRefused removes the only installed package, lets the registry answer other bytes, and requires that the
// next installation fails. Until then, call prints works.
func requireOtherBytesRefused(t *testing.T, w *world.World, api world.API, call, works string) {
	t.Helper()
	sealed, err := filepath.Glob(filepath.Join(w.Process.State, "packages", "*", "registry"))
	if err != nil || len(sealed) != 1 {
		t.Fatalf("sealed packages: %q, %v", sealed, err)
	}
	testkit.Must(t, os.RemoveAll(filepath.Dir(sealed[0])))
	w.Upstream.(*upstream.Server).BreakRegistry()
	// Another configuration is another server, whose process starts anew.
	api.Config["mcp"].(map[string]any)["timeout"] = 50
	text, err := json.Marshal(api.Config)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(w.Dir, "apis", api.Name, "config.json"), text, 0o600))
	var res world.Result
	testkit.WaitFor(t, func() bool {
		res = w.MustExecute(t, call)
		return res.Out != works
	})
	if !strings.HasPrefix(res.Out, "install_failed\n") || !strings.Contains(res.Out, "other bytes") {
		t.Errorf("out %q, notes %q", res.Out, res.Notes)
	}
}

// TestRemovedAPI: with its API a package goes, and the log says what that freed. One of an API that is only inactive stays.
func TestRemovedAPI(t *testing.T) {
	world.RunInOneMode(t, "mcp-server, sandboxd and the proxy decide it")
	sleeping := server("thinking", "@modelcontextprotocol/server-sequential-thinking@2026.8.31", nil)
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{server("everything", everything, nil), sleeping}})
	res := w.MustExecute(t, `console.log((await mcp.thinking.$tools()).length);
console.log(await mcp.everything.echo({ message: "hi" }));`)
	if res.Out != "1\nEcho: hi\n" {
		t.Fatalf("out %q, notes %q", res.Out, res.Notes)
	}
	if n := installedPackages(t, w); n != 2 {
		t.Errorf("%d packages are installed", n)
	}
	sleeping.Config["active"] = false
	text, err := json.Marshal(sleeping.Config)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(w.Dir, "apis", "thinking", "config.json"), text, 0o600))
	testkit.Must(t, os.RemoveAll(filepath.Join(w.Dir, "apis", "everything")))
	testkit.WaitFor(t, func() bool { return installedPackages(t, w) == 1 })
	testkit.WaitFor(t, func() bool {
		return strings.Contains(w.Logs(), "removed the package npm:"+everything+", which no API uses any more: ")
	})
	if strings.Contains(w.Logs(), "removed the package npm:@modelcontextprotocol/server-sequential-thinking") {
		t.Error("the package of an inactive API was removed")
	}
}

// installedPackages is how many packages are sealed.
func installedPackages(t *testing.T, w *world.World) int {
	t.Helper()
	if w.Mode == world.Embedded {
		sealed, err := filepath.Glob(filepath.Join(w.Process.State, "packages", "*", "registry"))
		testkit.Must(t, err)
		return len(sealed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	folder, err := w.Stack.Volume(ctx, "packages")
	testkit.Must(t, err)
	sealed, err := filepath.Glob(filepath.Join(folder, "*", "registry"))
	testkit.Must(t, err)
	return len(sealed)
}
