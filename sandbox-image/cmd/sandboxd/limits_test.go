package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// hostile are runs that end at a limit, in both languages; an empty program: it does not exist in that one. A limit knows
// nothing of languages. What exists in both runs as Python in one mode, and as TypeScript in another one. The rows of
// inEveryMode run as TypeScript in every mode.
var hostile = []struct {
	name, code, python string
	timeout            time.Duration
	reason             sandboxapi.Reason
	stdout             string // prefix of the output
}{
	{"endless loop", "console.log('so far');\nfor (;;);\n",
		"print('so far')\nwhile True: pass\n", 2 * time.Second, sandboxapi.Timeout, "so far\n"},
	{"endless sleep", "console.log('so far');\nawait new Promise(() => setInterval(() => {}, 1e6));\n",
		"import time\nprint('so far')\ntime.sleep(1e6)\n", 2 * time.Second, sandboxapi.Timeout, "so far\n"},
	{"ignores signals", "for (const s of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1'] as const) Deno.addSignalListener(s, () => {});\nconsole.log('so far');\nfor (;;) await new Promise((r) => setTimeout(r, 10));\n",
		"import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\nprint('so far')\nwhile True: signal.pause()\n", 2 * time.Second, sandboxapi.Timeout, "so far\n"},
	{"heap bomb", "const a: unknown[] = [];\nfor (;;) a.push(new Array(1000).fill(Math.random()));\n",
		"a = []\nwhile True: a.append([0.5] * 1000)\n", 3 * time.Minute, sandboxapi.OOM, ""},
	{"buffer bomb", "const a: Uint8Array[] = [];\nfor (;;) a.push(new Uint8Array(10 << 20).fill(1));\n",
		"a = []\nwhile True: a.append(b'1' * (10 << 20))\n", 3 * time.Minute, sandboxapi.OOM, ""},
	{"string bomb", "let s = 'x';\nconst a = [];\nfor (;;) { s = s + s.slice(0, 1 << 20); a.push(s + a.length); JSON.stringify(a); }\n",
		"s, a = 'x', []\nwhile True:\n    s += s[:1 << 20]\n    a.append(s + str(len(a)))\n", 3 * time.Minute, sandboxapi.OOM, ""},
	{"worker bomb", "const src = URL.createObjectURL(new Blob(['const a = []; for (;;) a.push(new Array(1e4).fill(1))'], { type: 'text/javascript' }));\nfor (let i = 0; i < 3; i++) new Worker(src, { type: 'module' });\n",
		"import threading\ndef fill():\n    a = []\n    while True: a.append([0.5] * 10000)\nfor i in range(3): threading.Thread(target=fill).start()\n", 3 * time.Minute, sandboxapi.OOM, ""},
	{"one big file", "const f = Deno.openSync('/tmp/a', { write: true, create: true });\nconst g = Deno.openSync('/tmp/b', { write: true, create: true });\nconst b = new Uint8Array(1 << 20).fill(1);\nfor (let i = 0; i < 100; i++) { f.writeSync(b); g.writeSync(b); }\nfor (;;) await new Promise((r) => setTimeout(r, 10));\n",
		"import time\nb = b'1' * (1 << 20)\nwith open('/tmp/a', 'wb') as f, open('/tmp/b', 'wb') as g:\n    for i in range(100): f.write(b), g.write(b)\n    while True: time.sleep(0.01)\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"file flood", "Deno.mkdirSync('/tmp/many');\nfor (let i = 0; ; i++) { try { Deno.writeTextFileSync('/tmp/many/' + i, 'x'); } catch { await 0; } }\n",
		"", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"skills flood", "for (let i = 0; ; i++) { try { Deno.writeTextFileSync('/skills/s' + i + '.ts', 'x'); } catch { await 0; } }\n",
		"import itertools\nfor i in itertools.count():\n    try: open(f'/skills/s{i}.py', 'x').close()\n    except OSError: pass\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"ends before it is looked at", "Deno.writeFileSync('/skills/big.ts', new Uint8Array(17 << 20));\nconsole.log('done');\n",
		"with open('/skills/big.py', 'wb') as f: f.write(bytes(17 << 20))\nprint('done')\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"flood of a closed directory", "Deno.mkdirSync('/skills/x', { mode: 0o700 });\nDeno.chmodSync('/skills/x', 0o700);\nconst b = new Uint8Array(8 << 20);\nfor (let i = 0; i < 40; i++) Deno.writeFileSync('/skills/x/' + i, b);\nfor (;;) await new Promise((r) => setTimeout(r, 10));\n",
		"import os, time\nos.mkdir('/skills/x', 0o700)\nfor i in range(40):\n    with open(f'/skills/x/{i}', 'wb') as f: f.write(bytes(8 << 20))\nwhile True: time.sleep(0.01)\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"flood deep down", "const d = '/skills' + '/d'.repeat(70);\nDeno.mkdirSync(d, { recursive: true });\nconst b = new Uint8Array(8 << 20);\nfor (let i = 0; i < 40; i++) Deno.writeFileSync(d + '/' + i, b);\nfor (;;) await new Promise((r) => setTimeout(r, 10));\n",
		"import os, time\nd = '/skills' + '/d' * 70\nos.makedirs(d)\nfor i in range(40):\n    with open(f'{d}/{i}', 'wb') as f: f.write(bytes(8 << 20))\nwhile True: time.sleep(0.01)\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"stops what measures it", "", "import os, signal, threading, time\ndef stop():\n    while True:\n        try: os.kill(-1, signal.SIGSTOP)\n        except OSError: pass\nthreading.Thread(target=stop, daemon=True).start()\nb, files = bytes(1 << 20), []\nfor name in '/tmp/a', '/tmp/b':\n    files.append(open(name, 'wb'))\n    os.remove(name)\n    for i in range(100): files[-1].write(b)\nwhile True: time.sleep(0.01)\n", 30 * time.Second, sandboxapi.OutputLimit, ""},
	{"output flood", "const b = new Uint8Array(65536).fill(97);\nfor (;;) Deno.stdout.writeSync(b);\n",
		"import sys\nwhile True: sys.stdout.buffer.write(b'a' * 65536)\n", 3 * time.Minute, sandboxapi.OutputLimit, "aaaa"},
	{"stderr flood", "const b = new Uint8Array(65536).fill(97);\nfor (;;) Deno.stderr.writeSync(b);\n",
		"import sys\nwhile True: sys.stderr.buffer.write(b'a' * 65536)\n", 3 * time.Minute, sandboxapi.OutputLimit, ""},
	{"memory of malloc", "", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nwhile True: ctypes.memset(libc.malloc(ctypes.c_size_t(1 << 22)), 1, 1 << 22)\n", 3 * time.Minute, sandboxapi.OOM, ""},
	{"fork storm", "", "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.001)\n", 2 * time.Second, sandboxapi.Timeout, ""},
}

// inEveryMode are rows that show each kind of limit at the means of a mode: its processes, its memory, its mounts.
var inEveryMode = []string{"endless loop", "ignores signals", "buffer bomb", "one big file", "skills flood", "flood of a closed directory", "output flood"}

// runsIn reports whether a row runs in a mode, in Python or in TypeScript.
func runsIn(row int, m Mode, python bool) bool {
	h := hostile[row]
	switch {
	case testkit.IsThorough():
		return true
	case python:
		return h.code == "" || m == modes[row%len(modes)]
	}
	return slices.Contains(inEveryMode, h.name) || m == modes[(row+1)%len(modes)]
}

// modes are the modes in the order in which rows take turns at them.
var modes = []Mode{Container, Root, User}

// languages runs a test in both languages and every mode. After a run, one interpreter of the language waits. pick
// chooses code.
func languages(t *testing.T, f func(t *testing.T, o Options, pick func(typescript, python string) string)) {
	t.Run("typescript", func(t *testing.T) {
		RunInModes(t, func(t *testing.T, m Mode) {
			f(t, Options{Mode: m, Warm: 1}, func(typescript, _ string) string { return typescript })
		})
	})
	t.Run("python", func(t *testing.T) {
		RunInModes(t, func(t *testing.T, m Mode) {
			f(t, Options{Mode: m, Python: true}, func(_, python string) string { return python })
		})
	})
}

// next checks that the next run works.
func next(t *testing.T, w *World, pick func(typescript, python string) string) {
	t.Helper()
	if r := w.RunCode(t, pick("console.log('next');\n", "print('next')\n"), testkit.Patience); r.Stdout != "next\n" {
		t.Errorf("the next run: %+v", r)
	}
}

// Promise: nothing-stays, memory-limits
func TestLimits(t *testing.T) {
	languages(t, func(t *testing.T, o Options, pick func(typescript, python string) string) {
		const memory = 256 << 20
		o.Slots, o.Memory = 2, memory
		w := StartWorld(t, o)
		for i, h := range hostile {
			code := pick(h.code, h.python)
			if code == "" || !runsIn(i, o.Mode, o.Python) {
				continue
			}
			t.Run(h.name, func(t *testing.T) {
				r := w.RunCode(t, code, h.timeout)
				if r.Exit.Reason != h.reason || r.Exit.Detail == "" || !strings.HasPrefix(r.Stdout, h.stdout) {
					t.Errorf("%+v %.100q %.300q", r.Exit, r.Stdout, r.Stderr)
				}
				took := time.Duration(r.Exit.WallMS) * time.Millisecond
				if h.reason == sandboxapi.Timeout && (took < h.timeout || took > h.timeout+testkit.Patience) {
					t.Errorf("ended after %s", took)
				}
				if h.reason == sandboxapi.OOM && r.Exit.MaxRSS > 4*memory { // what it can take between two checks is more
					t.Errorf("reached %d MiB", r.Exit.MaxRSS>>20)
				}
				nothingLeft(t, w, o.Mode)
				for _, d := range []string{"tmp", "skills"} {
					if left, err := os.ReadDir(filepath.Join(w.Dir, d)); err != nil || len(left) > 0 {
						t.Errorf("%s holds %v %v", d, left, err)
					}
				}
				next(t, w, pick)
			})
		}
	})
}

// TestPrintedBeforeTheEnd: what code has printed arrives, however the run ends: also the beginning of a line, what does
// not fit into a pipe, and bytes that were written beside print.
func TestPrintedBeforeTheEnd(t *testing.T) {
	const size = 1<<20 + 1 // more than a pipe holds
	parts := [2]string{
		"import process from 'node:process';\nawait Deno.stdout.write(new TextEncoder().encode('bytes '));\nDeno.stderr.writeSync(new TextEncoder().encode('progress ..'));\nprocess.stdout.write('x'.repeat(1048577));\nprocess.stdout.write('half a line');\n",
		"import sys\nsys.stdout.buffer.write(b'bytes ')\nsys.stderr.write('progress ..')\nprint('x' * 1048577, end='')\nprint('half a line', end='')\n",
	}
	for i, name := range []string{"typescript", "python"} {
		t.Run(name, func(t *testing.T) {
			python := i == 1
			w := StartWorld(t, Options{Mode: Root, Slots: 1, Warm: 1, Python: python, Memory: 256 << 20})
			for _, row := range []struct {
				name   string
				ends   [2]string
				reason sandboxapi.Reason
				code   int
			}{
				{"busy at the time limit", [2]string{"for (;;);\n", "while True: pass\n"}, sandboxapi.Timeout, 137},
				{"asleep at the time limit", [2]string{"await new Promise(() => setInterval(() => {}, 1e6));\n", "import time\ntime.sleep(1e6)\n"}, sandboxapi.Timeout, 137},
				{"busy outside of the language", [2]string{"'a'.repeat(40).match(/(a*)*(a*)*(a*)*b/);for (;;);\n", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')\n"}, sandboxapi.Timeout, 137},
				{"over the memory limit", [2]string{"const a = [];\nfor (;;) a.push(new Uint8Array(10 << 20).fill(1));\n", "a = []\nwhile True: a.append(b'1' * (10 << 20))\n"}, sandboxapi.OOM, 137},
				{"exit", [2]string{"Deno.exit(3);\n", "import os\nos._exit(3)\n"}, sandboxapi.Exited, 3},
			} {
				t.Run(row.name, func(t *testing.T) {
					limit := testkit.Patience
					if row.reason == sandboxapi.Timeout {
						limit = 3 * time.Second
					}
					r := w.RunCode(t, parts[i]+row.ends[i], limit)
					if r.Exit.Reason != row.reason || r.Exit.Code != row.code {
						t.Errorf("%+v", r.Exit)
					}
					want := "bytes " + strings.Repeat("x", size) + "half a line"
					if r.Stdout != want || r.Stderr != "progress .." {
						t.Errorf("%d of %d bytes, ending in %q, and %q", len(r.Stdout), len(want), r.Stdout[max(0, len(r.Stdout)-20):], r.Stderr)
					}
				})
			}
		})
	}
}

// TestKilled: a run that somebody kills, or that crashes, says so, and does not blame the memory. It needs root, as whoever
// kills has.
func TestKilled(t *testing.T) {
	languages(t, func(t *testing.T, o Options, pick func(typescript, python string) string) {
		o.Slots = 1
		w := StartWorld(t, o)
		ended, printed := make(chan Result, 1), make(chan sandboxapi.Event, 8)
		w.OnEvent = func(e sandboxapi.Event) { printed <- e }
		go func() {
			ended <- w.RunCode(t, pick("console.log('up');\nfor (;;) await new Promise((r) => setTimeout(r, 10));\n",
				"import time\nprint('up')\nwhile True: time.sleep(0.01)\n"), testkit.Patience)
		}()
		<-printed
		for pid, program := range descendants(w.Process.Pid) {
			if base := filepath.Base(program); strings.HasPrefix(base, "deno") || strings.HasPrefix(base, "python") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		r := <-ended
		if r.Exit.Reason != sandboxapi.Cancelled || r.Exit.Code != 137 || r.Stdout != "up\n" ||
			!strings.HasPrefix(r.Exit.Detail, "The code itself, an operator or a program on this machine killed the run (SIGKILL). The kernel reports no kill for lack of memory.") ||
			!strings.Contains(r.Exit.Detail, " MiB of its limit of ") {
			t.Errorf("%+v %q", r.Exit, r.Stdout)
		}
		if o.Python {
			r = w.RunCode(t, "import ctypes\nprint('up')\nctypes.string_at(0)\n", testkit.Patience)
			if r.Exit.Reason != sandboxapi.Exited || r.Exit.Code != 139 || r.Stdout != "up\n" || r.Exit.Detail != "The interpreter crashed: segmentation fault (signal 11)." {
				t.Errorf("%+v", r.Exit)
			}
		}
		for _, code := range []int{129, 130, 143, 192} { // of code, not of a signal
			r := w.RunCode(t, fmt.Sprintf(pick("Deno.exit(%d);\n", "import sys\nsys.exit(%d)\n"), code), testkit.Patience)
			if r.Exit.Reason != sandboxapi.Exited || r.Exit.Code != code || r.Exit.Detail != "" {
				t.Errorf("exit code %d: %+v", code, r.Exit)
			}
		}
	})
}

// TestDenoCaches: what code stores in Deno's caches has a bound, so that it takes no room from other slots.
// Promise: file-limits
func TestDenoCaches(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1})
		const code = `const c = await caches.open("x");
for (let i = 0; i < %d; i++) await c.put("https://a.test/" + i, new Response(new Uint8Array(4 << 20)));
console.log("stored");
`
		if r := w.RunCode(t, fmt.Sprintf(code, 2), testkit.Patience); r.Stdout != "stored\n" || r.Exit.Reason != sandboxapi.Exited {
			t.Errorf("8 MiB: %+v", r)
		}
		r := w.RunCode(t, fmt.Sprintf(code, 10), testkit.Patience)
		switch {
		case m != Container:
			if !strings.Contains(r.Stderr, "No space left on device") {
				t.Errorf("40 MiB: %+v", r)
			}
		case r.Exit.Reason != sandboxapi.OutputLimit || !strings.Contains(r.Exit.Detail, "wrote more than 16 MiB to Deno's caches"):
			t.Errorf("40 MiB: %+v", r)
		}
	})
}

// TestNoRoomForOutput: output that is too long to be shown, and cannot be kept, is not lost without a word. It needs root
// for a small file system.
func TestNoRoomForOutput(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
		testkit.SkipBecause(t, "mounting a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Warm: 1, Args: []string{"--runs", dir}})
	r := w.RunCode(t, "console.log('x'.repeat(5000000));\n", testkit.Patience)
	const want = "The whole stdout, 5000001 bytes, could not be kept: the disk of /runs is full."
	if r.Exit.Unkept != want || r.Exit.StdoutFile != "" || len(r.Stdout) != 5000001 || r.Exit.Reason != sandboxapi.Exited {
		t.Errorf("%+v", r.Exit)
	}
	if r := w.RunCode(t, "console.log('x'.repeat(500000));\n", testkit.Patience); r.Exit.Unkept != "" || r.Exit.StdoutFile == "" {
		t.Errorf("with room: %+v", r.Exit)
	}
}

// nothingLeft checks that the only processes left in the slots are the prepared ones and the waiting interpreter.
func nothingLeft(t *testing.T, w *World, m Mode) {
	t.Helper()
	stats, err := w.Client.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Leased != 0 || stats.Quarantined != 0 {
		t.Errorf("%+v", stats)
	}
	want := stats.Slots // a prepared process in each, one of them the waiting interpreter
	if m != Container {
		want = 2*stats.Slots + 1 // bubblewrap and process 1 of its namespace in each, and the interpreter
	}
	if m == User {
		want++ // and once the supervisor, which waits outside
	}
	awaitWarm(t, w, 1)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := descendants(w.Process.Pid)
		if len(left) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d processes are left, want %d: %v", len(left), want, left)
			return
		}
	}
}

// descendants lists the processes below pid with their programs.
func descendants(pid int) map[int]string {
	found := map[int]string{}
	queue := []int{pid}
	for len(queue) > 0 {
		children, _ := proc.ListChildren(queue[0])
		queue = append(queue[1:], children...)
		for _, c := range children {
			found[c], _ = os.Readlink("/proc/" + strconv.Itoa(c) + "/exe")
		}
	}
	return found
}

// Promise: memory-limits
func TestKernelLimits(t *testing.T) {
	languages(t, func(t *testing.T, o Options, pick func(typescript, python string) string) {
		o.Slots = 1
		w := StartWorld(t, o)
		t.Run("file size", func(t *testing.T) {
			r := w.RunCode(t, pick("const f = Deno.openSync('/tmp/big', { write: true, create: true });\nf.truncateSync(127 << 20);\ntry { f.truncateSync(129 << 20); console.log('grew'); } catch (e) { console.log(e.message); }\nDeno.removeSync('/tmp/big');\n",
				"import os\nf = open('/tmp/big', 'wb')\nf.truncate(127 << 20)\ntry:\n    f.truncate(129 << 20)\n    print('grew')\nexcept OSError as e: print('os error', e.errno)\nos.remove('/tmp/big')\n"), testkit.Patience)
			if !strings.Contains(r.Stdout, "os error 27") {
				t.Errorf("%+v", r)
			}
		})
		t.Run("open files", func(t *testing.T) {
			r := w.RunCode(t, pick("const a = [];\ntry { for (;;) a.push(Deno.openSync('/tmp')); } catch (e) { console.log(a.length > 500, e.message); }\n",
				"import os\na = []\ntry:\n    while True: a.append(os.open('/tmp', 0))\nexcept OSError as e: print(str(len(a) > 500).lower(), e.strerror)\n"), testkit.Patience)
			if !strings.Contains(r.Stdout, "true Too many open files") {
				t.Errorf("%+v", r)
			}
		})
		if !o.Python && o.Mode != Root && !testkit.IsThorough() {
			next(t, w, pick)
			return // 600 workers take seconds. The threads of Python show the limit in the other modes.
		}
		t.Run("threads", func(t *testing.T) {
			r := w.RunCode(t, pick("const src = URL.createObjectURL(new Blob(['setInterval(() => {}, 1000)'], { type: 'text/javascript' }));\nfor (let i = 0; i < 600; i++) new Worker(src, { type: 'module' });\nconsole.log('all');\nDeno.exit(0);\n",
				"import os, threading\ne = threading.Event()\nfor i in range(600): threading.Thread(target=e.wait, daemon=True).start()\nprint('all')\nos._exit(0)\n"), testkit.Patience)
			if r.Stdout == "all\n" {
				t.Errorf("600 threads: %+v", r.Exit)
			}
			nothingLeft(t, w, o.Mode)
		})
		next(t, w, pick)
	})
}

// Promise: nothing-stays
func TestCancel(t *testing.T) {
	languages(t, func(t *testing.T, o Options, pick func(typescript, python string) string) {
		o.Slots = 2
		w := StartWorld(t, o)
		for i := range 4 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*50)*time.Millisecond+time.Millisecond)
			// A run that prints would also be ended by its reader being gone. One that prints nothing would not.
			code := []string{pick("for (;;) { console.log('x'); await 0; }\n", "while True: print('x')\n"), pick("for (;;);\n", "while True: pass\n")}[i%2]
			_, err := w.TryCode(ctx, code, testkit.Patience)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			next(t, w, pick)
		}
		nothingLeft(t, w, o.Mode)
	})
}

// A connection that closes ends its runs and its leases.
func TestDroppedConnection(t *testing.T) {
	languages(t, func(t *testing.T, o Options, pick func(typescript, python string) string) {
		o.Slots, o.Warm = 2, 0
		w := StartWorld(t, o)
		language := sandboxapi.Language(pick("typescript", "python"))
		other := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.Dial})
		lease, err := other.Acquire(context.Background(), sandboxapi.LeaseRequest{Language: language})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		started := make(chan struct{}, 1)
		go func() {
			_, err := other.Run(context.Background(), sandboxapi.RunRequest{
				Generation: lease.Generation, Run: "dropped", Language: language, Permissions: w.Hash,
				Code: pick("console.log('up');\nfor (;;);\n", "print('up')\nwhile True: pass\n"), TimeoutMS: 60000,
			}, func(sandboxapi.Event) { started <- struct{}{} })
			ended <- err
		}()
		<-started
		_ = other.Close()
		if err := <-ended; !errors.Is(err, sandboxapi.ErrInterrupted) {
			t.Errorf("got %v", err)
		}
		deadline := time.Now().Add(testkit.Patience)
		for {
			stats, err := w.Client.Stats(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if stats.Leased == 0 && stats.Quarantined == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v", stats)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := w.Client.Release(context.Background(), lease.Generation); !errors.Is(err, sandboxapi.ErrLeaseGone) {
			t.Errorf("release: %v", err)
		}
	})
}

// A reader that stalls blocks no other run, and its own run still ends at its timeout.
func TestStalledReader(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 2, Warm: 1})
	lease, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := w.Client.Run(context.Background(), sandboxapi.RunRequest{
			Generation: lease.Generation, Run: "stalled", Language: sandboxapi.LanguageTypeScript, Permissions: w.Hash,
			Code: "const b = new Uint8Array(65536).fill(97);\nfor (;;) Deno.stdout.writeSync(b);\n", TimeoutMS: 1500,
		}, func(sandboxapi.Event) { <-release })
		ended <- err
	}()
	for range 20 {
		r := w.RunCode(t, "console.log('beside');\n", testkit.Patience)
		if r.Stdout != "beside\n" {
			t.Fatalf("%+v", r)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for { // the stalled run ends although nobody reads its output
		l, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
		if err == nil {
			_ = w.Client.Release(context.Background(), l.Generation)
		}
		if err := w.Client.Release(context.Background(), lease.Generation); err == nil || errors.Is(err, sandboxapi.ErrLeaseGone) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the stalled run's slot does not become free")
		}
	}
	close(release)
	<-ended
}

// The confinement of a waiting interpreter, as the kernel reports it.
// Promise: least-privilege
func TestWhatTheKernelSays(t *testing.T) {
	for _, row := range []struct {
		program   string
		o         Options
		variables int // those of the contract, four for canaries, and bwrap's PWD
	}{
		{"deno", Options{Mode: Root, Slots: 1, Warm: 1}, 11},
		{"python3", Options{Mode: Root, Slots: 1, Python: true, Args: []string{"--warm-python", "1"}}, 16},
	} {
		t.Run(row.program, func(t *testing.T) { kernelSays(t, StartWorld(t, row.o), row.program, row.variables) })
	}
}

func kernelSays(t *testing.T, w *World, program string, variables int) {
	awaitWarm(t, w, 1)
	own, err := proc.NamespaceOf(os.Getpid(), "net")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for pid, exe := range descendants(w.Process.Pid) {
		if !strings.HasPrefix(filepath.Base(exe), program) {
			continue
		}
		seen++
		s, err := proc.ReadStatus(pid)
		if err != nil || s.Caps != 0 || s.Bounding != 0 || !s.NoNewPrivs || s.Seccomp != 2 || len(s.Groups) != 0 {
			t.Errorf("%+v %v", s, err)
		}
		if ns, err := proc.NamespaceOf(pid, "net"); err != nil || ns == own {
			t.Errorf("network namespace %d %v", ns, err)
		}
		score, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if strings.TrimSpace(string(score)) != "1000" {
			t.Errorf("oom_score_adj %s", score)
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if got := strings.Count(string(env), "="); got != variables {
			t.Errorf("environment %q", env)
		}
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
		for line := range strings.Lines(string(mounts)) {
			f := strings.Fields(line)
			switch at := f[1]; {
			case strings.HasPrefix(f[3], "ro,") || f[3] == "ro":
			case at == "/tmp" || at == "/out" || at == "/skills" || at == "/deno" || strings.HasPrefix(at, "/dev/") || strings.HasPrefix(at, "/proc"):
			default:
				t.Errorf("writable: %s", line)
			}
		}
		odd := oddDescriptors(pid)
		for deadline := time.Now().Add(testkit.Patience); len(odd) > 0 && time.Now().Before(deadline); odd = oddDescriptors(pid) {
			time.Sleep(20 * time.Millisecond) // it may be preloading, and reading facts about the machine
		}
		if len(odd) > 0 {
			t.Errorf("descriptors %v", odd)
		}
	}
	if seen != 1 {
		t.Errorf("%d interpreters", seen)
	}
}

// oddDescriptors lists the descriptors of a waiting interpreter other than its standard streams and those that Deno
// opens itself.
func oddDescriptors(pid int) (odd []string) {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, fd := range fds {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		switch n, _ := strconv.Atoi(fd.Name()); {
		case errors.Is(err, os.ErrNotExist): // closed meanwhile
		case n <= 2 && strings.HasPrefix(target, "pipe:"):
		case n > 2 && (strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "socket:") ||
			strings.HasPrefix(target, "/deno/") || strings.HasPrefix(target, "pipe:")):
		default:
			odd = append(odd, fd.Name()+" is "+target)
		}
	}
	return odd
}

func awaitWarm(t *testing.T, w *World, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := w.Client.Stats(context.Background())
		if err == nil && s.Warm == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v %v, processes %v\n%s", s, err, descendants(w.Process.Pid), w.ReadLog())
		}
	}
}
