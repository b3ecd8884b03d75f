package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// good is an API without a mistake.
func good() world.API {
	return world.API{Name: "good", Config: map[string]any{
		"description": "fine", "domains": []string{"good.test"}, "credentials": map[string]any{"GOOD_TOKEN": "long-enough-value"},
	}}
}

// TestBadAPIs checks that mistakes in apis/ are all reported at once, by file, field and remedy and without the
// credential, and that the other APIs work.
func TestBadAPIs(t *testing.T) {
	embeddedOnly(t)
	const hidden = "this-is-the-real-credential"
	rows := []struct {
		name string
		apis []world.API
		want []string
	}{
		{"unparsable", []world.API{{Name: "bad", Text: `{"domains": ["a.test"], "credentials": {"BAD_TOKEN": "` + hidden + `"}`}, good()}, []string{"apis/bad/config.json"}},
		{"not JSON at all", []world.API{{Name: "bad", Text: hidden}, good()}, []string{"apis/bad/config.json"}},
		{"unknown field", []world.API{{Name: "bad", Text: `{"description":"x","domain": ["a.test"], "credentials": {"BAD_TOKEN": "` + hidden + `"}}`}, good()}, []string{"apis/bad/config.json", "domain", "domains"}},
		{"three mistakes", []world.API{{Name: "bad", Text: `{"description":"x","domains": ["http://a.test/"], "credentials": {"bad token": "` + hidden + `"}, "activ": true}`}, good()}, []string{"apis/bad/config.json", "domains", "credentials", "activ"}},
		{"two bad of three", []world.API{{Name: "bad", Text: `{`}, {Name: "worse", Text: `[]`}, good()}, []string{"apis/bad/config.json", "apis/worse/config.json"}},
		{"short credential", []world.API{{Name: "bad", Text: `{"description":"x","domains":["a.test"],"credentials":{"BAD_TOKEN":"short"}}`}, good()}, []string{"apis/bad/config.json", "BAD_TOKEN"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir, err := world.NewDir(world.Self, row.apis, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			out, code, err := world.Tool(within(t, 20), world.Command{Dir: dir, Args: []string{"check", "--apis", filepath.Join(dir, "apis")}})
			if err != nil || code != 1 {
				t.Errorf("codeforge check ended with %d, %v; want 1", code, err)
			}
			expect(t, "codeforge check", out, row.want, hidden)
			p, err := world.StartUp(world.Self, dir, 2)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Ready(60 * time.Second); err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			expect(t, "codeforge up", p.Output(), append(row.want, "good"), hidden)
		})
	}
}

func expect(t *testing.T, who, out string, want []string, never string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(out, s) {
			t.Errorf("%s does not say %q:\n%s", who, s, out)
		}
	}
	if strings.Contains(out, never) {
		t.Errorf("%s shows the credential:\n%s", who, out)
	}
}

// TestFailedStarts checks that a failed start says in one clear line what is missing, exits with 1, and leaves nothing
// behind.
func TestFailedStarts(t *testing.T) {
	embeddedOnly(t)
	rows := []struct {
		name  string
		setup func(t *testing.T, c *world.Command)
		want  []string
	}{
		{"env value that does not parse", func(t *testing.T, c *world.Command) {
			write(t, c.Dir, ".env", "SANDBOX_SLOTS=many\nYOLO_MODE=perhaps\n")
		}, []string{"SANDBOX_SLOTS", "many", "YOLO_MODE", "perhaps"}},
		{"environment value that does not parse", func(_ *testing.T, c *world.Command) { c.Env["TIMEOUT_MAX"] = "soon" }, []string{"TIMEOUT_MAX", "soon"}},
		{"env file that does not parse", func(t *testing.T, c *world.Command) { write(t, c.Dir, ".env", "this is no assignment\n") }, []string{".env", "1"}},
		{"port taken", takePort, []string{"port", "in use"}},
		{"no Deno", func(_ *testing.T, c *world.Command) { c.Env["DENO_PATH"] = filepath.Join(c.Dir, "no-deno") }, []string{"Deno", "no-deno"}},
		{"no Deno anywhere", func(_ *testing.T, c *world.Command) { c.Env["DENO_PATH"] = "" }, []string{"Deno", "DENO_PATH"}},
		{"no bubblewrap", func(_ *testing.T, c *world.Command) { c.Env["PATH"] = c.Dir }, []string{"bubblewrap"}},
		{"a daemon is missing", missingDaemon, []string{"egress-proxy"}},
		{"no apis directory", func(_ *testing.T, c *world.Command) {
			c.Args = append(c.Args, "--apis", filepath.Join(c.Dir, "nowhere"))
		}, []string{"nowhere"}},
		{"unknown flag", func(_ *testing.T, c *world.Command) { c.Args = append(c.Args, "--speed", "fast") }, []string{"speed"}},
		{"too many slots", func(_ *testing.T, c *world.Command) { c.Args = append(c.Args, "--slots", "500") }, []string{"500", "slots"}},
	}
	for user, id := range users() {
		for _, row := range rows {
			t.Run(user+"/"+row.name, func(t *testing.T) {
				before := world.TakeSnapshot()
				dir, err := world.NewDir(id, []world.API{good()}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				port, err := compose.FreePort()
				if err != nil {
					t.Fatal(err)
				}
				c := world.Command{User: id, Dir: dir, Env: map[string]string{}, Args: []string{"up", "--state", filepath.Join(dir, "state"), "--port", strconv.Itoa(port)}}
				t.Run("start", func(t *testing.T) {
					row.setup(t, &c)
					out, code, err := world.Tool(within(t, 40), c)
					if err != nil || code != 1 && code != 2 {
						t.Errorf("codeforge up ended with %d, %v; want 1\n%s", code, err, out)
					}
					expect(t, "codeforge up", strings.ToLower(out), lower(row.want), "panic")
					if n := strings.Count(strings.TrimSpace(out), "\n"); n > 12 {
						t.Errorf("codeforge up needs %d lines to say it:\n%s", n, out)
					}
				})
				if left := before.Leftovers(); len(left) > 0 {
					t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
				}
			})
		}
	}
}

// TestNoUserNamespaces checks that an error names the kernel setting that forbids user namespaces, and the remedy.
func TestNoUserNamespaces(t *testing.T) {
	embeddedOnly(t)
	if _, err := exec.LookPath("unshare"); err != nil {
		testkit.SkipBecause(t, "no unshare command")
	}
	dir, err := world.NewDir(world.Ordinary, []world.API{good()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// The limit is set in a user namespace made for this test, so that the machine's own stays.
	shell := filepath.Join(dir, "shell")
	write(t, dir, "shell", "#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec "+world.Binary("codeforge")+" \"$@\"' sh \"$@\"\n")
	if err := os.Chmod(shell, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(shell, filepath.Join(bin, "codeforge")); err != nil {
		t.Fatal(err)
	}
	out, code, err := world.Tool(within(t, 30), world.Command{User: world.Ordinary, Dir: dir, Bin: bin, Args: []string{"up", "--state", filepath.Join(dir, "state"), "--port", "18099"}})
	if err != nil || code != 1 {
		t.Errorf("codeforge up ended with %d, %v; want 1\n%s", code, err, out)
	}
	expect(t, "codeforge up", out, []string{"user.max_user_namespaces", "sysctl -w"}, "panic")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// takePort makes another process listen on the port.
func takePort(t *testing.T, c *world.Command) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c.Args = append(c.Args, "--port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// missingDaemon runs codeforge from a folder without egress-proxy.
func missingDaemon(t *testing.T, c *world.Command) {
	t.Helper()
	bin := filepath.Join(c.Dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"codeforge", "sandboxd", "mcp-server"} {
		data, err := os.ReadFile(world.Binary(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Bin = bin
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// within is a context for a command that must end within some seconds, and a minute more on a machine that is busy with others.
func within(t *testing.T, seconds int) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}
