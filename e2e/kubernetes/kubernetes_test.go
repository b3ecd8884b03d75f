// Package kubernetes tests what the chart makes of CodeForge on a real node: see .ci/k8s. It runs in that mode only.
package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

func start(t *testing.T, cfg world.Config) *world.World {
	t.Helper()
	if world.CurrentMode() != world.Kubernetes {
		t.Skip("of Kubernetes alone") // not testkit.Skip: the other modes run every package
	}
	return world.Start(t, cfg)
}

// TestRelease: what holds of a release that nobody changes.
// Promise: pod-certificates, cluster-secrets
func TestRelease(t *testing.T) {
	w := start(t, world.Config{})
	for _, check := range []struct {
		name string
		do   func(*testing.T, *world.World)
	}{
		{"the key is the proxy's alone", keyIsTheProxysAlone},
		{"skills", shippedSkills},
		{"doors", doors},
		{"admission", admission},
		{"no writes", noWrites},
		{"mcp-server may only find", mayOnlyFind},
		{"helm test", helmTest},
		{"the lines of the documentation", documented},
		{"packages of code", packagesOfCode},
	} {
		t.Run(check.name, func(t *testing.T) { check.do(t, w) })
	}
}

// fetches is code that calls an API with a key, for so many seconds, and prints one line.
func fetches(trial string, seconds int) string {
	return fmt.Sprintf(`await new Promise((r) => setTimeout(r, %d));
const r = await fetch("https://httpbin.test/bearer?t=%s", { headers: { Authorization: "Bearer HTTPBIN_TOKEN" } });
console.log(r.status, (await r.json()).token, %q);`, seconds*1000, trial, trial)
}

// right is what such code prints.
func right(trial string) string { return "200 HTTPBIN_TOKEN " + trial + "\n" }

// keyIsTheProxysAlone: the API sees the key, the code its name; and neither the sandbox's container, by its
// definition, environment and files, nor mcp-server has it.
func keyIsTheProxysAlone(t *testing.T, w *world.World) {
	ctx := t.Context()
	if r := w.MustExecute(t, fetches("once", 0), "httpbin"); r.Out != right("once") {
		t.Fatalf("out %q, notes %q", r.Out, r.Notes)
	}
	key := w.Canaries["HTTPBIN_TOKEN"].Value()
	if seen := w.Upstream.Seen("once"); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+key {
		t.Errorf("the upstream saw %+v", seen)
	}
	for _, namespace := range []string{w.Cluster.Server, w.Cluster.Sandboxes} {
		out, err := world.Kube(ctx, "", "get", "pods,configmaps,deployments,replicasets,endpointslices", "-n", namespace, "-o", "json")
		testkit.Must(t, err)
		if strings.Contains(out, key) {
			t.Errorf("a definition in %s has the key", namespace)
		}
	}
	found := map[string]bool{}
	for name, pid := range processes(t, w) {
		holds := search(t, pid, key)
		found[name] = holds
		if holds != (name == "proxy") {
			t.Errorf("the container %s (process %d) has the key in its files or environment: %v", name, pid, holds)
		}
	}
	if len(found) != 3 {
		t.Errorf("looked into %v, want three containers", found)
	}
}

// shippedSkills: code can import the shipped skills, and leaves nothing there for later runs.
func shippedSkills(t *testing.T, w *world.World) {
	r := w.MustExecute(t, `import { pages } from "/skills/page-through.ts";
console.log(typeof pages);
for (const name of ["planted", "page-through"]) {
  try {
    Deno.writeTextFileSync("/skills/" + name + ".ts", "planted");
    console.log("written");
  } catch (e) { console.log(e.name); }
}`)
	if want := "function\nPermissionDenied\nPermissionDenied\n"; r.Out != want {
		t.Errorf("out %q, want %q; notes %q", r.Out, want, r.Notes)
	}
	r = w.MustPython(t, `try:
    open("/skills/planted.py", "w")
    print("written")
except OSError as e:
    print(type(e).__name__)`)
	if r.Out != "PermissionError\n" {
		t.Errorf("Python: out %q, notes %q", r.Out, r.Notes)
	}
}

// packagesOfCode: code imports the packages of the sandbox's image that the values list, in both languages.
func packagesOfCode(t *testing.T, w *world.World) {
	testkit.Must(t, w.Cluster.Upgrade(t.Context(), "--set", "image.tag="+world.ImageTag()+"-programs", "--set-file", "sandbox.packages=testdata/packages.json"))
	var typescript, python world.Result
	testkit.WaitFor(t, func() bool {
		typescript = w.MustExecute(t, `import text from "npm:probe"; console.log(text);`)
		python = w.MustPython(t, "import probe; print(probe.name)")
		return typescript.Out == "a package of npm\n" && python.Out == "a package of PyPI\n"
	})
}

// processes are the first processes of the release's containers that run, by the containers' names.
func processes(t *testing.T, w *world.World) map[string]int {
	t.Helper()
	out := map[string]int{}
	node := filepath.Join(os.Getenv("CODEFORGE_K8S"))
	list, err := exec.CommandContext(t.Context(), filepath.Join(node, "root/usr/bin/ctr"), "-a", filepath.Join(node, "run/containerd.sock"), "-n", "k8s.io", "tasks", "ls").Output()
	testkit.Must(t, err)
	pids := map[string]int{}
	for line := range strings.Lines(string(list)) {
		var id string
		var pid int
		if n, _ := fmt.Sscan(line, &id, &pid); n == 2 {
			pids[id] = pid
		}
	}
	for _, namespace := range []string{w.Cluster.Server, w.Cluster.Sandboxes} {
		text, err := world.Kube(t.Context(), "", "get", "pods", "-n", namespace, "-o", `jsonpath={range .items[*]}{range .status.containerStatuses[*]}{.name} {.containerID}{"\n"}{end}{range .status.initContainerStatuses[*]}{.name} {.containerID}{"\n"}{end}{end}`)
		testkit.Must(t, err)
		for line := range strings.Lines(text) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			if pid := pids[strings.TrimPrefix(id, "containerd://")]; pid > 0 {
				out[name] = pid
			}
		}
	}
	return out
}

// search reports whether a process's container has a text in its environment or a file, as its root sees them.
func search(t *testing.T, pid int, text string) bool {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root", pid)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	testkit.Must(t, err)
	args := []string{"-rqsF", "--devices=skip", "-e", text}
	for _, dir := range []string{"apis", "etc", "run", "var", "tmp", "code", "runs", "home", "skills", "packages", "dev/shm"} {
		args = append(args, filepath.Join(root, dir))
	}
	err = exec.CommandContext(t.Context(), "grep", args...).Run() //nolint:gosec // constants and a pid
	return strings.Contains(string(environ), text) || err == nil
}

// doors: nothing but mcp-server's certificate opens a sandbox's ports, and code does not reach them at all.
func doors(t *testing.T, w *world.World) {
	ctx := t.Context()
	ip, err := world.Kube(ctx, "", "get", "pods", "-n", w.Cluster.Sandboxes, "-o", "jsonpath={.items[0].status.podIP}")
	testkit.Must(t, err)
	for role, secret := range map[string][2]string{"mcp-server": {w.Cluster.Server, "cf-mcp-server-tls"}, "sandbox": {w.Cluster.Sandboxes, "cf-sandbox-tls"}} {
		id, done, err := w.Cluster.Identity(ctx, secret[0], secret[1])
		testkit.Must(t, err)
		defer done()
		c := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: dialer(id, ip+":8443")})
		_, err = c.Health(ctx)
		if (err == nil) != (role == "mcp-server") {
			t.Errorf("with the certificate of %s: %v", role, err)
		}
		_ = c.Close()
	}
	r := w.MustExecute(t, fmt.Sprintf(`for (const at of [%q, "127.0.0.1", "10.77.0.2", "198.18.0.1", "169.254.169.254", "10.96.0.1", "10.99.1.1"]) {
  for (const port of [8443, 844, 6443, 10250]) {
    try { (await Deno.connect({ hostname: at, port })).close(); console.log("open", at, port); } catch (e) { if (!(e instanceof Deno.errors.ConnectionRefused) && !(e instanceof Deno.errors.NotCapable)) console.log(at, port, String(e)); }
  }
}`, ip))
	if r.Out != "" {
		t.Errorf("%s%s", r.Out, r.Notes)
	}
	// A port that code may listen on could be taken while the proxy restarts.
	control, err := world.Kube(ctx, "", "get", "service", "cf-sandbox", "-n", w.Cluster.Sandboxes, "-o", `jsonpath={.spec.ports[?(@.name=="control")].port}`)
	testkit.Must(t, err)
	if r := w.MustPython(t, fmt.Sprintf(`import socket
for at, port in ("127.0.0.1", %s), ("127.0.0.1", 5000), ("10.77.0.2", 443):
    try:
        socket.socket().bind((at, port))
        print("free")
    except OSError as e:
        print(e.strerror)`, control)); r.Out != "Permission denied\nfree\nPermission denied\n" {
		t.Errorf("listening on port %s: %s%s", control, r.Out, r.Notes)
	}
}

func dialer(id *mtls.Identity, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return id.Dial(ctx, address, mtls.Sandbox) }
}

// admission: in the namespace of the sandboxes nothing else can be started, nor a sandbox with more rights.
func admission(t *testing.T, w *world.World) {
	ctx := t.Context()
	ours, err := world.Kube(ctx, "", "get", "pods", "-n", w.Cluster.Sandboxes, "-o", "jsonpath={.items[0].spec.containers[0].image}")
	testkit.Must(t, err)
	text, err := world.Kube(ctx, "", "get", "deployment", "cf-sandbox", "-n", w.Cluster.Sandboxes, "-o", "jsonpath={.spec.template}")
	testkit.Must(t, err)
	for name, change := range map[string]func(spec map[string]any, main map[string]any){
		"":                func(map[string]any, map[string]any) {},
		"another image":   func(_, main map[string]any) { main["image"] = "codeforge.local/pause:1" },
		"another program": func(_, main map[string]any) { main["command"] = []string{"/bin/sh"} },
		"a program of the kubelet's": func(_, main map[string]any) {
			main["startupProbe"] = map[string]any{"exec": map[string]any{"command": []string{"/bin/sh", "health"}}}
		},
		"NET_ADMIN": func(_, main map[string]any) { add(main, "NET_ADMIN") },
		"SYS_ADMIN": func(_, main map[string]any) { add(main, "SYS_ADMIN") },
		"the node's network": func(spec, _ map[string]any) {
			spec["hostNetwork"] = true
			delete(spec["securityContext"].(map[string]any), "sysctls") // which the API server refuses then
		},
		"a file of the node": func(spec, _ map[string]any) {
			spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": "x", "hostPath": map[string]any{"path": "/"}})
		},
		"a service account": func(spec, _ map[string]any) { spec["automountServiceAccountToken"] = true },
		"shared processes":  func(spec, _ map[string]any) { spec["shareProcessNamespace"] = true },
	} {
		var template map[string]any
		testkit.Must(t, json.Unmarshal([]byte(text), &template))
		spec := template["spec"].(map[string]any)
		change(spec, spec["containers"].([]any)[0].(map[string]any))
		pod, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}, "spec": spec})
		testkit.Must(t, err)
		_, err = world.Kube(ctx, string(pod), "create", "--dry-run=server", "-n", w.Cluster.Sandboxes, "-f", "-")
		switch {
		case name == "" && err != nil:
			t.Errorf("our own pod (%s): %v", ours, err)
		case name != "" && (err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func add(container map[string]any, capability string) {
	c := container["securityContext"].(map[string]any)["capabilities"].(map[string]any)
	c["add"] = append(c["add"].([]any), capability)
}

// noWrites: a run is not a request to the API server, by its own audit log.
func noWrites(t *testing.T, w *world.World) {
	w.MustExecute(t, fetches("warm", 0), "httpbin")
	account := "system:serviceaccount:" + w.Cluster.Server + ":cf-mcp-server"
	var from []event
	for quiet, end := time.Now(), time.Now().Add(time.Minute); time.Since(quiet) < 5*time.Second; time.Sleep(time.Second) {
		now := audited(t) // until what became of the start has been written
		if len(concerning(w, account, now[len(from):])) > 0 {
			quiet = time.Now()
		}
		from = now
		if time.Now().After(end) {
			t.Fatal("the release is never quiet")
		}
	}
	watched := false
	for _, e := range from {
		watched = watched || e.User.Username == account && e.Verb == "watch" && strings.Contains(e.URI, "/endpointslices")
	}
	if !watched {
		t.Fatal("the audit log does not even tell of mcp-server's watch: nothing would be shown")
	}
	for i := range 30 {
		if r := w.MustExecute(t, fetches(fmt.Sprint("quiet", i), 0), "httpbin"); r.IsError {
			t.Fatal(r.Out)
		}
	}
	asked := concerning(w, account, audited(t)[len(from):])
	for _, e := range asked {
		t.Logf("%s %s by %s", e.Verb, e.URI, e.User.Username)
		if !slices.Contains([]string{"get", "list", "watch"}, e.Verb) {
			t.Error("that is a write")
		}
	}
	t.Logf("%d requests to the API server during 30 runs", len(asked))
}

// concerning are the requests of mcp-server's account, and all about the sandboxes' namespace.
func concerning(w *world.World, account string, list []event) (out []event) {
	for _, e := range list {
		if e.User.Username == account || strings.Contains(e.URI, w.Cluster.Sandboxes) {
			out = append(out, e)
		}
	}
	return out
}

// event is a line of the audit log.
type event struct {
	Verb string `json:"verb"`
	URI  string `json:"requestURI"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
}

func audited(t *testing.T) (list []event) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(os.Getenv("CODEFORGE_K8S"), "run/log/audit.log"))
	testkit.Must(t, err)
	for line := range strings.Lines(string(data)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			list = append(list, e)
		}
	}
	return list
}

// mayOnlyFind: mcp-server's account can follow EndpointSlices of the sandboxes, and nothing else.
func mayOnlyFind(t *testing.T, w *world.World) {
	as := "--as=system:serviceaccount:" + w.Cluster.Server + ":cf-mcp-server"
	for what, want := range map[string]string{
		"watch endpointslices.discovery.k8s.io": "yes", "create pods": "no", "get pods": "no", "get secrets": "no", "patch pods": "no",
		"create pods/exec": "no", "update endpointslices.discovery.k8s.io": "no",
	} {
		out, _ := world.Kube(t.Context(), "", append(append([]string{"auth", "can-i"}, strings.Fields(what)...), as, "-n", w.Cluster.Sandboxes)...)
		if strings.TrimSpace(out) != want {
			t.Errorf("may it %s: %q", what, out)
		}
	}
}

// helmTest runs the chart's own test.
func helmTest(t *testing.T, w *world.World) {
	named(t.Context(), w, w.Cluster.Server)
	out, err := world.Helm(t.Context(), "test", "cf", "-n", w.Cluster.Server, "--timeout=2m", "--logs")
	if err != nil || !strings.Contains(out, "reaches nothing by itself") {
		t.Errorf("%v\n%s", err, out)
	}
}
