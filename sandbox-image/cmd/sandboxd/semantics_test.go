package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// programs run in the sandbox and in bare Deno. Their output and exit codes must be the same.
var programs = []struct{ name, code string }{
	{"types", "interface P { x: number }\nenum E { A = 1, B }\nconst p: P = { x: E.B };\nconsole.log(p satisfies P, E[2]);\n"},
	{"top-level await", "await new Promise((r) => setTimeout(r, 5));\nconsole.log('after');\n"},
	{"main", "console.log(import.meta.main, typeof import.meta.url);\n"},
	{"exit code", "console.log('before');\nDeno.exit(7);\n"},
	{"exitCode", "Deno.exitCode = 3;\nconsole.log('end');\n"},
	{"uncaught", "function f(n: number) {\n  if (n === 0) throw new TypeError('deep');\n  f(n - 1);\n}\nf(3);\n"},
	{"uncaught with cause", "throw new Error('outer', { cause: new Error('inner') });\n"},
	{"unhandled rejection", "Promise.reject(new RangeError('lost'));\n"},
	{"uncaught in a timer", "setTimeout(() => { null!.x; }, 1);\n"},
	{"throw a string", "throw 'text';\n"},
	{"stack", "const e = new Error('here');\nconsole.log(e.stack);\n"},
	{"syntax error", "const x = ;\n"},
	{"syntax error later", "console.log('never');\nlet a: number = 1;\nfunction ( {\n"},
	{"type error only", "const n: number = 'no number';\nconsole.log(n);\n"},
	{"missing file import", "import x from './nothing.ts';\nconsole.log(x);\n"},
	{"https import", "import x from 'https://example.com/x.ts';\n"},
	{"npm import", "import x from 'npm:left-pad';\n"},
	{"jsr import", "import x from 'jsr:@std/assert';\n"},
	{"dynamic https import", "await import('https://example.com/x.ts?leak=1');\n"},
	{"bare import", "import x from 'left-pad';\n"},
	{"stdin", "const b = new Uint8Array(4);\nconsole.log(await Deno.stdin.read(b), Deno.stdin.readSync(b));\n"},
	{"prompt", "console.log(prompt('name?'), confirm('sure?'), Deno.stdin.isTerminal());\n"},
	{"console", "console.log('a');\nconsole.error('b');\nconsole.warn('c');\nconsole.info('%cstyled', 'color: red');\nconsole.table([{a: 1}]);\nconsole.dir({a: {b: {c: {d: 1}}}});\nconsole.log(new Map([[1, {x: [1, 2]}]]), new Error('shown').message);\n"},
	{"console in groups", "console.log('a\\nb');\nconsole.group('c');\nconsole.log('d\\ne');\nconsole.groupCollapsed();\nconsole.warn('f');\nconsole.groupEnd();\nconsole.error('g');\nconsole.groupEnd();\nconsole.groupEnd();\nconsole.info('h');\nconsole.group('i', 1);\nconsole.debug('j');\nconsole.clear();\nconsole.log('k');\n"},
	{"console of one string", "console.log('%s 100%% \\u001b[31mred\\ud800');\nconsole.log('');\nconsole.log(new String('s'));\nconsole.log('%s', 'x');\nconst { log } = console;\nlog('apart');\n"},
	{"the console's functions", "console.log(Object.entries(Object.getOwnPropertyDescriptors(console)).map(([k, d]) => [k, d.writable, d.enumerable, d.configurable, d.value?.name, d.value?.length].join()), Object.prototype.toString.call(console));\n"},
	{"write", "const e = new TextEncoder();\nDeno.stdout.writeSync(e.encode('no newline'));\nDeno.stderr.writeSync(e.encode('err'));\n"},
	{"utf-8", "console.log('grüezi 漢字 😀 '.repeat(1000));\n"},
	// Each program prints one or two lines.
	{"rights and machine", "import os from 'node:os';\n" +
		"import fs from 'node:fs';\n" +
		"try { Deno.readTextFileSync('/etc/passwd'); } catch (e) { console.log(e.name, e.message); }\n" +
		"console.log(Deno.env.get('NO_SUCH'), Deno.env.has('PATH'), process.env.NO_SUCH, process.env.TZ, Deno.env.get('NO_COLOR'));\n" +
		"try { Deno.env.get(''); } catch (e) { console.log(e.name, e.message); }\n" +
		"try { os.networkInterfaces(); } catch (e) { console.log(e.name, e.message); }\n" +
		"try { new Deno.Command('ls').outputSync(); } catch (e) { console.log(e.name, e.message); }\n" +
		"try { Deno.dlopen('/lib/libc.so.6', {}); } catch (e) { console.log(e.name, e.message); }\n" +
		"try { await fetch('https://example.org/'); } catch (e) { console.log(e.name, e.message); }\n" +
		"try { fs.readFileSync('/etc/hostname'); } catch (e) { console.log(e.name); }\n" +
		"console.log(new Date(0).toString(), Intl.DateTimeFormat().resolvedOptions().timeZone);\n" +
		"console.log((1234.5).toLocaleString(), navigator.language);\n" +
		"console.log(Deno.cwd(), Deno.args, Deno.version.deno);\n" +
		"function f(n: number): number { return 1 + f(n + 1); }\n" +
		"try { f(0); } catch (e) { console.log(e.name); }\n" +
		"const m = Deno.memoryUsage();\n" +
		"console.log(m.heapUsed > 1e5, typeof m.rss);\n" +
		"try { console.log(typeof Deno.execPath()); } catch (e) { console.log(e.name); }\n"}, // rss is 0: there is no /proc to read it from
	{"process", "const p = process, { env } = p;\nconsole.log(env.NO_SUCH, typeof env.HOME, env[''], env['a=b'], 'HOME' in env, typeof env.toString, String(env));\n" +
		"process.env.X = '1';\nconsole.log(Deno.env.get('X'), typeof env.X, delete env.X, env.X, { ...env }.HOME === env.HOME, String(p), p instanceof Object);\n" +
		"console.log(Object.keys(p).join(), Object.getOwnPropertyNames(Object.getOwnPropertyDescriptors(process)).length);\n" +
		"process.on('exit', () => console.log('exit'));\np.on('exit', function () { console.log('exit', this === process); });\np.exitCode = 3;\nprocess.nextTick(() => console.log('tick'));\n" +
		"import real from 'node:process';\nconsole.log(real === process, process.exitCode, p.argv.length, p.pid === real.pid, p.versions.node === real.versions.node);\n"},
	{"process replaced", "globalThis.process = { env: { A: 'b' } };\nconsole.log(process.env.A, Object.keys(process));\n"},
	{"process replaced after a read", "const p = process;\nglobalThis.process = { env: { A: 'b' } };\nconsole.log(p.argv.length, process.env.A);\nReflect.deleteProperty(globalThis, 'process');\nconsole.log(p.argv.length, typeof process);\n"},
	{"process.env replaced", "const p = process, { env } = p;\np.env = { ...env, A: '1' };\nconsole.log(p.env.A, process.env.A, env.A, 'A' in env, typeof env.HOME, Object.keys(p.env).length - Object.keys(env).length);\n"},
	{"node built-ins", "import { createHash } from 'node:crypto';\nimport path from 'node:path';\nimport { Buffer } from 'node:buffer';\nconsole.log(createHash('sha256').update('x').digest('hex'), path.join('a', '..', 'b'), Buffer.from('hi').toString('base64'));\n"},
	{"worker", "const w = new Worker(URL.createObjectURL(new Blob(['postMessage(40 + 2)'], { type: 'text/javascript' })), { type: 'module' });\nw.onmessage = (e) => { console.log(e.data); w.terminate(); };\n"},
	{"localStorage", "localStorage.setItem('k', 'v');\nconsole.log(localStorage.length);\n"},
	{"wasm", "const m = new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));\nconsole.log(m instanceof WebAssembly.Module);\n"},
	{"globals", "Reflect.deleteProperty(globalThis, 'show'); // of CodeForge\nconst all = (o: object) => Reflect.ownKeys(o).map((k) => {\n  const d = Object.getOwnPropertyDescriptor(o, k)!;\n  return [k, d.writable, d.enumerable, d.configurable, typeof d.value, typeof d.get, typeof d.set].map(String).join();\n});\nconsole.log(all(globalThis), all(Deno), performance.getEntries());\n"},
	{"signal listener", "Deno.addSignalListener('SIGUSR1', () => {});\nconsole.log('listening');\nDeno.exit(0);\n"},
	{"abort in handler", "addEventListener('unload', () => console.log('unload'));\nconsole.log('x');\n"},
	{"exit code at unload", "Deno.exitCode = 7;\naddEventListener('unload', () => { Deno.exitCode = 8; });\n"},
	{"throws at unload", "addEventListener('unload', () => { throw new Error('late'); });\n"},
	{"goes on at beforeunload", "let n = 0;\naddEventListener('beforeunload', (e) => {\n  console.log('beforeunload', n);\n  if (n++ === 0) { e.preventDefault(); setTimeout(() => console.log('more'), 5); }\n});\n"},
	{"microtask at unload", "addEventListener('unload', () => { queueMicrotask(() => console.log('microtask')); });\n"},
	{"process exit code", "import process from 'node:process';\nprocess.on('exit', (code) => console.log('exit', code));\nprocess.exitCode = 3;\n"},
	{"process at unload", "addEventListener('unload', () => {\n  console.log('unload');\n  process.on('exit', () => { console.log('late'); process.exitCode = 4; });\n});\n"},
	{"process throws at exit", "process.on('exit', () => { throw new Error('at exit'); });\n"},
	{"process before exit", "let n = 0;\nprocess.on('beforeExit', () => { console.log('beforeExit'); if (n++ === 0) setTimeout(() => console.log('again'), 1); });\n"},
	{"disposed", "using x = { [Symbol.dispose]() { console.log('disposed'); } };\nconsole.log(typeof x);\n"},
	{"large write at the end", "console.log('x'.repeat(1 << 20));\nconsole.error('y'.repeat(1 << 18));\n"},
	{"empty", ""},
	{"json import", "import d from './data.json' with { type: 'json' };\nconsole.log(d);\n"},
	{"ansi in errors", "console.error('\\x1b[31mred\\x1b[0m');\nthrow new Error('plain');\n"},
	{"tsx is not ts", "const x = <div/>;\n"},
	{"bom and crlf", "\ufeffconsole.log('bom');\r\nthrow new Error('line 2');\r\n"},
	{"source map comment", "//# sourceMappingURL=data:application/json;base64,e30=\nthrow new Error('x');\n"},
	{"shebang", "#!/usr/bin/env -S deno run\nconsole.log('ran');\n"},
	{"unclosed timer", "setInterval(() => {}, 1000);\nDeno.exit(0);\n"},
}

// machinePrograms are programs whose results can depend on the files, the environment or the rights that a mode gives.
var machinePrograms = []string{
	"main", "stack", "uncaught", "stdin", "prompt", "missing file import", "https import", "npm import",
	"dynamic https import", "rights and machine", "worker", "localStorage", "globals", "signal listener",
	"process exit code", "large write at the end", "json import",
}

// outcome is what a program printed, its exit code, and the processor time that it took.
type outcome struct {
	stdout, stderr string
	code           int
	cpu            time.Duration
}

// bareDeno is the outcome of `deno run`, with FILE/ for the file's directory.
func bareDeno(t *testing.T, code string) outcome {
	t.Helper()
	dir := t.TempDir()
	main := filepath.Join(dir, "main.ts")
	if err := os.WriteFile(main, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testkit.DenoPath(t), "run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock",
		"--allow-read=/tmp,/skills,/runs", "--allow-write=/tmp,/skills", "--allow-env", "--allow-sys=homedir,uid,gid,cpus", main)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"NO_COLOR=1", "TZ=UTC", "LANG=C.UTF-8", "HOME=/tmp", "DENO_DIR=" + filepath.Join(dir, "deno"), "DENO_NO_UPDATE_CHECK=1"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	o := outcome{}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		o.code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	same := strings.NewReplacer("file://"+dir+"/", "FILE/", dir+"/", "FILE/")
	o.stdout, o.stderr = same.Replace(out.String()), same.Replace(errs.String())
	return o
}

// TestSameAsBareDeno compares with `deno run` of the same file. Only the file's directory may differ in the output. Each
// program runs as root after its interpreter has preloaded what fetch needs. In the other modes run machinePrograms: the
// interpreter alone decides the results of the others. As an ordinary user they run before the interpreter has preloaded.
func TestSameAsBareDeno(t *testing.T) {
	bare := map[string]outcome{}
	for _, p := range programs {
		bare[p.name] = bareDeno(t, p.code)
	}
	for _, name := range machinePrograms {
		if _, ok := bare[name]; !ok {
			t.Errorf("no program is named %s", name)
		}
	}
	preload := map[Mode][]bool{Root: {true}, User: {false}, Container: {true}}
	if testkit.IsThorough() {
		preload[Root] = []bool{false, true}
	}
	RunInModes(t, func(t *testing.T, m Mode) {
		t.Parallel()
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 2})
		for _, p := range programs {
			if m != Root && !testkit.IsThorough() && !slices.Contains(machinePrograms, p.name) {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				want := bare[p.name]
				for _, loaded := range preload[m] {
					if loaded {
						time.Sleep(150 * time.Millisecond)
					}
					r := w.RunCode(t, p.code, testkit.Patience)
					// Typed clients come by an import map, which Deno mentions where it finds nothing.
					ours := strings.NewReplacer(" and not in import map from \"file://"+codeDir(m, r)+"/main.ts\"", "", "file://"+codeDir(m, r)+"/", "FILE/", codeDir(m, r)+"/", "FILE/")
					if got := ours.Replace(r.Stdout); got != want.stdout {
						t.Errorf("stdout:\n%s\nbare Deno:\n%s", got, want.stdout)
					}
					if got := ours.Replace(r.Stderr); got != want.stderr {
						t.Errorf("stderr:\n%s\nbare Deno:\n%s", got, want.stderr)
					}
					if r.Exit.Code != want.code || r.Exit.Reason != sandboxapi.Exited || r.Exit.Detail != "" {
						t.Errorf("exit %+v, bare Deno %d", r.Exit, want.code)
					}
					if strings.Contains(r.Stdout+r.Stderr, "warm.js") {
						t.Error("warm.js shows")
					}
				}
			})
		}
	})
}

// A waiting interpreter has preloaded what fetch needs, without taking time from a run. An interpreter that already has
// its code preloads nothing.
func TestLoadedAhead(t *testing.T) {
	const program = "console.log(Deno.memoryUsage().heapUsed)"
	var start int64 // what bare Deno takes, in ms, of which a run's part is the smaller half
	for range 3 {
		start = max(start, bareDeno(t, program).cpu.Milliseconds())
	}
	OneMode(t, func(t *testing.T, m Mode) {
		spent := map[*World][]int64{} // ms of processor time of each run
		heap := func(w *World) int {
			t.Helper()
			r := w.RunCode(t, program, testkit.Patience)
			spent[w] = append(spent[w], r.Exit.CPUMS)
			n, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
			if err != nil {
				t.Fatalf("%+v", r)
			}
			return n
		}
		const loads = 500 << 10 // bytes; it is 1.1 MB, and always the same
		cold, warm := StartWorld(t, Options{Mode: m, Slots: 1}), StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1})
		bare := min(heap(cold), heap(cold), heap(cold))
		for deadline := time.Now().Add(time.Minute); heap(warm) < bare+loads; {
			if time.Now().After(deadline) {
				t.Fatal("nothing was loaded")
			}
			awaitWarm(t, warm, 1)
			time.Sleep(200 * time.Millisecond)
		}
		for range 4 {
			awaitWarm(t, warm, 1)
			heap(warm)
		}
		loaded := 0
		for range 5 { // an interpreter may start before its run, if the client is slow to send it
			if n := heap(cold); n > bare+loads {
				loaded++
			}
		}
		if loaded > 2 {
			t.Errorf("of five runs that waited for their interpreters, %d have more than %d bytes in use", loaded, bare+loads)
		}
		for _, each := range spent { // a busy machine adds to single ones
			if slices.Min(each) > start {
				t.Errorf("%d ms of processor time, where bare Deno takes %d", each, start)
			}
		}
	})
}

// A run that may call MCP servers has the global mcp, which names them, and is otherwise like any run. More names than a
// pipe holds arrive too.
func TestServersNamed(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1})
		w.Servers = map[string][]string{"small": {"echo"}, "large": {}}
		for n := range 10000 {
			w.Servers["large"] = append(w.Servers["large"], "tool_"+strconv.Itoa(n))
		}
		r := w.RunCode(t, "console.log(mcp.small, Object.keys(mcp.large).length, await Deno.stdin.read(new Uint8Array(1)));\n"+
			"try { await mcp.small.echo({}); } catch (e) { console.log(e instanceof McpError, e.code); }\n", testkit.Patience)
		if r.Stdout != "mcp.small { echo } 10000 null\ntrue connection_lost\n" || r.Stderr != "" || r.Exit.Code != 0 {
			t.Errorf("%+v", r)
		}
		w.Servers = nil
		if r := w.RunCode(t, "console.log('mcp' in globalThis);\n", testkit.Patience); r.Stdout != "false\n" {
			t.Errorf("%+v", r)
		}
	})
}

// codeDir is the directory of the code as code sees it.
func codeDir(m Mode, r Result) string {
	if m == Container {
		return "/code/" + strconv.Itoa(int(r.Lease.Slot))
	}
	return "/code"
}

func TestBytes(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1})
		t.Run("invalid", func(t *testing.T) {
			r := w.RunCode(t, "Deno.stdout.writeSync(new Uint8Array([0x61, 0xff, 0xc3, 0x28, 0xf0, 0x9f]));\n", testkit.Patience)
			if want := "a\ufffd\ufffd(\ufffd\ufffd"; r.Stdout != want || r.Exit.InvalidUTF8 != 4 || r.Exit.StdoutBytes != 6 {
				t.Errorf("%q %+v, want %q", r.Stdout, r.Exit, want)
			}
		})
		t.Run("split", func(t *testing.T) {
			r := w.RunCode(t, "for (const b of new TextEncoder().encode('漢😀')) {\n  Deno.stdout.writeSync(new Uint8Array([b]));\n  await new Promise((r) => setTimeout(r, 3));\n}\n", testkit.Patience)
			if r.Stdout != "漢😀" || r.Exit.InvalidUTF8 != 0 {
				t.Errorf("%q %+v", r.Stdout, r.Exit)
			}
		})
		t.Run("one megabyte of code", func(t *testing.T) {
			r := w.RunCode(t, "const s = '"+strings.Repeat("x", 1<<20)+"';\nconsole.log(s.length);\n", testkit.Patience)
			if r.Stdout != "1048576\n" {
				t.Errorf("%.100q %+v", r.Stdout, r.Exit)
			}
		})
		t.Run("big output is kept", func(t *testing.T) {
			r := w.RunCode(t, "for (let i = 0; i < 20000; i++) console.log('line', i);\n", testkit.Patience)
			lines := strings.Split(r.Stdout, "\n")
			if len(lines) != 20001 || lines[19999] != "line 19999" || r.Exit.StdoutFile == "" {
				t.Fatalf("%d lines, %+v", len(lines), r.Exit)
			}
			again := w.RunCode(t, "console.log(Deno.readTextFileSync('"+r.Exit.StdoutFile+"').length);\ntry { Deno.writeTextFileSync('"+r.Exit.StdoutFile+"', 'x'); } catch (e) { console.log(e.name); }\n", testkit.Patience)
			if again.Stdout != "208890\nNotCapable\n" || int64(len(r.Stdout)) != r.Exit.StdoutBytes {
				t.Errorf("%q %q, %d bytes", again.Stdout, again.Stderr, len(r.Stdout))
			}
		})
	})
}

// Runs share /tmp and /skills, in whichever slots they are.
func TestSharedDirectories(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1})
		hold, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first := w.RunCode(t, "Deno.writeTextFileSync('/tmp/shared.txt', 'one');\nDeno.mkdirSync('/tmp/d');\nDeno.writeTextFileSync('/skills/add.ts', 'export const add = (a: number, b: number) => a + b;');\n", testkit.Patience)
		if first.Exit.Code != 0 {
			t.Fatal(first.Stderr)
		}
		next, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Client.Release(context.Background(), hold.Generation)
		defer func() { _ = w.Client.Release(context.Background(), next.Generation) }()
		second := w.RunCode(t, "import { add } from '/skills/add.ts';\nconsole.log(Deno.readTextFileSync('/tmp/shared.txt'), add(2, 3));\nconst dyn = await import('/skills/add.ts');\nconsole.log(dyn.add(1, 1));\nDeno.writeTextFileSync('/skills/add.ts', 'export const add = () => 0;');\nDeno.writeTextFileSync('/tmp/d/x', 'x');\nconsole.log([...Deno.readDirSync('/runs')].length);\n", testkit.Patience)
		if second.Stdout != "one 5\n2\n0\n" || second.Exit.Code != 0 {
			t.Errorf("%q %q", second.Stdout, second.Stderr)
		}
		if first.Lease.Slot == second.Lease.Slot {
			t.Errorf("both ran in slot %d", first.Lease.Slot)
		}
		info, err := os.Stat(filepath.Join(w.Dir, "skills", "add.ts"))
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	})
}
