package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// clients are ways in which Python sends a request. Each defines call(url), which returns the status and the token of the
// answer. Those that need a package say so.
var clients = []struct{ name, code string }{
	{"urllib", `
import json, urllib.request
def call(url):
    with urllib.request.urlopen(urllib.request.Request(url, headers=HEADERS)) as r:
        return r.status, json.load(r)["token"]
`},
	{"http.client", `
import json, http.client, urllib.parse
def call(url):
    u = urllib.parse.urlsplit(url)
    c = http.client.HTTPSConnection(u.hostname)
    c.request("GET", u.path + "?" + u.query, headers=HEADERS)
    r = c.getresponse()
    return r.status, json.load(r)["token"]
`},
	{"raw ssl", `
import json, socket, ssl, urllib.parse
def call(url):
    u = urllib.parse.urlsplit(url)
    with ssl.create_default_context().wrap_socket(socket.create_connection((u.hostname, 443)), server_hostname=u.hostname) as s:
        lines = [f"GET {u.path}?{u.query} HTTP/1.1", f"Host: {u.hostname}", "Connection: close"] + [f"{k}: {v}" for k, v in HEADERS.items()]
        s.sendall("\r\n".join(lines + ["", ""]).encode())
        data = b""
        while part := s.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        body = body.split(b"\r\n", 1)[1]
    return int(head.split()[1]), json.JSONDecoder().raw_decode(body.decode())[0]["token"]
`},
	{"asyncio", `
import asyncio, json, ssl, urllib.parse
async def ask(url):
    u = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(u.hostname, 443, ssl=True)
    writer.write((f"GET {u.path}?{u.query} HTTP/1.0\r\nHost: {u.hostname}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in HEADERS.items()) + "\r\n").encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["token"]
def call(url):
    return asyncio.run(ask(url))
`},
	{"requests", `
import requests
def call(url):
    r = requests.get(url, headers=HEADERS)
    return r.status_code, r.json()["token"]
`},
	{"httpx", `
import httpx
def call(url):
    r = httpx.get(url, headers=HEADERS)
    return r.status_code, r.json()["token"]
`},
}

// The main job in Python, with every client: the upstream sees the credential, and the code sees its name.
func TestPython(t *testing.T) {
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			there := w.MustPython(t, "import importlib.util\nprint([n for n in ('requests', 'httpx') if importlib.util.find_spec(n)])\n").Out
			for n, c := range clients {
				if (c.name == "requests" || c.name == "httpx") && !strings.Contains(there, c.name) {
					if world.CurrentMode() == world.Docker {
						t.Errorf("the image has no %s: %s", c.name, there)
					}
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					id := fmt.Sprintf("python%d", n)
					res := w.MustPython(t, "HEADERS = {'Authorization': 'Bearer HTTPBIN_TOKEN'}\n"+c.code+
						"print(*call('https://httpbin.test/bearer?t="+id+"'))\n", "httpbin")
					if res.IsError || res.Out != "200 HTTPBIN_TOKEN\n" {
						t.Fatalf("out %q, notes %q", res.Out, res.Notes)
					}
					seen := w.Upstream.Seen(id)
					if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
						t.Errorf("the upstream saw %d requests, want one with the credential: %+v", len(seen), seen)
					}
					ex := res.Receipt.Exchanges
					if len(ex) != 1 || len(ex[0].Swapped) != 1 || ex[0].Swapped[0].Name != "HTTPBIN_TOKEN" || ex[0].Sanitized == 0 {
						t.Errorf("receipt %+v, want one exchange with HTTPBIN_TOKEN swapped and sanitized", res.Receipt)
					}
					if where := w.Leak(res.JSON); where != "" {
						t.Errorf("the result holds a credential: %s", where)
					}
				})
			}
			t.Run("bad input", func(t *testing.T) { pythonMistakes(t, w) })
			t.Run("skills", func(t *testing.T) { pythonSkills(t, w) })
		})
	}
}

// pythonMistakes checks what a model is told when code fails because of its language.
func pythonMistakes(t *testing.T, w *world.World) {
	for _, row := range []struct{ name, code, out, notes string }{
		{"syntax error", "x = = 1\n", "main.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n", ""},
		{"TypeScript", "const r = await fetch('https://x.test/');\nconsole.log(r.status);\n", "SyntaxError", "The code looks like TypeScript"},
		{"missing module", "import nothing_like_this.inner\n", "ModuleNotFoundError", "nothing_like_this is not installed here. There is the standard library"},
		{"how to add a module", "import nothing_like_this\n", "ModuleNotFoundError", "codeforge package add pypi:NAME@VERSION"},
		{"100 MB of output", "for i in range(100): print('x' * (1 << 20))\nprint('the end')\n", "xxx", "printed more than 16 MiB and was ended"},
		{"100 MB without a line feed", "import sys\nsys.stdout.buffer.write(b'x' * (100 << 20))\n", "xxx", "printed more than 16 MiB and was ended"},
		{"100 MB of bytes", "import os, sys\nsys.stdout.buffer.write(os.urandom(100 << 20))\n", "", "printed more than 16 MiB and was ended"},
		{"missing skill", "from skills.nothing import f\n", "ModuleNotFoundError", "There is no skill \"nothing.py\"."},
		{"process", "import subprocess\nsubprocess.run(['ls'])\n", "PermissionError", "Code cannot start processes"},
		{"pool of processes", "import multiprocessing\nmultiprocessing.Pool(2)\n", "SemLock", "Code cannot start processes"},
		{"unknown host", "import urllib.request\nurllib.request.urlopen('https://nowhere.test/')\n", "urlopen error", "nowhere.test"},
		{"binary output", "import sys\nsys.stdout.buffer.write(bytes(range(256)))\n", "", "bytes of the output were not valid UTF-8"},
		{"fence", "```python\nprint(6 * 7)\n```", "42\n", "The code inside the ``` fence was run."},
		{"return", "x = 1\nreturn x\n", "'return' outside function", "The code is a module and not a function"},
		{"a token name", "h = f'Bearer {HTTPBIN_TOKEN}'\n", "NameError", "write \"HTTPBIN_TOKEN\" in quotes"},
		{"a variable", "import os\nos.environ['HTTPBIN_TOKN']\n", "KeyError", "write \"HTTPBIN_TOKEN\" in quotes"},
		{"typed client", "from apis import httpbin\n", "ModuleNotFoundError", "Typed clients are only for TypeScript"},
		{"exit code", "import sys\nprint('done')\nsys.exit(3)\n", "done\n", "ended with exit code 3, not 0."},
		{"crash", "import ctypes\nctypes.string_at(0)\n", "segmentation fault (signal 11)", ""},
		{"stderr", "import logging\nlogging.warning('skipped 3')\nprint('out')\n", "out\n", "stderr:\nWARNING:root:skipped 3\n"},
		{"nothing printed", "x = 1\n", "The code ran without output. Print what you need with print.", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			res := w.MustPython(t, row.code)
			if !strings.Contains(res.Out+res.Notes, row.out) || !strings.Contains(res.Notes, row.notes) {
				t.Errorf("out %.5000q\nnotes %q", res.Out, res.Notes)
			}
			if len(res.JSON) > 200_000 {
				t.Errorf("an answer of %d bytes", len(res.JSON))
			}
		})
	}
	res := w.MustExecute(t, "import json\nprint(json.dumps({'a': True}))\n")
	if !strings.Contains(res.Notes, `pass "language": "python" with it`) {
		t.Errorf("Python as TypeScript: %q %q", res.Out, res.Notes)
	}
}

// pythonSkills saves a skill and uses it. Byte code that lies beside it is never used.
func pythonSkills(t *testing.T, w *world.World) {
	res := w.MustPython(t, `open("/skills/add-numbers.py", "w").write('"""Adds numbers."""\n\ndef add(*n):\n    return sum(n)\n')`+"\n")
	if !strings.Contains(res.Notes, "add-numbers.py (new)") {
		t.Errorf("%q %q", res.Out, res.Notes)
	}
	res = w.MustPython(t, `
import os, py_compile, skills.add_numbers as s
print(s.add(1, 2, 3), s.__doc__)
os.makedirs("/skills/__pycache__", exist_ok=True)
source = "/skills/add-numbers.py"
stat = os.stat(source)
open("/tmp/evil.py", "w").write("def add(*n): return 'evil'")
import importlib.util, marshal
code = importlib._bootstrap_external._code_to_timestamp_pyc(compile("def add(*n): return 'evil'", source, "exec"), int(stat.st_mtime), stat.st_size)
open(importlib.util.cache_from_source(source), "wb").write(code)
`)
	if res.Out != "6 Adds numbers.\n" {
		t.Errorf("%q %q", res.Out, res.Notes)
	}
	if res = w.MustPython(t, "from skills.add_numbers import add\nprint(add(2, 2))\nimport sys\nprint([p for p in sys.path if 'skills' in p])\n"); res.Out != "4\n[]\n" {
		t.Errorf("%q %q", res.Out, res.Notes)
	}
	res = w.MustPython(t, `open("/skills/half.py", "w").write('"""Half."""\ndef half(:\n')`+"\n")
	if !strings.Contains(res.Notes, "The skill half.py does not load: SyntaxError: ") {
		t.Errorf("%q %q", res.Out, res.Notes)
	}
	out, err := json.Marshal(res.Receipt)
	if err != nil || w.Leak(string(out)) != "" {
		t.Error(err)
	}
}
