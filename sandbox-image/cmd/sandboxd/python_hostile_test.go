package main

import (
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/rig"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

//go:embed testdata/attacks.py
var pythonAttacks string

// Python begins where the attacks of escaped code begin, and all of them fail.
func TestPythonAttacks(t *testing.T) {
	rig.Modes(t, func(t *testing.T, m rig.Mode) {
		w := rig.Start(t, rig.Options{Mode: m, Slots: 1, Python: true})
		r := w.Run(t, pythonAttacks, testkit.Patience)
		if r.Exit.Code != 0 || !strings.HasPrefix(r.Stdout, "tried ") || strings.Count(r.Stdout, "\n") != 1 {
			t.Errorf("%s%s%+v", r.Stdout, r.Stderr, r.Exit)
		}
	})
}

// A run of Python is held to the limits of a run.
func TestPythonLimits(t *testing.T) {
	rig.Modes(t, func(t *testing.T, m rig.Mode) {
		const memory = 256 << 20
		w := rig.Start(t, rig.Options{Mode: m, Slots: 2, Warm: 1, Memory: memory, Python: true})
		for _, h := range []struct {
			name, code string
			timeout    time.Duration
			reason     runapi.Reason
			stdout     string
		}{
			{"endless loop", "print('so far')\nwhile True: pass\n", 2 * time.Second, runapi.Timeout, "so far\n"},
			{"ignores signals", "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\nprint('so far')\nwhile True: signal.pause()\n", 2 * time.Second, runapi.Timeout, "so far\n"},
			{"list bomb", "a = []\nwhile True: a.append(bytearray(10 << 20))\n", 3 * time.Minute, runapi.OOM, ""},
			{"ctypes bomb", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nwhile True: ctypes.memset(libc.malloc(ctypes.c_size_t(1 << 22)), 1, 1 << 22)\n", 3 * time.Minute, runapi.OOM, ""},
			{"fork storm", "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.001)\n", 2 * time.Second, runapi.Timeout, ""},
		} {
			t.Run(h.name, func(t *testing.T) {
				r := w.Run(t, h.code, h.timeout)
				if r.Exit.Reason != h.reason || r.Exit.Detail == "" || !strings.HasPrefix(r.Stdout, h.stdout) {
					t.Errorf("%+v %.100q %.300q", r.Exit, r.Stdout, r.Stderr)
				}
				if next := w.Run(t, "print('next')\n", testkit.Patience); next.Stdout != "next\n" {
					t.Errorf("the next run: %+v", next)
				}
			})
		}
		for name, row := range map[string][2]string{
			"threads":    {"import threading, os\ne = threading.Event()\ntry:\n    for i in range(600): threading.Thread(target=e.wait, daemon=True).start()\n    print('all')\nexcept RuntimeError as x:\n    print('refused', i > 100, x, flush=True)\nos._exit(0)\n", "refused True can't start new thread\n"},
			"open files": {"a = []\ntry:\n    while True: a.append(open('/dev/null'))\nexcept OSError as x:\n    print(len(a) > 500, x.strerror)\n", "True Too many open files\n"},
			"file size":  {"f = open('/tmp/big', 'wb')\nf.truncate(127 << 20)\ntry: f.truncate(129 << 20)\nexcept OSError as x: print(x.strerror)\nimport os\nos.remove('/tmp/big')\n", "File too large\n"},
		} {
			if r := w.Run(t, row[0], testkit.Patience); r.Stdout != row[1] {
				t.Errorf("%s: %+v", name, r)
			}
		}
	})
}

// No login of one run is sent by the libraries of another one: requests and aiohttp read ~/.netrc, or what NETRC names.
func TestPythonLogins(t *testing.T) {
	rig.Modes(t, func(t *testing.T, m rig.Mode) {
		w := rig.Start(t, rig.Options{Mode: m, Slots: 1, Python: true})
		w.Run(t, "import os\nwith open(os.path.expanduser('~/.netrc'), 'w') as f: f.write('default login a password b\\n')\n", 20*time.Second)
		const code = "import os, netrc\nprint(netrc.netrc(os.environ.get('NETRC')).authenticators('api.example.com'))\n"
		if r := w.Run(t, code, 20*time.Second); r.Stdout != "None\n" {
			t.Errorf("%+v", r)
		}
	})
}

// After a run of Python one of its interpreters is kept warm, which takes no place from those of TypeScript.
func TestPythonWarm(t *testing.T) {
	w := rig.Start(t, rig.Options{Mode: rig.Root, Slots: 3, Warm: 1, Python: true})
	awaitWarm(t, w, 1)
	if r := w.Run(t, "print('cold')\n", testkit.Patience); r.Stdout != "cold\n" || r.Exit.Warm {
		t.Errorf("the first run: %+v", r)
	}
	awaitWarm(t, w, 2)
	for range 3 {
		if r := w.Run(t, "print('warm')\n", testkit.Patience); r.Stdout != "warm\n" || !r.Exit.Warm {
			t.Errorf("a later run: %+v", r)
		}
		awaitWarm(t, w, 2)
	}
	w.Language = ""
	for range 3 {
		if r := w.Run(t, "console.log('deno')\n", testkit.Patience); r.Stdout != "deno\n" || !r.Exit.Warm {
			t.Errorf("TypeScript: %+v", r)
		}
		awaitWarm(t, w, 2)
	}
}

// Where there is one slot, both languages take turns in it.
func TestPythonOneSlot(t *testing.T) {
	rig.Modes(t, func(t *testing.T, m rig.Mode) {
		w := rig.Start(t, rig.Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		for range 3 {
			w.Language = runapi.LanguagePython
			if r := w.Run(t, "print('python')\n", testkit.Patience); r.Stdout != "python\n" {
				t.Errorf("%+v", r)
			}
			w.Language = ""
			if r := w.Run(t, "console.log('deno')\n", testkit.Patience); r.Stdout != "deno\n" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Without Python a run of it is refused with the reason, and TypeScript runs.
func TestNoPython(t *testing.T) {
	w := rig.Start(t, rig.Options{Mode: rig.Root, Slots: 1, Args: []string{"--python", "/bin/false"}})
	h, err := w.Client.Health(t.Context())
	if err != nil || h.Python.Version != "" || !strings.Contains(h.Python.Problem, "/bin/false does not run") {
		t.Errorf("%+v %v", h.Python, err)
	}
	w.Language = runapi.LanguagePython
	if _, err := w.Try(t.Context(), "print(1)", time.Second); err == nil || !strings.Contains(err.Error(), "no Python") {
		t.Error(err)
	}
	w.Language = ""
	if r := w.Run(t, "console.log(1)", testkit.Patience); r.Stdout != "1\n" {
		t.Errorf("%+v", r)
	}
	testkit.Must(t, err)
}
