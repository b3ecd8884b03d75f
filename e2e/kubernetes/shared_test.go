package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestShared tests a release in which all sandboxes share a proxy, in namespaces that PodSecurity restricts.
// Promise: shared-proxy, protected-sandboxd, closed-network-first
func TestShared(t *testing.T) {
	w := start(t, world.Config{Shared: true, Pods: 3})
	for _, check := range []struct {
		name string
		do   func(*testing.T, *world.World)
	}{
		{"the key is the proxy's alone", keyIsTheProxysAlone},
		{"skills", shippedSkills},
		{"each run has its own rights", ownRights},
		{"strangers get nothing", strangers},
		{"doors of the shared proxy", sharedDoors},
		{"code cannot touch sandboxd", besideSandboxd},
		{"the proxy is replaced", proxyReplaced},
		{"runs of sandboxes that are to go", drained},
		{"sandboxes are replaced", sandboxesReplaced},
		{"packages of code", packagesOfCode},
		{"without a NetworkPolicy that is enforced", notEnforced},
	} {
		t.Run(check.name, func(t *testing.T) { check.do(t, w) })
	}
}

// ownRights: runs with different APIs, at the same time and in several pods, each reach only their own, and the receipt
// of each has only its own requests.
func ownRights(t *testing.T, w *world.World) {
	var work sync.WaitGroup
	for i := range 12 {
		may := i%2 == 0
		api := "other"
		if may {
			api = "httpbin"
		}
		work.Go(func() {
			trial := fmt.Sprint("rights", time.Now().UnixNano(), ".")
			r, err := w.Do(t.Context(), w.Session(), world.Run{Code: fetches(trial, 1), APIs: []string{api}})
			if arrived := len(w.Upstream.Seen(trial)); err != nil || (arrived == 1) != may || (r.Out == right(trial)) != may {
				t.Errorf("a run with %s: arrived %d times, out %q, notes %q: %v", api, arrived, r.Out, r.Notes, err)
			}
			if n := len(r.Receipt.Exchanges); n != 1 {
				t.Errorf("a run with %s has %d exchanges on its receipt", api, n)
			}
		})
	}
	work.Wait()
}

// strangers: the proxy speaks neither TLS nor HTTP with an address that has no run, even while another one has a run.
func strangers(t *testing.T, w *world.World) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { w.MustExecute(t, fetches("meanwhile", 3), "httpbin") })
	time.Sleep(time.Second)
	for port, first := range map[string]string{"443": "\x16\x03\x01\x00\x01\x01", "80": "GET / HTTP/1.1\r\nHost: httpbin.test\r\n\r\n"} {
		c, err := net.DialTimeout("tcp4", world.SharedAddress+":"+port, 5*time.Second) //nolint:noctx // it has its own
		if err != nil {
			t.Errorf("port %s: %v: nothing is shown", port, err)
			continue
		}
		testkit.Must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, _ = io.WriteString(c, first)
		got, err := io.ReadAll(c)
		var timeout net.Error
		if len(got) > 0 || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("port %s answers %q, %v", port, got, err)
		}
		_ = c.Close()
	}
}

// sharedDoors: the control API requires mcp-server's certificate, and a sandbox's is required to get the authority's
// certificate.
func sharedDoors(t *testing.T, w *world.World) {
	ctx := t.Context()
	for role, secret := range map[string][2]string{
		"mcp-server": {w.Cluster.Server, "cf-mcp-server-tls"}, "sandbox": {w.Cluster.Sandboxes, "cf-sandbox-tls"}, "proxy": {w.Cluster.Sandboxes, "cf-proxy-tls"},
	} {
		id, done, err := w.Cluster.Identity(ctx, secret[0], secret[1])
		testkit.Must(t, err)
		defer done()
		dial := func(port string) func(context.Context) (net.Conn, error) {
			return func(ctx context.Context) (net.Conn, error) {
				return id.Dial(ctx, world.SharedAddress+":"+port, mtls.Proxy)
			}
		}
		c := proxyapi.NewClientOver(dial("8444"))
		_, err = c.FetchHealth(ctx)
		if (err == nil) != (role == "mcp-server") {
			t.Errorf("the control API, with the certificate of %s: %v", role, err)
		}
		err = c.RegisterRun(ctx, 0, proxyapi.Registration{Run: "x", Generation: 1 << 60, Deadline: time.Now().Add(time.Minute)})
		if err == nil || role == "mcp-server" && !strings.Contains(err.Error(), "pod: want one address") {
			t.Errorf("a slot of no pod, with the certificate of %s: %v", role, err)
		}
		c.Close()
		if got := certificateFrom(ctx, dial("8445")); (got == "200 OK") != (role == "sandbox") {
			t.Errorf("the authority's certificate, with the certificate of %s: %s", role, got)
		}
	}
}

// certificateFrom returns the answer to GET at an address.
func certificateFrom(ctx context.Context, dial func(context.Context) (net.Conn, error)) string {
	c, err := dial(ctx)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return resp.Status
}

// touching is Python code that tries what only the kernel forbids to sandboxd's own user. It prints what succeeded, and
// how many attempts it made.
const touching = `import ctypes, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
tried = 0
def attempt(name, call):
    global tried
    tried += 1
    try:
        call()
    except OSError:
        return
    print("could:", name)
def call(number, *args):
    if libc.syscall(ctypes.c_long(number), *args) == -1:
        raise OSError(ctypes.get_errno(), "refused")
open("/tmp/mine", "w").close()
for path in ("/etc/codeforge/tls/tls.key", "/etc/codeforge/tls/tls.crt", "/proc/1/environ", "/proc/1/mem", "/proc/1/maps",
             "/proc/1/status", "/var/lib/sandboxd/generation", "/run/codeforge/sandboxd/sandboxd.sock"):
    attempt("read " + path, lambda: open(path, "rb").read(1))
for path in ("/proc", "/proc/1/fd", "/proc/1/root", "/etc/codeforge/tls", "/run/codeforge", "/var/lib/sandboxd", "/home"):
    attempt("list " + path, lambda: os.listdir(path))
for path in ("/skills/planted.py", "/skills/page-through.ts", "/runs/planted", "/code/planted", "/code/0/main.py", "/code/0/sitecustomize.py",
             "/var/lib/sandboxd/generation", "/etc/codeforge/ca/ca.pem", "/run/codeforge/planted", "/home/planted", "/proc/1/mem", "/proc/1/oom_score_adj"):
    attempt("write " + path, lambda: open(path, "r+b" if os.path.exists(path) else "wb"))
    attempt("truncate " + path, lambda: os.truncate(path, 0))
    attempt("remove " + path, lambda: os.remove(path))
    attempt("link to " + path, lambda: os.link(path, "/tmp/planted"))
    attempt("replace " + path, lambda: os.rename("/tmp/mine", path))
attempt("replace a folder", lambda: os.rename("/code/0", "/code/1"))
attempt("link in code", lambda: os.symlink("/etc", "/code/0/planted"))
for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGQUIT):
    attempt("signal %d to sandboxd" % s, lambda: os.kill(1, s))
attempt("a pidfd's signal", lambda: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGTERM))
attempt("ptrace", lambda: call(101, 16, 1, 0, 0))
attempt("process_vm_readv", lambda: call(310, 1, 0, 0, 0, 0, 0))
attempt("a unix socket", lambda: socket.socket(socket.AF_UNIX).connect("/run/codeforge/sandboxd/sandboxd.sock"))
for uid in (0, 19998, 20001):
    attempt("user %d" % uid, lambda: os.setuid(uid))
    attempt("group %d" % uid, lambda: os.setgid(uid))
attempt("no groups", lambda: os.setgroups([]))
attempt("a namespace", lambda: call(272, 0x10000000))
print(tried)
`

// besideSandboxd: code, which runs as sandboxd's own user here, can neither read nor change anything of sandboxd's.
func besideSandboxd(t *testing.T, w *world.World) {
	r := w.MustPython(t, touching)
	if r.Out != "93\n" {
		t.Errorf("out %q, notes %q", r.Out, r.Notes)
	}
	// The same attempts on files that code may use show that they can succeed.
	r = w.MustPython(t, `import os
open("/tmp/control", "w").write("x"); os.truncate("/tmp/control", 0); os.rename("/tmp/control", "/tmp/other"); os.remove("/tmp/other")
os.kill(os.getpid(), 0)
print(os.getuid(), os.getgid(), sorted(set(os.getgroups()) - {20000}), len(open("/etc/codeforge/ca/ca.pem").read()) > 100)`)
	if r.Out != "20000 20000 [21000] True\n" {
		t.Errorf("out %q, notes %q", r.Out, r.Notes)
	}
}

// answers waits until several runs in a row print the right output.
func answers(t *testing.T, w *world.World, name string) {
	t.Helper()
	var last string
	for end, row := time.Now().Add(time.Minute), 0; row < 6; {
		trial := fmt.Sprint(name, time.Now().UnixNano(), ".")
		r, err := w.Execute(t.Context(), fetches(trial, 0), "httpbin")
		if err == nil && r.Out == right(trial) {
			row++
			continue
		}
		row, last = 0, fmt.Sprint(r.Out, r.Notes, err)
		if time.Now().After(end) {
			t.Fatal(last)
		}
		time.Sleep(time.Second)
	}
}

// proxyReplaced: a new proxy, which knows no run and has a new authority, serves the same sandboxes.
func proxyReplaced(t *testing.T, w *world.World) {
	ctx := t.Context()
	for _, args := range [][]string{{"restart"}, {"status", "--timeout=2m"}} {
		_, err := world.Kube(ctx, "", append([]string{"rollout", args[0], "deployment/cf-proxy", "-n", w.Cluster.Sandboxes}, args[1:]...)...)
		testkit.Must(t, err)
	}
	answers(t, w, "afterproxy")
}

// drained: a run in a pod that is being terminated completes normally.
func drained(t *testing.T, w *world.World) {
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() {
			trial := fmt.Sprint("drained", i, ".")
			if r, err := w.Execute(t.Context(), fetches(trial, 5), "httpbin"); err != nil || r.Out != right(trial) {
				t.Errorf("out %q, notes %q: %v", r.Out, r.Notes, err)
			}
		})
	}
	time.Sleep(2 * time.Second)
	_, err := world.Kube(t.Context(), "", "delete", "pods", "-n", w.Cluster.Sandboxes, "-l", "app.kubernetes.io/component=sandbox", "--wait=false")
	testkit.Must(t, err)
	work.Wait()
	_, err = world.Kube(t.Context(), "", "rollout", "status", "deployment/cf-sandbox", "-n", w.Cluster.Sandboxes, "--timeout=2m")
	testkit.Must(t, err)
	answers(t, w, "afterdrain")
}

// sandboxesReplaced: pods get runs, whether their addresses are new or those of earlier pods.
func sandboxesReplaced(t *testing.T, w *world.World) {
	ctx := t.Context()
	_, err := world.Kube(ctx, "", "delete", "pods", "-n", w.Cluster.Sandboxes, "-l", "app.kubernetes.io/component=sandbox", "--grace-period=1")
	testkit.Must(t, err)
	_, err = world.Kube(ctx, "", "rollout", "status", "deployment/cf-sandbox", "-n", w.Cluster.Sandboxes, "--timeout=2m")
	testkit.Must(t, err)
	answers(t, w, "aftersandboxes")
	ownRights(t, w)
}

// notEnforced: with the chart's defaults a sandbox that can connect to the API server is not ready. When the node's
// packet filter does what a NetworkPolicy would, it becomes ready, and the chart's own test passes.
func notEnforced(t *testing.T, w *world.World) {
	ctx, c := t.Context(), w.Cluster
	_, err := world.Kube(ctx, "", "scale", "deployment/cf-sandbox", "-n", c.Sandboxes, "--replicas=1")
	testkit.Must(t, err)
	all, err := c.Pods(ctx)
	testkit.Must(t, err)
	old := slices.DeleteFunc(all, func(name string) bool { return strings.HasPrefix(name, "cf-proxy-") })
	_, err = world.Kube(ctx, "", "patch", "deployment/cf-sandbox", "-n", c.Sandboxes, "--type=json",
		`-p=[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--closed=$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"}]`)
	testkit.Must(t, err)
	name, ip := newPod(t, c, old)
	problem := ""
	for end := time.Now().Add(40 * time.Second); !strings.Contains(problem, "NetworkPolicy") && time.Now().Before(end); time.Sleep(time.Second) {
		problem = healthOf(ctx, ip)
	}
	if !strings.Contains(problem, "503") || !strings.Contains(problem, "does not enforce the NetworkPolicy") {
		t.Fatalf("the sandbox %s says %q", name, problem)
	}
	rule := []string{"PREROUTING", "-t", "mangle", "-s", ip, "!", "-d", world.SharedAddress, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"}
	iptables := func(do string) error {
		return exec.CommandContext(context.WithoutCancel(ctx), "iptables", slices.Insert(slices.Clone(rule), 0, do)...).Run() //nolint:gosec // ours
	}
	testkit.Must(t, iptables("-A"))
	defer func() { _ = iptables("-D") }()
	_, err = world.Kube(ctx, "", "rollout", "status", "deployment/cf-sandbox", "-n", c.Sandboxes, "--timeout=2m")
	testkit.Must(t, err)
	_, err = world.Kube(ctx, "", append([]string{"wait", "--for=delete", "--timeout=1m", "-n", c.Sandboxes}, others(old)...)...)
	testkit.Must(t, err)
	answers(t, w, "enforced")
	helmTest(t, w)
}

// others are pods, by kubectl's names.
func others(names []string) (list []string) {
	for _, name := range names {
		list = append(list, "pod/"+name)
	}
	return list
}

// newPod waits for a sandbox that is not one of the old ones.
func newPod(t *testing.T, c *world.Cluster, old []string) (name, ip string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		out, err := world.Kube(t.Context(), "", "get", "pods", "-n", c.Sandboxes, "-l", "app.kubernetes.io/component=sandbox",
			"--field-selector=status.phase=Running", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\n"}{end}`)
		testkit.Must(t, err)
		for line := range strings.Lines(out) {
			if n, _ := fmt.Sscan(line, &name, &ip); n == 2 && !slices.Contains(old, name) {
				return name, ip
			}
		}
	}
	t.Fatal("no new pod")
	return "", ""
}

// healthOf is a sandbox's answer to the kubelet.
func healthOf(ctx context.Context, ip string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8081/", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.Status + " " + string(text)
}
