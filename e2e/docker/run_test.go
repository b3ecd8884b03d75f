package docker

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// TestMainJob runs the main job through every container.
func TestMainJob(t *testing.T) { works(t) }

// TestCommand runs a script as a user would, with the command line inside mcp-server's container.
func TestCommand(t *testing.T) {
	out, err := stack.Exec(t.Context(), `console.log("from stdin", 6 * 7)`, "mcp-server", "codeforge", "run", "-")
	if err != nil || !strings.Contains(out, "from stdin 42") {
		t.Errorf("codeforge run -: %v\n%s", err, out)
	}
}

// TestToken checks that requests without the token of MCP_AUTH_TOKEN_FILE are refused.
func TestToken(t *testing.T) {
	for value, want := range map[string]int{"": http.StatusUnauthorized, "e2e-docker-token-5b1f0c2f": http.StatusUnauthorized, token: http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, stack.URL, strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := (&http.Client{Transport: bearing(value)}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the token %q: %s", value, resp.Status)
		}
	}
}

// asSlot runs Deno with all permissions as a slot's user in the sandbox's container, like code that has escaped from
// Deno. It prints "name: what happened" for each attempt.
func asSlot(t *testing.T, id slot.ID, code string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "docker", "exec", "-i", "-u", fmt.Sprintf("%d:%d", id.UID(), slot.GroupID),
		"-e", "HOME=/tmp", "-e", "DENO_DIR=/tmp/escaped", "-e", "NO_COLOR=1", stack.Container("sandbox"),
		"/usr/local/bin/deno", "run", "-A", "-")
	cmd.Stdin = strings.NewReader(code)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("deno as slot %d: %v\n%s", id, err, out)
	}
	return string(out)
}

// TestEscaped gives code everything but a kernel bug: it can still reach only the proxy.
// Promise: least-privilege
func TestEscaped(t *testing.T) {
	out := asSlot(t, 7, `
async function tcp(hostname: string, port: number, local?: string) {
  const name = "tcp " + hostname + ":" + port;
  try {
    const c = await Promise.race([Deno.connect({hostname, port}), new Promise<never>((_, no) => setTimeout(() => no(new Error("timeout")), 1500))]);
    console.log(name + ": connected"); c.close();
  } catch (e) { console.log(name + ": " + (e as Error).name); }
}
async function dns(nameServer: string, name: string) {
  try {
    console.log("dns " + nameServer + ": " + await Deno.resolveDns(name, "A", {nameServer: {ipAddr: nameServer}, signal: AbortSignal.timeout(1500)}));
  } catch (e) { console.log("dns " + nameServer + ": " + (e as Error).name); }
}
for (const [h, p] of [["93.184.215.14", 9000], ["93.184.215.14", 22], ["10.99.0.10", 9000], ["10.99.0.2", 53], ["10.77.0.2", 8080], ["10.77.0.2", 8443],
    ["10.77.0.1", 22], ["10.77.0.1", 2375], ["10.77.0.3", 1], ["127.0.0.1", 1], ["127.0.0.11", 53], ["169.254.169.254", 8080], ["8.8.8.8", 53], ["8.8.8.8", 853]] as const) await tcp(h, p);
for (const s of ["127.0.0.11", "8.8.8.8", "10.99.0.10", "10.77.0.1", "10.77.0.2"]) await dns(s, "asked-by-code.httpbin.test");
for (const p of ["/etc/shadow", "/proc/1/environ", "/proc/1/root", "/run/sandboxd/sandboxd.sock", "/var/lib/sandboxd/generation", "/var/run/docker.sock", "/apis"]) {
  try { Deno.statSync(p); await Deno.readTextFile(p); console.log("file " + p + ": read"); } catch (e) { console.log("file " + p + ": " + (e as Error).name); }
}
try { Deno.writeTextFileSync("/usr/local/bin/x", ""); console.log("root: written"); } catch (e) { console.log("root: " + (e as Error).name); }
try { await Deno.connect({transport: "unix", path: "/run/sandboxd/sandboxd.sock"}); console.log("socket: connected"); } catch (e) { console.log("socket: " + (e as Error).name); }
`)
	t.Log(out)
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		for _, bad := range []string{": connected", ": read", ": written", ": 198.18.", ": 10.", ": 93."} {
			if strings.Contains(line, bad) {
				t.Errorf("got out: %s", line)
			}
		}
	}
	if n := strings.Count(out, "\n"); n < 26 {
		t.Errorf("only %d attempts were reported", n)
	}
	for _, name := range stack.Upstream.Asked() {
		if strings.Contains(name, "asked-by-code") {
			t.Errorf("a question of the sandbox reached the upstream's DNS: %s", name)
		}
	}
}

// TestWarm logs how fast a warm call is. It is not a benchmark.
func TestWarm(t *testing.T) {
	execute(t, `console.log(1)`)
	began := time.Now()
	const n = 10
	for range n {
		if r := execute(t, `console.log(1)`); r.Failed {
			t.Fatal(r.Text)
		}
	}
	t.Logf("%v per call with a session of its own", time.Since(began)/n)
}

// TestPrivateConfig checks that files of mode 0600 in folders of another user were read: see prepare.
func TestPrivateConfig(t *testing.T) {
	info, err := os.Stat(apis + "/httpbin/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("config.json has mode %v", info.Mode())
	}
	works(t)
	for _, service := range []string{"sandbox", "mcp-server", "docker-shim", "sandbox-net"} {
		for _, m := range inspect(t, service).Mounts {
			if m.Destination == "/apis" {
				t.Errorf("%s has apis/", service)
			}
		}
	}
}
