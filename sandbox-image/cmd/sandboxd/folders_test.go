package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// newHostFolder makes a folder with entries of every kind. The file secret lies beside it.
func newHostFolder(t *testing.T) (folder, secret string) {
	t.Helper()
	base, err := os.MkdirTemp("", "folder-test-")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	testkit.Must(t, os.Chmod(base, 0o755))
	folder, secret = filepath.Join(base, "reports"), filepath.Join(base, "secret")
	testkit.Must(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	for path, text := range map[string]string{
		secret: "sk_secret", folder + "/a.csv": "x,y\n1,2\n", folder + "/sub/b.txt": "below", folder + "/closed": "mine",
	} {
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	// Only the mount keeps code from writing.
	testkit.Must(t, os.Chmod(folder+"/a.csv", 0o666))
	testkit.Must(t, os.Chmod(folder, 0o777))
	testkit.Must(t, os.Chmod(folder+"/closed", 0o600))
	for name, target := range map[string]string{
		"absolute": secret, "relative": "../secret", "etc": "/etc", "root": "/", "proc": "/proc/1/environ", "inner": "a.csv",
	} {
		testkit.Must(t, os.Symlink(target, filepath.Join(folder, name)))
	}
	testkit.Must(t, unix.Mkfifo(folder+"/fifo", 0o666))
	testkit.Must(t, unix.Mknod(folder+"/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	testkit.Must(t, os.Truncate(mustCreate(t, folder+"/huge"), 64<<30))
	return folder, secret
}

func mustCreate(t *testing.T, path string) string {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, nil, 0o644))
	return path
}

// folderAttack is a Python expression that code must not be able to evaluate, with a text of its error.
type folderAttack struct{ name, code, refused string }

var folderAttacks = []folderAttack{
	{"link to a file outside", "open('/files/reports/absolute').read()", "No such file"},
	{"relative link", "open('/files/reports/relative').read()", "No such file"},
	{"link to /etc", "open('/files/reports/etc/passwd').read()", "No such file|denied"},
	{"link to /", "open('/files/reports/root/etc/passwd').read()", "No such file|denied"},
	{"link to /proc", "open('/files/reports/proc').read()", "No such file|denied"},
	{"..", "open('/files/reports/../secret').read()", "No such file"},
	{".. from a folder below", "open('/files/reports/sub/../../../secret').read()", "No such file"},
	{"a device", "open('/files/reports/zero','rb').read(1)", "denied"},
	{"writing", "open('/files/reports/new','w')", "Read-only"},
	{"changing", "open('/files/reports/a.csv','a')", "Read-only"},
	{"truncating", "os.truncate('/files/reports/a.csv',0)", "Read-only"},
	{"removing", "os.remove('/files/reports/a.csv')", "Read-only"},
	{"renaming", "os.rename('/files/reports/a.csv','/files/reports/b.csv')", "Read-only"},
	{"a folder", "os.mkdir('/files/reports/new')", "Read-only"},
	{"a link", "os.symlink('/etc','/files/reports/new')", "Read-only|not permitted"},
	{"a hard link", "os.link('/files/reports/a.csv','/tmp/a.csv')", "cross-device|not permitted|denied"},
	{"a mode", "os.chmod('/files/reports/a.csv',0o777)", "Read-only"},
	{"a time", "os.utime('/files/reports/a.csv')", "Read-only"},
	{"an attribute", "os.setxattr('/files/reports/a.csv','user.a',b'x')", "Read-only|not supported|not permitted"},
	{"replacing the folder", "os.rename('/files/reports','/files/x')", "Read-only|denied|Permission|busy"},
	{"a new folder", "os.mkdir('/files/etc')", "Read-only|denied"},
	{"unmounting", "(lambda l: (l.umount2(b'/folders/reports',2) and (_ for _ in ()).throw(OSError(ctypes.get_errno(),os.strerror(ctypes.get_errno())))))(ctypes.CDLL(None,use_errno=True))", "not permitted"},
	{"a program", "ctypes.CDLL('/files/reports/a.csv')", "cannot|too short|invalid|not permitted"},
	// A program of the host would follow the link, and another user could start the file.
	{"a link for the host", "os.symlink('/etc/passwd','/files/drafts/data.csv')", "not permitted"},
	{"a link from elsewhere", "(os.symlink('/etc/passwd','/tmp/link'),os.rename('/tmp/link','/files/drafts/data.csv'))", "not permitted"},
	{"a pipe for the host", "os.mkfifo('/files/drafts/pipe')", "not permitted"},
	{"a pipe in place of a file", "(os.mknod('/tmp/pipe',0o10666),os.rename('/tmp/pipe','/files/drafts/data.csv'))", "not permitted"},
	{"a file with its owner's rights", "(open('/files/drafts/own','w').close(),os.chmod('/files/drafts/own',0o4755))", "not permitted"},
	{"a new file with its owner's rights", "os.open('/files/drafts/new',os.O_CREAT|os.O_WRONLY,0o4755)", "not permitted"},
	{"a file without a name, with its owner's rights", "os.fchmod(os.open('/files/drafts',os.O_TMPFILE|os.O_RDWR),0o2755)", "not permitted"},
}

// TestFolders: code sees a folder of the host, and neither leaves it nor changes it.
// Promise: folders-stay-closed
func TestFolders(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		if m == Container && !confine.CanRestrictReads() {
			testkit.SkipBecause(t, "no Landlock")
		}
		folder, _ := newHostFolder(t)
		drafts, _ := newHostFolder(t)
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, Python: true, Folders: []jail.Folder{
			{Folder: sandboxapi.Folder{Name: "drafts", Write: true}, Source: drafts},
			{Folder: sandboxapi.Folder{Name: "reports"}, Source: folder},
		}})
		h, err := w.Client.Health(t.Context())
		testkit.Must(t, err)
		if len(h.Folders) != 2 || h.Folders[0] != (sandboxapi.Folder{Name: "drafts", Write: true}) || h.Folders[1].Write {
			t.Errorf("%+v", h.Folders)
		}
		var script strings.Builder
		script.WriteString("import ctypes, os\n")
		for _, a := range folderAttacks {
			script.WriteString("try: print(repr(" + a.code + "))\nexcept OSError as e: print('refused', e)\n")
		}
		lines := strings.Split(w.RunCode(t, script.String(), testkit.Patience).Stdout, "\n")
		for i, a := range folderAttacks {
			refused := false
			for _, text := range strings.Split(a.refused, "|") {
				refused = refused || strings.Contains(strings.ToLower(lines[i]), strings.ToLower(text))
			}
			if !refused || !strings.HasPrefix(lines[i], "refused") {
				t.Errorf("%s: %s", a.name, lines[i])
			}
		}
		r := w.RunCode(t, "import os\n"+
			"print(sorted(os.listdir('/files')), open('/files/reports/a.csv').read(), open('/files/reports/inner').read())\n"+
			"print([f for _, _, fs in os.walk('/files/reports') for f in fs if f == 'b.txt'], os.stat('/files/reports/huge').st_size)\n"+
			"open('/files/drafts/new', 'w').write('from code')\nopen('/tmp/x', 'w').write('y')\n", testkit.Patience)
		if want := "['drafts', 'reports'] x,y\n1,2\n x,y\n1,2\n\n['b.txt'] 68719476736\n"; r.Stdout != want || r.Exit.Code != 0 {
			t.Errorf("%q %s", r.Stdout, r.Stderr)
		}
		if text, err := os.ReadFile(drafts + "/new"); string(text) != "from code" {
			t.Errorf("%q %v", text, err)
		}
		// Under a user of its own, code has no right to a file of mode 0600. As an ordinary user it has the user's rights, and
		// this file is root's.
		if r = w.RunCode(t, "open('/files/reports/closed').read()", testkit.Patience); !strings.Contains(r.Stderr, "Permission denied") {
			t.Errorf("a file of mode 0600: %s", r.Stderr)
		}
		// A pipe without a writer blocks only the run.
		if r = w.RunCode(t, "open('/files/reports/fifo').read()", time.Second); r.Exit.Reason != sandboxapi.Timeout {
			t.Errorf("a pipe: %+v", r)
		}
		w.Language = sandboxapi.LanguageTypeScript
		r = w.RunCode(t, `const names = [...Deno.readDirSync("/files/reports")].map((f) => f.name);
console.log(names.length, Deno.readTextFileSync("/files/reports/a.csv").length, Deno.realPathSync("/files/reports"));
Deno.writeTextFileSync("/files/drafts/ts", "from code");
import text from "/files/reports/a.csv" with { type: "text" };
console.log(text.length);
for (const [how, path] of [["read", "/files/reports/absolute"], ["read", "/files/reports/etc/passwd"], ["read", "/files/reports/../secret"], ["write", "/files/reports/x"], ["write", "/files/x"], ["write", "/folders/reports/x"]]) {
  try { how === "read" ? Deno.readTextFileSync(path) : Deno.writeTextFileSync(path, "x"); console.log("done", how, path); } catch (e) { console.log(e.name); }
}
`, testkit.Patience)
		if !strings.HasPrefix(r.Stdout, "12 8 /folders/reports\n8\n") || strings.Contains(r.Stdout, "done") || strings.Count(r.Stdout, "\n") != 8 {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		// The folder goes away while runs use it, and another one with the same name comes.
		testkit.Must(t, os.Rename(folder, folder+"-moved"))
		testkit.Must(t, os.Symlink("/etc", folder))
		r = w.RunCode(t, `console.log(Deno.readTextFileSync("/files/reports/a.csv").length);`, testkit.Patience)
		if r.Stdout != "8\n" {
			t.Errorf("a renamed folder: %s%s", r.Stdout, r.Stderr)
		}
		testkit.Must(t, os.RemoveAll(folder+"-moved"))
		r = w.RunCode(t, `console.log([...Deno.readDirSync("/files/reports")].length);`, testkit.Patience)
		if r.Stdout != "0\n" {
			t.Errorf("a removed folder: %s%s", r.Stdout, r.Stderr)
		}
	})
}

// TestChosenFolders: a run and an MCP server see only the folders that were chosen for them.
// Promise: folders-stay-closed
func TestChosenFolders(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		if m == Container && !confine.CanRestrictReads() {
			testkit.SkipBecause(t, "no Landlock")
		}
		w := startChosen(t, m)
		const list = "import os\ndef get(p):\n  try: return open(p).read()[:3]\n  except OSError: return '-'\n" +
			"print(get('/files/one/a.csv'), get('/files/two/a.csv'), get('/folders/one/a.csv'), get('/folders/two/a.csv'))\n"
		for _, row := range []struct {
			folders []string
			want    string
		}{
			{[]string{"*"}, "x,y x,y x,y x,y\n"}, {[]string{"two"}, "- x,y - x,y\n"}, {[]string{"one", "absent"}, "x,y - x,y -\n"},
			{[]string{}, "- - - -\n"}, {nil, "x,y x,y x,y x,y\n"},
		} {
			for _, private := range []bool{false, true} {
				w.Folders, w.Private = row.folders, private
				if r := w.RunCode(t, list, testkit.Patience); r.Stdout != row.want {
					t.Errorf("%v, private %v: %q %s", row.folders, private, r.Stdout, r.Stderr)
				}
			}
		}
		const change = "import os\ndef tries(f):\n  try: f()\n  except OSError: return '-'\n  return 'done'\n" +
			"d = '/folders/drafts/'\n" +
			"print(tries(lambda: open(d + 'new', 'w')), tries(lambda: open(d + 'a.csv', 'a')), tries(lambda: os.truncate(d + 'a.csv', 1)),\n" +
			"  tries(lambda: os.mkdir(d + 'sub2')), tries(lambda: os.symlink('/etc', d + 'link')), tries(lambda: os.mkfifo(d + 'pipe')),\n" +
			"  tries(lambda: os.rename(d + 'a.csv', d + 'b.csv')), tries(lambda: os.remove(d + 'a.csv')))\n"
		for _, private := range []bool{false, true} {
			w.Folders, w.Private = []string{"two"}, private
			if r := w.RunCode(t, change, testkit.Patience); r.Stdout != "- - - - - - - -\n" {
				t.Errorf("changes in a folder of others, private %v: %q %s", private, r.Stdout, r.Stderr)
			}
		}
		w.Folders, w.Private = []string{"drafts"}, false
		if r := w.RunCode(t, change, testkit.Patience); !strings.HasPrefix(r.Stdout, "done done done done - - done ") {
			t.Errorf("changes in its folder: %q %s", r.Stdout, r.Stderr)
		}
		s := w.StartServer(t, sandboxapi.ServerHead{Folders: []string{"two"}})
		for path, want := range map[string]string{
			"/files/two/a.csv": "x,y\n1,2\n", "/files/one/a.csv": "", "/folders/one/a.csv": "", "/files/two/absolute": "",
		} {
			if out, err := s.SendCommand("read " + path); out != want || (err == nil) != (want != "") {
				t.Errorf("a server: %s: %q %v", path, out, err)
			}
		}
		if _, err := s.SendCommand("write /files/two/x y"); err == nil {
			t.Error("a server wrote to a read-only folder")
		}
		for _, path := range []string{"/folders/drafts/of-a-server", "/folders/two/of-a-server"} {
			if _, err := s.SendCommand("write " + path + " y"); err == nil {
				t.Errorf("a server wrote %s", path)
			}
		}
		writer := w.StartServer(t, sandboxapi.ServerHead{Folders: []string{"drafts"}})
		if _, err := writer.SendCommand("write /files/drafts/of-a-server y"); err != nil {
			t.Errorf("a server and its folder: %v", err)
		}
		without := w.StartServer(t, sandboxapi.ServerHead{})
		if out, err := without.SendCommand("read /folders/two/a.csv"); err == nil {
			t.Errorf("a server without folders: %q", out)
		}
		if _, err := w.TryServer(t, sandboxapi.ServerHead{Folders: []string{"three"}}); err == nil ||
			!strings.Contains(err.Error(), `there is no folder "three"`) {
			t.Errorf("an unknown folder: %v", err)
		}
	})
}

// startChosen starts a world with the folders one and two, which are read-only, and drafts, which is writable.
func startChosen(t *testing.T, m Mode) *World {
	t.Helper()
	one, _ := newHostFolder(t)
	two, _ := newHostFolder(t)
	drafts, _ := newHostFolder(t)
	return StartWorld(t, Options{
		Mode: m, Slots: 1, Warm: 1, Python: true, Servers: 4, Bridge: BuildPuppet(t), Folders: []jail.Folder{
			{Folder: sandboxapi.Folder{Name: "drafts", Write: true}, Source: drafts},
			{Folder: sandboxapi.Folder{Name: "one"}, Source: one}, {Folder: sandboxapi.Folder{Name: "two"}, Source: two},
		},
	})
}

// TestRunInput: a run gets its standard input and files in both languages, and the next run has neither.
// Promise: folders-stay-closed
func TestRunInput(t *testing.T) {
	programs := map[sandboxapi.Language]string{
		sandboxapi.LanguageTypeScript: `const all = [];
for await (const part of Deno.stdin.readable) all.push(part.length);
let found = "-"; try { found = Deno.readTextFileSync("/files/data.csv"); } catch (e) { if (e.name !== "NotFound") throw e; }
let write = "-"; try { Deno.writeTextFileSync("/files/data.csv", "x"); write = "wrote"; } catch { /* as it must be */ }
console.log(all.reduce((a, b) => a + b, 0), found.length, write);
`,
		sandboxapi.LanguagePython: `import sys
size = len(sys.stdin.buffer.read())
try: found = open("/files/data.csv").read()
except FileNotFoundError: found = "-"
write = "-"
try:
  open("/files/data.csv", "w"); write = "wrote"
except OSError: pass
print(size, len(found), write)
`,
	}
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		for language, code := range programs {
			for _, helpers := range []string{"", "// parallel", "# parallel"} {
				if helpers != "" && (helpers[0] == '#') != language.IsPython() {
					continue
				}
				stdin, file := 90<<10, 50<<10 // bytes; more than a pipe holds
				if m == Root && helpers == "" || testkit.IsThorough() {
					stdin, file = 9<<20, 5<<20
				}
				w.Language = language
				w.Input = &sandboxapi.Input{
					Stdin: make([]byte, stdin), Files: map[string][]byte{"data.csv": []byte(strings.Repeat("x", file)), "Größe.txt": nil},
				}
				if r := w.RunCode(t, code+helpers, testkit.Patience); r.Stdout != fmt.Sprintf("%d %d -\n", stdin, file) {
					t.Errorf("%s %q: %q %s", language, helpers, r.Stdout, r.Stderr)
				}
				// Code that does not read its input ends at once.
				if r := w.RunCode(t, map[bool]string{false: "console.log(1)", true: "print(1)"}[language.IsPython()], testkit.Patience); r.Stdout != "1\n" || r.Exit.Code != 0 {
					t.Errorf("%s without reading: %+v", language, r)
				}
				w.Input = nil
				if r := w.RunCode(t, code+helpers, testkit.Patience); r.Stdout != "0 1 -\n" {
					t.Errorf("%s, the next run: %q %s", language, r.Stdout, r.Stderr)
				}
			}
		}
		if m != Root && !testkit.IsThorough() {
			return // the checks of the input are the same in all modes
		}
		for name, in := range map[string]*sandboxapi.Input{
			"a path":     {Files: map[string][]byte{"../main.ts": nil}},
			"a folder":   {Files: map[string][]byte{"a/b": nil}},
			"dot":        {Files: map[string][]byte{".": nil}},
			"a control":  {Files: map[string][]byte{"a\nb": nil}},
			"too long":   {Stdin: make([]byte, sandboxapi.MaxInput+1)},
			"both":       {Stdin: make([]byte, sandboxapi.MaxInput), Files: map[string][]byte{"a": {1}}},
			"empty name": {Files: map[string][]byte{"": nil}},
		} {
			w.Input = in
			if _, err := w.TryCode(t.Context(), "1", testkit.Patience); err == nil || !strings.Contains(err.Error(), "input: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestFolderName: a file of a run never replaces a folder.
// Promise: folders-stay-closed
func TestFolderName(t *testing.T) {
	folder, _ := newHostFolder(t)
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Folders: []jail.Folder{
		{Folder: sandboxapi.Folder{Name: "reports"}, Source: folder},
	}})
	w.Input = &sandboxapi.Input{Files: map[string][]byte{"reports": []byte("x")}}
	if _, err := w.TryCode(t.Context(), "1", testkit.Patience); err == nil || !strings.Contains(err.Error(), "name of a folder") {
		t.Error(err)
	}
	w.Input.Files = map[string][]byte{"beside.csv": []byte("x")}
	if r := w.RunCode(t, `console.log([...Deno.readDirSync("/files")].map((f) => f.name).sort().join());`, testkit.Patience); r.Stdout != "beside.csv,reports\n" {
		t.Errorf("%q %s", r.Stdout, r.Stderr)
	}
}
