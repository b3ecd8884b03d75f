package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// crash kills a container's main process as a crash or the kernel would. The restart policy applies, which `docker
// kill` would disable.
func crash(t *testing.T, service string) {
	t.Helper()
	pid := inspect(t, service).State.Pid
	for began := time.Now(); pid <= 1; pid = inspect(t, service).State.Pid { // the engine may be restarting it
		if time.Since(began) > healTime {
			t.Fatalf("%s does not run", service)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestRestart restarts each container in turn, as a user would. The stack recovers by itself, and clients get readable
// errors meanwhile.
func TestRestart(t *testing.T) {
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			works(t)
			docker(t, "restart", "-t", "5", stack.Container(service))
			if said := docker(t, "logs", stack.Container(service)); strings.Contains(said, "cut off") {
				t.Errorf("nothing was under way, and it says: %s", said)
			}
			heals(t, healTime)
		})
	}
}

// TestPairs kills pairs of containers at once: each container with two others, or every pair if testkit.IsThorough. The
// stack recovers by itself, although the engine tries only once to start a sandbox whose network owner is not up yet.
func TestPairs(t *testing.T) {
	pairs := [][2]string{ // each container rests in between
		{"sandbox", "sandbox-net"}, {"proxy", "docker-shim"}, {"mcp-server", "sandbox"}, {"sandbox-net", "proxy"},
		{"mcp-server", "docker-shim"},
	}
	if testkit.IsThorough() {
		pairs = append(pairs, [][2]string{
			{"sandbox", "proxy"}, {"mcp-server", "sandbox-net"}, {"docker-shim", "sandbox"}, {"mcp-server", "proxy"},
			{"sandbox-net", "docker-shim"},
		}...)
	}
	for _, p := range pairs {
		t.Run(p[0]+" and "+p[1], func(t *testing.T) {
			crash(t, p[0])
			crash(t, p[1])
			heals(t, healTime)
		})
	}
}

// TestCrashDuringRun kills each container while a run waits or fetches. The call ends soon with an error that says what
// to do; when mcp-server itself dies, the error comes from the client's library.
func TestCrashDuringRun(t *testing.T) {
	const once = `{
  const r = await fetch("https://httpbin.test/bearer?t=TRIAL", {headers: {Authorization: "Bearer HTTPBIN_TOKEN"}, signal: AbortSignal.timeout(5000)});
  if (!r.ok) throw new Error("answered " + r.status + " " + await r.text());
  await r.body?.cancel();
  await new Promise((r) => setTimeout(r, 50));
}`
	const waits = once + `await new Promise((r) => setTimeout(r, 30_000)); console.log("end")`
	const fetches = "for (;;) " + once
	rows := []struct{ service, code, want string }{
		{"sandbox", waits, "again"},
		{"docker-shim", waits, "again"},
		{"proxy", fetches, ""}, // fetch throws
		{"mcp-server", waits, ""},
		{"sandbox-net", waits, "again"},
	}
	for _, r := range rows {
		t.Run(r.service, func(t *testing.T) {
			works(t)
			trial := fmt.Sprintf("crash-%d", time.Now().UnixNano())
			done := make(chan result, 1)
			go func() { done <- execute(t, strings.ReplaceAll(r.code, "TRIAL", trial)) }()
			fetched(t, trial)
			began := time.Now()
			crash(t, r.service)
			select {
			case got := <-done:
				t.Logf("after %.1f s: %q %q", time.Since(began).Seconds(), got.Text, got.Notes)
				if !got.Failed || !strings.Contains(strings.ToLower(got.Text+got.Notes), r.want) {
					t.Errorf("no error that says %q: %q %q", r.want, got.Text, got.Notes)
				}
			case <-time.After(20 * time.Second):
				t.Error("the call does not end")
				<-done
			}
			heals(t, healTime)
		})
	}
}

// fetched waits until a run's code has fetched.
func fetched(t *testing.T, trial string) {
	t.Helper()
	for began := time.Now(); len(stack.Upstream.Seen(trial)) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > testkit.Patience {
			t.Fatal("the code does not fetch")
		}
	}
}

// TestLateNetwork keeps sandbox-net down for longer than the engine tries to restart the sandbox.
func TestLateNetwork(t *testing.T) {
	works(t)
	docker(t, "stop", "-t", "5", stack.Container("sandbox-net"))
	time.Sleep(6 * time.Second)
	if r := execute(t, `console.log("out")`); !r.Failed {
		t.Errorf("a run without a network: %q", r.Text)
	} else {
		t.Logf("told: %q %q", r.Text, r.Notes)
	}
	docker(t, "start", stack.Container("sandbox-net"))
	heals(t, healTime)
}

// TestNoEgressWithoutProxy stops the proxy under running code that keeps fetching. While the proxy is down nothing
// arrives anywhere and the code sees errors. When it is up again, the next run works.
// Promise: no-other-way-out
func TestNoEgressWithoutProxy(t *testing.T) {
	works(t)
	trial := fmt.Sprintf("down-%d", time.Now().UnixNano())
	done := make(chan result, 1)
	go func() {
		done <- execute(t, fmt.Sprintf(`
for (let down = 0; !down || Date.now() < down + 8000;) {
  try {
    const r = await fetch("https://httpbin.test/bearer?t=%s", {headers: {Authorization: "Bearer HTTPBIN_TOKEN"}, signal: AbortSignal.timeout(500)});
    await r.body?.cancel(); console.log("ok", r.status);
  } catch (e) { down ||= Date.now(); console.log("failed", (e as Error).name); }
  await new Promise((r) => setTimeout(r, 100));
}`, trial))
	}()
	fetched(t, trial)
	began := time.Now()
	at := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	docker(t, "stop", "-t", "5", stack.Container("proxy"))
	at("the proxy is stopped")
	before := len(stack.Upstream.Seen(trial))
	out := asSlot(t, 6, `
for (const [h, p] of [["93.184.215.14", 443], ["93.184.215.14", 80], ["10.99.0.10", 443]] as const) {
  try { const c = await Promise.race([Deno.connect({hostname: h, port: p}), new Promise<never>((_, no) => setTimeout(() => no(new Error("timeout")), 1500))]); c.close(); console.log("connected", h, p); }
  catch (e) { console.log("failed", h, p, (e as Error).name); }
}
Deno.exit(0); // the attempts go on`)
	if strings.Contains(out, "connected") {
		t.Errorf("a way out without the proxy:\n%s", out)
	}
	if after := len(stack.Upstream.Seen(trial)); after != before {
		t.Errorf("%d requests arrived while the proxy was stopped", after-before)
	}
	at("nothing got out")
	docker(t, "start", stack.Container("proxy"))
	at("the proxy is started")
	r := <-done
	at("the run has ended")
	if !strings.Contains(r.Text, "failed") {
		t.Errorf("the code saw no error: %q %q", r.Text, r.Notes)
	}
	heals(t, healTime)
	works(t)
}

// TestBrokenAPIs makes mistakes in apis/ while everything runs: the old version stays in force, the mistake is
// reported, and a repair takes effect without a restart.
func TestBrokenAPIs(t *testing.T) {
	path := filepath.Join(apis, "httpbin", "config.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(data string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { replace(string(good)) })
	replace(strings.Replace(string(good), `"domains"`, `"domain"`, 1))
	logged := func(want string) bool { return strings.Contains(stack.Logs(), want) }
	for began := time.Now(); !logged("apis/httpbin/config.json"); time.Sleep(300 * time.Millisecond) {
		if time.Since(began) > testkit.Patience {
			t.Fatal("the mistake is not in any log")
		}
	}
	works(t)
	if where := leak([]byte(stack.Logs())); where != "" {
		t.Errorf("the logs hold %s", where)
	}
	replace(string(good))
	time.Sleep(3 * time.Second)
	works(t)
}

// TestDownUp checks that skills and the certificate authority survive down and up.
func TestDownUp(t *testing.T) {
	r := execute(t, `Deno.writeTextFileSync("/skills/kept.ts", "/** @description kept */\nexport const kept = 1;\n"); console.log("written")`)
	if r.Failed {
		t.Fatalf("%q %q", r.Text, r.Notes)
	}
	ca := func() string {
		return docker(t, "run", "--rm", "--network", "none", "-v", "codeforge-e2e_ca-public:/v:ro", "debian:bookworm-slim", "cat", "/v/ca.pem")
	}
	before := ca()
	if out, err := stack.Compose(t.Context(), "down", "--timeout", "5"); err != nil {
		t.Fatal(err, out)
	}
	began := time.Now()
	if err := stack.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("up with warm images after %.1f s", time.Since(began).Seconds())
	works(t)
	if ca() != before {
		t.Error("the authority has changed")
	}
	if r := execute(t, `console.log((await import("/skills/kept.ts")).kept); Deno.removeSync("/skills/kept.ts")`); strings.TrimSpace(r.Text) != "1" {
		t.Errorf("the skill is gone: %q %q", r.Text, r.Notes)
	}
}

// TestLostAuthority deletes the authority's files. At its next start the proxy makes a new authority, and the sandbox
// uses it.
func TestLostAuthority(t *testing.T) {
	docker(t, "run", "--rm", "--network", "none", "-v", "codeforge-e2e_ca-public:/p", "-v", "codeforge-e2e_ca-private:/k",
		"debian:bookworm-slim", "sh", "-c", "rm -f /p/* /k/*")
	crash(t, "proxy")
	deadline := time.Now().Add(healTime)
	for {
		r := execute(t, bearer("lost"))
		if strings.TrimSpace(r.Text) == "200 HTTPBIN_TOKEN" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not healed: %q %q", r.Text, r.Notes)
		}
		time.Sleep(500 * time.Millisecond)
	}
	works(t)
}

// TestNoLeftovers checks that the only processes of slots in the sandbox are waiting interpreters.
// Promise: nothing-stays
func TestNoLeftovers(t *testing.T) {
	execute(t, `console.log("x")`)
	var left []string
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(200 * time.Millisecond) {
		left = nil
		out := docker(t, "top", stack.Container("sandbox"), "-eo", "pid,uid,args")
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) > 2 && strings.HasPrefix(fields[1], "200") && !strings.Contains(line, "/usr/local/bin/deno run") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("left over: %q", left)
}

// TestLostDatagram: the resolver is asked again when its answer is lost, or late.
func TestLostDatagram(t *testing.T) {
	pid := docker(t, "inspect", "-f", "{{.State.Pid}}", stack.Container("sandbox"))
	iptables := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"-t", pid, "-n", "iptables", "-w"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("iptables %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	rule := []string{"INPUT", "-p", "udp", "--sport", "53", "-m", "quota", "--quota", "200", "-j", "DROP"} // one or two answers
	iptables(append([]string{"-I"}, rule...)...)
	t.Cleanup(func() { iptables(append([]string{"-D"}, rule...)...) })
	works(t)
	if list := iptables("-nvxL", "INPUT", "1"); strings.HasPrefix(strings.TrimSpace(list), "0 ") {
		t.Errorf("nothing was lost: %s", list)
	}
}
