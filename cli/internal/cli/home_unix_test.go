//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestForeignFolder: what another user puts into a folder that everybody can write to, such as /tmp, chooses no program
// for whoever works there.
// Promise: foreign-folders
func TestForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root to make another user's file")
	}
	const me, other = 0, 65534
	for _, c := range []struct {
		name    string
		mode    os.FileMode
		file    string
		owner   int
		sudo    string
		refused bool
	}{
		{"another user's .env", 0o777, ".env", other, "", true},
		{"another user's apis", 0o777, "apis", other, "", true},
		{"another user's state", 0o777, ".codeforge", other, "", true},
		{"another user's program", 0o777, "deno", other, "", false},
		{"my own .env", 0o777, ".env", me, "", false},
		{"with sudo, that of the caller", 0o777, ".env", other, "65534", false},
		{"with sudo, a third user's", 0o777, ".env", other, "1000", true},
		{"only its owner can write to the folder", 0o755, ".env", other, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			testkit.Must(t, os.WriteFile(path, nil, 0o600))
			testkit.Must(t, os.Lchown(path, c.owner, c.owner))
			testkit.Must(t, os.Chmod(dir, c.mode))
			t.Chdir(dir)
			e := &Env{Environ: []string{"SUDO_UID=" + c.sudo}}
			if err := e.setHome(); (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), "belongs to another user") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestForeignUV: beside a folder of codeforge in /tmp, another user's uv is not started.
// Promise: foreign-folders
func TestForeignUV(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root to make another user's file")
	}
	for owner, want := range map[int]bool{0: true, 65534: false} {
		shared := t.TempDir()
		bin, tools := filepath.Join(shared, "codeforge"), filepath.Join(shared, ".tools")
		testkit.Must(t, os.Mkdir(bin, 0o755))
		testkit.Must(t, os.Mkdir(tools, 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(tools, "uv"), nil, 0o700)) //nolint:gosec // a program
		testkit.Must(t, os.Lchown(tools, owner, owner))
		testkit.Must(t, os.Chmod(shared, 0o777|os.ModeSticky)) //nolint:gosec // as /tmp
		if got := findOwnUV(&Env{}, bin); (got != "") != want {
			t.Errorf("uv of user %d: %q", owner, got)
		}
	}
}

// TestForeignState: a state directory in somebody else's folder, in which they hold the lock, does not choose where code is
// sent, nor which process codeforge down ends.
// Promise: foreign-folders
func TestForeignState(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root to make another user's directory")
	}
	const me, other = 0, 65534
	for _, c := range []struct {
		name    string
		owner   int
		sudo    string
		args    []string
		refused bool
	}{
		{"another user's", other, "", nil, true},
		{"with sudo, that of the caller", other, "65534", nil, false},
		{"with sudo, a third user's", other, "1000", nil, true},
		{"another user's, named by root", other, "", []string{"--state", ".codeforge"}, false},
		{"my own", me, "", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := statedir.CreateDir(filepath.Join(t.TempDir(), statedir.Default))
			testkit.Must(t, err)
			lock, err := dir.Lock()
			testkit.Must(t, err)
			defer lock.Close()
			testkit.Must(t, dir.WriteUp(statedir.UpState{PID: 7, URL: "http://evil.example"}))
			testkit.Must(t, os.Lchown(dir.Path(), c.owner, c.owner))
			testkit.Must(t, os.Chmod(dir.Path(), 0o755))
			t.Chdir(filepath.Dir(dir.Path()))
			flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
			target := targetFlags(flags)
			testkit.Must(t, flags.Parse(c.args))
			e := &Env{Environ: []string{"SUDO_UID=" + c.sudo}}
			if _, err := target.newConfig(e); (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), "belongs to another user") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCompleteNames: a folder in somebody's project cannot put commands of its own into the line that a shell completes.
// Promise: foreign-folders
func TestCompleteNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"shop", "$(id)", "`id`", "a;id", "a b", "a\nb", "-x", "*", "\x1b[2K"} {
		dir := filepath.Join("apis", name)
		testkit.Must(t, os.MkdirAll(dir, 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	}
	out, err := os.Create("out")
	testkit.Must(t, err)
	defer out.Close()
	code := Run(t.Context(), &Env{
		Args: []string{"__complete", "api", "edit", ""}, Stdout: terminal.NewStream(out), Stderr: terminal.NewStream(os.Stderr),
	})
	if got, err := os.ReadFile("out"); code != 0 || err != nil || string(got) != "shop\n:4\n" { // 4: offer no files
		t.Errorf("exit code %d, %q, %v", code, got, err)
	}
}

// TestAPIFolder: commands act on the folder of APIs that Compose mounts, whatever the working directory is. If .env is
// unreadable, a command that changes an API changes none.
func TestAPIFolder(t *testing.T) {
	const active, inactive = `{"domains":["a.test"],"active":true}`, `{"domains":["a.test"],"active":false}`
	elsewhere := filepath.Join(t.TempDir(), "apis")
	for _, c := range []struct{ name, dotenv, environ, used string }{
		{"without the setting", "", "", "apis"},
		{"an absolute path", "CODEFORGE_APIS=" + elsewhere, "", elsewhere},
		{"a path relative to .env", "CODEFORGE_APIS=./mine", "", "mine"},
		{"the environment", "CODEFORGE_APIS=" + elsewhere, "CODEFORGE_APIS=mine", "mine"},
		{"an unreadable .env", "CODEFORGE_APIS='mine", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			testkit.Must(t, os.Mkdir(filepath.Join(home, "sub"), 0o755))
			t.Chdir(filepath.Join(home, "sub"))
			testkit.Must(t, os.WriteFile(filepath.Join(home, dotenvFile), []byte(c.dotenv), 0o600))
			configs := map[string]string{"apis": filepath.Join(home, "apis"), "mine": filepath.Join(home, "mine"), elsewhere: elsewhere}
			for folder, path := range configs {
				path = filepath.Join(path, "shop")
				testkit.Must(t, os.MkdirAll(path, 0o755))
				configs[folder] = filepath.Join(path, "config.json")
				testkit.Must(t, os.WriteFile(configs[folder], []byte(active), 0o600))
			}
			run := func(args ...string) (string, int) {
				out, err := os.Create(filepath.Join(home, "out"))
				testkit.Must(t, err)
				defer out.Close()
				e := &Env{Args: args, Environ: []string{"MCP_PORT=1", c.environ}, Stdout: terminal.NewStream(out), Stderr: terminal.NewStream(out)}
				code := Run(t.Context(), e)
				text, err := os.ReadFile(out.Name())
				testkit.Must(t, err)
				return string(text), code
			}
			text, code := run("api", "disable", "shop")
			if (code == 0) != (c.used != "") {
				t.Errorf("exit code %d: %s", code, text)
			}
			for folder, path := range configs {
				got, err := os.ReadFile(path)
				testkit.Must(t, err)
				if is := strings.Join(strings.Fields(string(got)), "") == inactive; is != (folder == c.used) {
					t.Errorf("%s: %s", folder, got)
				}
			}
			if text, code := run("check"); c.used != "" && (code != 0 || !strings.Contains(text, "0 active APIs")) || c.used == "" && code != 1 {
				t.Errorf("check: exit code %d: %s", code, text)
			}
			if text, _ := run("__complete", "api", "edit", ""); c.used != "" && !strings.HasPrefix(text, "shop\n") {
				t.Errorf("completes %q", text)
			}
		})
	}
}

// TestDefaultHome: without another folder, up makes ~/codeforge, and the commands after it find it. A folder of another user
// there, or one that all users can write to, does not count.
// Promise: foreign-folders
func TestDefaultHome(t *testing.T) {
	user, cwd := t.TempDir(), t.TempDir()
	home := filepath.Join(user, "codeforge")
	discard, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	testkit.Must(t, err)
	defer discard.Close()
	newEnv := func(environ ...string) *Env {
		e := &Env{Environ: append(environ, "HOME="+user), Stderr: terminal.NewStream(discard)}
		testkit.Must(t, e.setHome())
		return e
	}
	t.Chdir(cwd)
	if e := newEnv(); e.home != "" {
		t.Fatalf("before up, the home folder is %q", e.home)
	}
	for _, environ := range []string{"CODEFORGE_APIS=/srv/apis", "CODEFORGE_HOME=" + cwd} {
		testkit.Must(t, newEnv(environ).createDefaultHome())
	}
	testkit.Must(t, os.WriteFile(".env", nil, 0o600))
	testkit.Must(t, newEnv().createDefaultHome())
	testkit.Must(t, os.Remove(".env"))
	if _, err := os.Stat(home); err == nil {
		t.Fatalf("%s was made although another folder was chosen", home)
	}
	e := newEnv()
	testkit.Must(t, e.createDefaultHome())
	if e.home != home {
		t.Errorf("up uses %q, want %q", e.home, home)
	}
	if info, err := os.Stat(filepath.Join(home, ".env")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf(".env: %v, %v", info, err)
	}
	if e := newEnv(); e.home != home {
		t.Errorf("the next command uses %q, want %q", e.home, home)
	}
	testkit.Must(t, os.Chmod(home, 0o777)) //nolint:gosec // what the test is about
	if e := newEnv(); e.home != "" {
		t.Errorf("a folder that all users can write to is used: %q", e.home)
	}
	if os.Geteuid() == 0 {
		testkit.Must(t, os.Chmod(home, 0o755)) //nolint:gosec // as usual
		testkit.Must(t, os.Lchown(home, 65534, 65534))
		if e := newEnv(); e.home != "" {
			t.Errorf("another user's folder is used: %q", e.home)
		}
	}
}
