package main

import (
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

//go:embed testdata/attacks.py
var pythonAttacks string

// Python begins where the attacks of escaped code begin, and all of them fail.
// Promise: least-privilege
func TestPythonAttacks(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Python: true})
		r := w.RunCode(t, pythonAttacks, testkit.Patience)
		if r.Exit.Code != 0 || !strings.HasPrefix(r.Stdout, "tried ") || strings.Count(r.Stdout, "\n") != 1 {
			t.Errorf("%s%s%+v", r.Stdout, r.Stderr, r.Exit)
		}
	})
}

// No login of one run is sent by the libraries of another one: requests and aiohttp read ~/.netrc, or what NETRC names.
func TestPythonLogins(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Python: true})
		w.RunCode(t, "with open('/tmp/.netrc', 'w') as f: f.write('default login a password b\\n')\n", 20*time.Second)
		const code = "import os, netrc\nprint(netrc.netrc(os.environ.get('NETRC')).authenticators('api.example.com'))\n"
		if r := w.RunCode(t, code, 20*time.Second); r.Stdout != "None\n" {
			t.Errorf("%+v", r)
		}
	})
}

// After a run of Python one of its interpreters is kept warm, which takes no place from those of TypeScript.
func TestPythonWarm(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 3, Warm: 1, Python: true})
	awaitWarm(t, w, 1)
	if r := w.RunCode(t, "print('cold')\n", testkit.Patience); r.Stdout != "cold\n" || r.Exit.Warm {
		t.Errorf("the first run: %+v", r)
	}
	awaitWarm(t, w, 2)
	for range 3 {
		if r := w.RunCode(t, "print('warm')\n", testkit.Patience); r.Stdout != "warm\n" || !r.Exit.Warm {
			t.Errorf("a later run: %+v", r)
		}
		awaitWarm(t, w, 2)
	}
	w.Language = ""
	for range 3 {
		if r := w.RunCode(t, "console.log('deno')\n", testkit.Patience); r.Stdout != "deno\n" || !r.Exit.Warm {
			t.Errorf("TypeScript: %+v", r)
		}
		awaitWarm(t, w, 2)
	}
}

// Where there is one slot, both languages take turns in it.
func TestPythonOneSlot(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		for range 3 {
			w.Language = sandboxapi.LanguagePython
			if r := w.RunCode(t, "print('python')\n", testkit.Patience); r.Stdout != "python\n" {
				t.Errorf("%+v", r)
			}
			w.Language = ""
			if r := w.RunCode(t, "console.log('deno')\n", testkit.Patience); r.Stdout != "deno\n" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Without Python a run of it is refused with the reason, and TypeScript runs.
func TestNoPython(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Args: []string{"--python", "/bin/false"}})
	h, err := w.Client.Health(t.Context())
	if err != nil || h.Python.Version != "" || !strings.Contains(h.Python.Problem, "/bin/false does not run") {
		t.Errorf("%+v %v", h.Python, err)
	}
	w.Language = sandboxapi.LanguagePython
	if _, err := w.TryCode(t.Context(), "print(1)", time.Second); err == nil || !strings.Contains(err.Error(), "no Python") {
		t.Error(err)
	}
	w.Language = ""
	if r := w.RunCode(t, "console.log(1)", testkit.Patience); r.Stdout != "1\n" {
		t.Errorf("%+v", r)
	}
	testkit.Must(t, err)
}
