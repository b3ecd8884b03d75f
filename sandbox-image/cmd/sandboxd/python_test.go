package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// scripts run in the sandbox and in bare Python. Their output and exit codes must be the same.
var scripts = []struct{ name, code string }{
	{"print", "import sys\nprint('out', __name__, sys.argv[0].endswith('main.py'))\nprint('err', file=sys.stderr)\n"},
	{"main", "if __name__ == '__main__':\n    print(sorted(k for k in globals() if k != '__warningregistry__'), __spec__, __doc__)\n"},
	{"exit code", "import sys\nprint('before')\nsys.exit(7)\n"},
	{"exit text", "raise SystemExit('the reason')\n"},
	{"exit nothing", "import sys\nsys.exit()\n"},
	{"uncaught", "def f(n):\n    if n == 0:\n        raise TypeError('deep')\n    f(n - 1)\nf(3)\n"},
	{"chained", "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('outer') from e\n"},
	{"group", "raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])\n"},
	{"stack", "import traceback\ndef f():\n    traceback.print_stack()\nf()\n"},
	{"excepthook", "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0\n"},
	{"syntax error", "x = = 1\n"},
	{"syntax error with await", "await = 3\nprint(1\n"},
	{"return outside", "print(1)\nreturn 2\n"},
	{"indentation", "def f():\nprint(1)\n"},
	{"missing module", "import nothing_like_this\n"},
	{"input", "print(repr(__import__('sys').stdin.read()))\ninput('name? ')\n"},
	{"atexit", "import atexit\natexit.register(print, 'at exit')\nprint('end')\n"},
	{"threads at the end", "import threading\ne = threading.Event()\ndef f():\n    e.wait()\n    print('thread')\nthreading.Thread(target=f).start()\nprint('main')\ne.set()\n"},
	{"asyncio.run", "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    raise KeyError('in main')\nasyncio.run(main())\n"},
	{"utf-8", "print('grüezi 漢字 😀 ' * 1000)\n"},
	{"surrogate", "print('\\ud800')\n"},
	{"latin-1 source", "# -*- coding: latin-1 -*-\nprint('caf\xc3\xa9')\n"},
	{"bom and crlf", "\ufeffprint('bom')\r\nraise ValueError('line 2')\r\n"},
	{"null byte", "print(1)\x00\n"},
	{"pickle", "import pickle\nclass C:\n    pass\nprint(type(pickle.loads(pickle.dumps(C()))))\n"},
	{"dataclass", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(1), P.__module__)\n"},
	{"source", "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))\n"},
	{"warning", "import warnings\nwarnings.warn('careful')\nprint(1 is 1)\n"},
	{"regular expressions", "import re, json, csv, io, datetime, decimal\nprint(re.sub(r'\\d', '#', 'a1b2'), json.dumps({'a': [1, None]}), decimal.Decimal('0.1') * 3, datetime.date(2026, 1, 31))\n"},
	{"sqlite", "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 40 + 2').fetchone())\n"},
	{"hashes", "import hashlib, zlib, bz2, lzma, base64\nprint(hashlib.sha256(b'x').hexdigest(), zlib.crc32(b'x'), bz2.decompress(bz2.compress(b'a')), lzma.decompress(lzma.compress(b'b')))\n"},
	{"zones", "import zoneinfo, datetime, time\nprint(datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Zurich')), time.tzname)\n"},
	{"locale", "import locale\nprint(locale.setlocale(locale.LC_ALL, ''), locale.format_string('%d', 1234567, grouping=True))\n"},
	{"recursion", "def f():\n    f()\ntry:\n    f()\nexcept RecursionError as e:\n    print(e)\n"},
	{"large write at the end", "import sys\nprint('x' * (1 << 20))\nsys.stderr.write('y' * (1 << 18))\n"},
	{"empty", ""},
	{"module level frame", "import sys\ntry:\n    sys._getframe(1)\nexcept ValueError as e:\n    print(e)\n"},
	{"environment", "import os\nprint(sorted(k for k in os.environ if 'PYTHON' in k or 'CODEFORGE' in k), os.getcwd())\n"},
	{"abort", "import os\nprint('so far', flush=True)\nos.abort()\n"},
}

// machineScripts are scripts whose results can depend on the files, the environment or the rights that a mode gives.
var machineScripts = []string{
	"print", "main", "exit code", "uncaught", "stack", "missing module", "input", "threads at the end", "source", "sqlite", "zones", "locale",
	"large write at the end", "environment", "abort",
}

// barePython is the outcome of the same program in Python itself.
func barePython(t *testing.T, program, code string) outcome {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.py")
	testkit.Must(t, os.WriteFile(main, []byte(code), 0o644))
	cmd := exec.Command(program, "-s", "-B", "-X", "utf8", main)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"NO_COLOR=1", "TZ=UTC", "LANG=C.UTF-8", "HOME=/tmp"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	o := outcome{}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		if o.code = exit.ExitCode(); o.code < 0 {
			o.code = 128 + 6
		}
	} else if err != nil {
		t.Fatal(err)
	}
	o.stdout, o.stderr = strings.ReplaceAll(out.String(), dir+"/", "FILE/"), strings.ReplaceAll(errs.String(), dir+"/", "FILE/")
	return o
}

// TestSameAsBarePython compares with Python itself. All scripts run as root. In the other modes run machineScripts: the
// interpreter alone decides the results of the others.
func TestSameAsBarePython(t *testing.T) {
	program := testkit.FindPython(t).Program
	bare := map[string]outcome{}
	for _, p := range scripts {
		bare[p.name] = barePython(t, program, p.code)
	}
	for _, name := range machineScripts {
		if _, ok := bare[name]; !ok {
			t.Errorf("no script is named %s", name)
		}
	}
	RunInModes(t, func(t *testing.T, m Mode) {
		t.Parallel()
		w := StartWorld(t, Options{Mode: m, Slots: 2, Python: true})
		for _, p := range scripts {
			if m != Root && !testkit.IsThorough() && !slices.Contains(machineScripts, p.name) {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				want := bare[p.name]
				r := w.RunCode(t, p.code, testkit.Patience)
				ours := strings.NewReplacer(codeDir(m, r)+"/", "FILE/")
				if got := ours.Replace(r.Stdout); got != want.stdout {
					t.Errorf("stdout:\n%s\nbare Python:\n%s", got, want.stdout)
				}
				if got := ours.Replace(r.Stderr); got != want.stderr {
					t.Errorf("stderr:\n%s\nbare Python:\n%s", got, want.stderr)
				}
				if r.Exit.Code != want.code || r.Exit.Reason != sandboxapi.Exited {
					t.Errorf("exit %+v, bare Python %d", r.Exit, want.code)
				}
			})
		}
	})
}

// Programs with top-level await, which Python itself refuses, behave like all others.
func TestTopLevelAwait(t *testing.T) {
	const trace = "Traceback (most recent call last):\n  File \"FILE/main.py\", line "
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 0, Python: true})
		for _, row := range []struct {
			name, code, stdout, stderr string
			code2                      int
		}{
			{"await", "import asyncio\nprint(await asyncio.sleep(0, 'slept'), __name__)\n", "slept __main__\n", "", 0},
			{"gather", "import asyncio\nasync def f(n):\n    return n * 2\nprint(await asyncio.gather(*(f(n) for n in range(4))))\n", "[0, 2, 4, 6]\n", "", 0},
			{"async for", "async def g():\n    yield 1\n    yield 2\nasync for x in g():\n    print(x)\nprint([x async for x in g()])\n", "1\n2\n[1, 2]\n", "", 0},
			{"exception", "async def f():\n    raise ValueError('x')\n\nawait f()\n", "",
				trace + "4, in <module>\n    await f()\n  File \"FILE/main.py\", line 2, in f\n    raise ValueError('x')\nValueError: x\n", 1},
			{"exit", "import sys, asyncio, atexit\natexit.register(print, 'at exit')\nawait asyncio.sleep(0)\nsys.exit(9)\n", "at exit\n", "", 9},
			{"exit text", "await __import__('asyncio').sleep(0)\nraise SystemExit('why')\n", "", "why\n", 1},
		} {
			t.Run(row.name, func(t *testing.T) {
				r := w.RunCode(t, row.code, testkit.Patience)
				stderr := strings.ReplaceAll(r.Stderr, codeDir(m, r)+"/", "FILE/")
				if r.Stdout != row.stdout || stderr != row.stderr || r.Exit.Code != row.code2 {
					t.Errorf("%q %q %+v\nwant %q %q %d", r.Stdout, stderr, r.Exit, row.stdout, row.stderr, row.code2)
				}
			})
		}
	})
}
