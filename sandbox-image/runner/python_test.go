package runner

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// pythonRun runs code in Python as sandboxd does, with the servers' requests going to b.
func pythonRun(t *testing.T, b *broker, code string) string {
	t.Helper()
	dir := t.TempDir()
	const connect = `http.client.HTTPSConnection(HOST, context=ssl.create_default_context())`
	source, first, _ := strings.Cut(string(mcpPython), connect)
	if first == "" {
		t.Fatal("mcp.py does not connect as expected")
	}
	source += "http.client.HTTPConnection(" + `"` + strings.TrimPrefix(b.URL, "http://") + `")` + first
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), Site, 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(code), 0o600))
	cmd := exec.Command(testkit.FindPython(t).Program, "-s", "-B", "-X", "utf8", filepath.Join(dir, "main.py"))
	cmd.Env = []string{"PYTHONPATH=" + dir, "HOME=" + dir, "LANG=C.UTF-8"}
	source = `{"s":["text","dash-ed"],"t":[]}` + "\n" + source
	cmd.Stdin = strings.NewReader(fmt.Sprintf("m%08x%s", len(source), source))
	out, err := cmd.CombinedOutput()
	text := strings.TrimPrefix(string(out), "\x00")
	if err != nil {
		text += err.Error()
	}
	return text
}

// TestSkillModule: a skill is imported with _ for -, unless two skills have that name: nothing is imported in the place of
// another.
// Promise: pinned-skills
func TestSkillModule(t *testing.T) {
	for name, files := range map[string][]string{"open-report": {"open-report.py"}, "open_report": {"open_report.py"}, "": {"open-report.py", "open_report.py"}} {
		dir := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), Site, 0o600))
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "skills"), 0o700))
		for _, f := range files {
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "skills", f), []byte("me = '"+strings.TrimSuffix(f, ".py")+"'\n"), 0o600))
		}
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte("from skills import open_report\nprint(open_report.me)\n"), 0o600))
		cmd := exec.Command(testkit.FindPython(t).Program, "-s", "-B", filepath.Join(dir, "main.py"))
		cmd.Env = []string{"PYTHONPATH=" + dir, "HOME=" + dir, "LANG=C.UTF-8"}
		cmd.Stdin = strings.NewReader("\n")
		out, err := cmd.CombinedOutput()
		text := strings.TrimPrefix(string(out), "\x00")
		if name != "" && (err != nil || text != name+"\n") || name == "" && !strings.Contains(text, "ImportError: open_report.py and open-report.py are both imported as skills.open_report") {
			t.Errorf("%v: %v %s", files, err, text)
		}
	}
}

// TestSkillCoding: a skill is UTF-8 whatever it says. In UTF-7 a comment could hold code that no reader sees. The folder
// of pinned skills comes first, also if code adds /skills to sys.path.
// Promise: pinned-skills
func TestSkillCoding(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), Site, 0o600))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "skills"), 0o700))
	const skill = "# coding: utf-7\nword = 'plain'\n# +AAo-word = 'hidden'\n"
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "skills", "odd.py"), []byte(skill), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "skills", "marked.py"), []byte("\ufeffword = 'marked'\n"), 0o600))
	for _, code := range []string{
		"from skills import odd, marked\n",
		"import sys\nsys.path.insert(0, '/skills')\nimport odd, marked\n",
		"import os, sys\nos.chdir('/')\nsys.path.append('skills/')\nimport odd, marked\n",
	} {
		code += "print(odd.word, marked.word)\n"
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(code), 0o600))
		cmd := exec.Command(testkit.FindPython(t).Program, "-s", "-B", filepath.Join(dir, "main.py"))
		cmd.Env = []string{"PYTHONPATH=" + dir, "HOME=" + dir, "LANG=C.UTF-8"}
		cmd.Stdin = strings.NewReader("\n")
		out, err := cmd.CombinedOutput()
		if text := strings.TrimPrefix(string(out), "\x00"); err != nil || text != "plain marked\n" {
			t.Errorf("%s: %v: %s", code, err, text)
		}
	}
}

// TestOtherAuthorities: code that loads a file of authorities, as SDKs do that bring one, trusts the proxy's, too. The
// preload of ssl changes nothing.
func TestOtherAuthorities(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	dir := t.TempDir()
	other, err := testca.New("other")
	testkit.Must(t, err)
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), own, 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "other.pem"), other.PEM(), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), Site, 0o600))
	const code = `import importlib.util
importlib.util.find_spec("ssl") # as code does that asks for TLS
import ssl, urllib.request, urllib.error
for options in {"cafile": "other.pem"}, {"cadata": open("other.pem").read()}, {"cafile": "ca.pem"}, {}:
    try: urllib.request.urlopen(URL, context=ssl.create_default_context(**options))
    except urllib.error.URLError as e: print(e)
try: ssl.create_default_context(cafile="missing.pem")
except FileNotFoundError as e: print(e)
`
	source := strings.Replace(code, "URL,", fmt.Sprintf("%q,", server.URL), 1)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(source), 0o600))
	for _, order := range []string{"\n", "l\n"} {
		cmd := exec.Command(testkit.FindPython(t).Program, "-s", "-B", filepath.Join(dir, "main.py"))
		cmd.Env = []string{"PYTHONPATH=" + dir, "HOME=" + dir, "LANG=C.UTF-8", "SSL_CERT_FILE=ca.pem"}
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(order)
		out, err := cmd.CombinedOutput()
		const want = "\x00HTTP Error 404: Not Found\nHTTP Error 404: Not Found\nHTTP Error 404: Not Found\n" +
			"HTTP Error 404: Not Found\n[Errno 2] No such file or directory\n"
		if err != nil || string(out) != want {
			t.Errorf("%q: %v: %s", order, err, out)
		}
	}
}

// ends are programs whose end shows: what they print then, what they leave in files, and their exit code.
var ends = []struct{ name, code string }{
	{"an open file", "f = open('out', 'w')\nf.write('kept')\n"},
	{"an open file of a class", "class Log:\n    def __init__(self): self.f = open('out', 'w'); self.me = self\nlog = Log()\nlog.f.write('kept')\n"},
	{"an open archive", "import zipfile\nz = zipfile.ZipFile('out', 'w')\nz.writestr(zipfile.ZipInfo('a'), 'kept')\n"},
	{"a file of a module", "import sys, types\nm = sys.modules['own'] = types.ModuleType('own')\nm.f = open('out', 'w')\nm.f.write('kept')\n"},
	{"without a line feed", "print('x', end='')\n"},
	{"a deleted object", "class A:\n    def __del__(self): print('deleted')\na = A()\nprint('end')\n"},
	{"exit functions", "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\n"},
	{"a thread", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')\n"},
	{"a pool", "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor()\np.submit(print, 'pool')\n"},
	{"exit code", "import sys\nsys.exit(7)\n"},
	{"main", "print(__name__, __file__[-7:], __doc__, __package__, __spec__, sorted(n for n in dir() if n != '__file__'))\n"},
	{"the module main", "import __main__, sys\nx = 1\nprint(__main__.x, sys.modules['__main__'].__dict__ is globals(), __loader__.name)\n"},
	{"pickle", "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n"},
	{"data class", "from dataclasses import dataclass\nimport typing\n@dataclass\nclass A:\n    b: 'B'\nclass B: pass\nprint(typing.get_type_hints(A)['b'] is B)\n"},
}

// What a program prints, leaves and exits with is as without CodeForge, whether or not the interpreter has preloaded.
func TestPythonEnds(t *testing.T) {
	program := testkit.FindPython(t).Program
	for _, row := range ends {
		t.Run(row.name, func(t *testing.T) {
			var want string
			dir := t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(row.code), 0o600))
			for i, order := range []string{"", string(GoByte), "l" + string(GoByte)} {
				_ = os.Remove(filepath.Join(dir, "out"))
				cmd := exec.Command(program, "-s", "-B", "-X", "utf8", "main.py")
				cmd.Dir, cmd.Env, cmd.Stdin = dir, []string{"HOME=" + dir, "LANG=C.UTF-8"}, strings.NewReader(order)
				if order != "" {
					warm := t.TempDir()
					testkit.Must(t, os.WriteFile(filepath.Join(warm, "sitecustomize.py"), Site, 0o600))
					cmd.Env = append(cmd.Env, "PYTHONPATH="+warm)
				}
				out, err := cmd.CombinedOutput()
				left, _ := os.ReadFile(filepath.Join(dir, "out"))
				got := fmt.Sprintf("%s\n%v\n%q", strings.TrimPrefix(string(out), "\x00"), err, left)
				if i == 0 {
					want = got
				} else if got != want {
					t.Errorf("order %q: got\n%s\nwant\n%s", order, got, want)
				}
			}
		})
	}
}

// The same of programs with top-level await, which Python does not run by itself.
func TestPythonAwaits(t *testing.T) {
	const wait = "import asyncio, sys\nawait asyncio.sleep(0)\n"
	for _, row := range []struct{ name, code, want string }{
		{"an open file", "f = open('out', 'w')\nf.write('kept')\n", " <nil> kept"},
		{"an open file of a class", "class Log: pass\nlog = Log()\nlog.me, log.f = log, open('out', 'w')\nlog.f.write('kept')\n", " <nil> kept"},
		{"exit code", "sys.exit(7)\n", " exit status 7 "},
		{"exit text", "sys.exit('so it ends')\n", "so it ends\n exit status 1 "},
		{"an exception", "1 / 0\n", "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n    1 / 0\n    ~~^~~\nZeroDivisionError: division by zero\n exit status 1 "},
		{"exit functions", "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\n", "second\nfirst\n <nil> "},
		{"a deleted object", "class A:\n    def __del__(self): print('deleted')\na = A()\nprint('end')\n", "end\ndeleted\n <nil> "},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, warm := t.TempDir(), t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(wait+row.code), 0o600))
			testkit.Must(t, os.WriteFile(filepath.Join(warm, "sitecustomize.py"), Site, 0o600))
			cmd := exec.Command(testkit.FindPython(t).Program, "-s", "-B", "-X", "utf8", "main.py")
			cmd.Dir, cmd.Env, cmd.Stdin = dir, []string{"PYTHONPATH=" + warm, "LANG=C.UTF-8"}, strings.NewReader("l\n")
			out, err := cmd.CombinedOutput()
			left, _ := os.ReadFile(filepath.Join(dir, "out"))
			if got := fmt.Sprintf("%s %v %s", strings.TrimPrefix(string(out), "\x00"), err, left); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// The functions of MCP servers give in Python what they give in TypeScript.
func TestPythonServers(t *testing.T) {
	for _, row := range []struct{ name, code, want, asked string }{
		{"text", "print(repr(mcp.s.text()))", `'plain\nlines'`, "POST /s/text {}"},
		{"a string", "print(repr(mcp.s.string()))", "'plain'", "POST /s/string {}"},
		{"one block", "print(repr(mcp.s.block()))", "'one'", "POST /s/block {}"},
		{"strings and values", "print(mcp.s.strings().split('\\n'))", `['a', '{"b": 1}', '', '7']`, "POST /s/strings {}"},
		{"a value", "print(mcp.s.value())", "{'a': 1}", "POST /s/value {}"},
		{"null", "print(repr(mcp.s.null()))", "''", "POST /s/null {}"},
		{"of 2024", "print(mcp.s['2024']())", "{'toolResult': {'a': 1}}", "POST /s/2024 {}"},
		{"a string that is an error", "try: mcp.s['say-no']()\nexcept McpError as e: print(e.text)", "no such issue", "POST /s/say-no {}"},
		{"keywords", "print(mcp.s.json(owner='o', n=[1, None]))", "{'a': [1]}", `POST /s/json {"owner": "o", "n": [1, null]}`},
		{"a dict", "print(mcp.s.json({'from': 'x'}, to='y'))", "{'a': [1]}", `POST /s/json {"from": "x", "to": "y"}`},
		{"number", "print(repr(mcp.s.number()))", "'42'", ""},
		{"broken", "print(repr(mcp.s.broken()))", `'{"a":'`, ""},
		{"typed", "print(repr(mcp.s.typed()))", `'{"a":1}'`, ""},
		{"structured", "print(mcp.s.structured())", "{'a': 1}", ""},
		{"a name with a dash", "print(mcp.s.dash_ed(), mcp.s['dash-ed']())", "dashed dashed", "POST /s/dash-ed {}"},
		{"odd name", "print(mcp.s['a/b?c#d']())", "odd", ""},
		{"no name", "try: mcp.s['..']()\nexcept McpError as e: print(e.code)", "bad_arguments", ""},
		{"positional", "try: mcp.s.text(1)\nexcept McpError as e: print(e)", "s.text: want keyword arguments, or one dict", ""},
		{"not JSON", "try: mcp.s.text(x=object())\nexcept McpError as e: print(e.code)", "bad_arguments", ""},
		{"image", "r = mcp.s.image()\nprint(r['mimeType'], r['bytes'], open(r['path'], 'rb').read())\n__import__('os').remove(r['path'])", "image/png 3 b'PNG'", ""},
		{"no base64", "try: mcp.s['no-base64']()\nexcept McpError as e: print(e.code)", "server_error", ""},
		{"failed", "try: mcp.s.failed()\nexcept McpError as e: print(e, '|', e.code, e.text, e.structured, e.retryable, e.message == str(e))", "s.failed: no such issue | tool_error no such issue {'status': 404} False True", ""},
		{"refused", "try: mcp.s.refused()\nexcept McpError as e: print(e, '|', e.hint)", "s.refused: title is missing: want string. create_issue({title: string}) | create_issue({title: string})", ""},
		{"busy", "try: mcp.s.busy()\nexcept McpError as e: print(e.retryable, e.code)", "True server_unavailable", ""},
		{"data", "try: mcp.s.down()\nexcept McpError as e: print(e, e.data, McpError('x').data)", "s.down: no disk {'free': 0} None", ""},
		{"page", "try: mcp.s.page()\nexcept McpError as e: print(e.code)", "bad_answer", ""},
		{"raw", "print(mcp.s.typed.raw())", "{'content': [{'type': 'text', 'text': '{\"a\":1}'}]}", ""},
		{"time limit", "print(mcp.s.text.within(1.5)()[:5])", "plain", "POST /s/text {} timeout 1500"},
		{"tools", "print([t['name'] for t in mcp.s['$tools']()], dir(mcp.s))", "['text', 'new-tool', 'then'] ['dash-ed', 'new-tool', 'text', 'then']", "GET /s"},
		{"read", "r = mcp.s['$read']('a:b')\nprint(r['contents'][0]['text'], r['contents'][1]['bytes'])\n__import__('os').remove(r['contents'][1]['path'])", "t 3", `POST /s/$read {"uri": "a:b"}`},
		{"stash", "stash.set('k', {'n': 1}, ttl=2)\nprint(stash.get('k'), stash.keys())", "{'n': 1} ['k']", `POST /$stash/set {"key": "k", "value": {"n": 1}, "ttl_ms": 2000}`},
		{"parallel", "print(parallel([mcp.s.text, lambda: mcp.s.failed()], limit=2)[1]['reason'].code, parallel([lambda: 1])[0].value, parallel([]))", "tool_error 1 []", ""},
		{"asyncio", "import asyncio\nasync def main():\n    print(await asyncio.gather(mcp.aio.s.json(), mcp.aio.s.number()))\nasyncio.run(main())", "[{'a': [1]}, '42']", ""},
		{"asyncio, the rest", "raw, listed, limited = await mcp.aio.s.json.raw(), await mcp.aio.s['$tools'](), await mcp.aio.s.json.within(5)()\nprint(raw['content'][0]['text'], len(listed) > 0, limited)", ` {"a":[1]} True {'a': [1]}`, ""},
		{"top-level await", "print(await mcp.aio.s.json())", "{'a': [1]}", ""},
		{"cancelled", "import asyncio\ntask = asyncio.ensure_future(mcp.aio.s.wait())\ntry: await mcp.aio.s.arrived()\nexcept McpError: pass\ntask.cancel()\ntry: await task\nexcept asyncio.CancelledError: print('cancelled')", "cancelled", ""},
		{"printed", "print(mcp, mcp.s)", "mcp { s: 2 tools, t } mcp.s { text, dash-ed }", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBroker(t)
			if row.name == "cancelled" {
				gone := make(chan struct{})
				go func() { <-b.gone; close(gone) }()
				defer func() { <-gone }()
			}
			if got := pythonRun(t, b, row.code+"\n"); got != row.want+"\n" {
				t.Errorf("got %s, want %s", got, row.want)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if row.asked != "" && !slices.Contains(b.asked, row.asked) {
				t.Errorf("asked %q, want %q", b.asked, row.asked)
			}
		})
	}
}
