package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// documented follows docs/start/kubernetes.md from nothing to the first run, line by line. Only the registry and the tag are
// put in, and smaller requests, because the node has two cores; and claude is a script that prints what it is told.
func documented(t *testing.T, w *world.World) {
	root, err := world.Root()
	testkit.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/start/kubernetes.md"))
	testkit.Must(t, err)
	_, lines, _ := strings.Cut(string(text), "```sh\n")
	lines, _, found := strings.Cut(lines, "```")
	if !found || !strings.Contains(lines, "helm install") {
		t.Fatal("docs/start/kubernetes.md has no lines to follow")
	}
	lines = strings.NewReplacer("REGISTRY/codeforge", "docker.io/codeforge", "image.tag=TAG", "image.tag=k8s,"+
		"sandbox.resources.requests.cpu=50m,sandbox.proxyResources.requests.cpu=50m").Replace(lines)

	node, dir := os.Getenv("CODEFORGE_K8S"), t.TempDir()
	testkit.Must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))
	example, err := os.ReadFile(filepath.Join(root, "apis/stripe/config.json.example"))
	testkit.Must(t, err)
	for name, text := range map[string]string{
		"config.json": string(example),
		"kubectl":     "#!/bin/sh\nexec " + node + "/bin/hk kubectl \"$@\"\n",
		"claude":      "#!/bin/sh\nprintf '%s\\n' \"$@\" >claude.said\n",
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)) //nolint:gosec // programs of this test
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if _, err := world.Helm(ctx, "uninstall", "cf", "-n", "codeforge", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
		_, _ = world.Kube(ctx, "", "delete", "namespace", "codeforge", "codeforge-sandboxes", "--ignore-not-found", "--wait=false")
	}()
	go named(t.Context(), w, "codeforge")

	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euxc", lines+"\nwait\n") //nolint:gosec // our own documentation
	var said strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+filepath.Join(node, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(node, "run/admin.kubeconfig"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the port-forward too
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var told []byte
	for told == nil {
		select {
		case err := <-ended:
			t.Fatalf("%v\n%s", err, said.String())
		case <-time.After(200 * time.Millisecond):
			told, _ = os.ReadFile(filepath.Join(dir, "claude.said"))
		}
	}
	url := regexp.MustCompile(`(?m)^http://localhost:\d+/mcp$`).FindString(string(told))
	token := regexp.MustCompile(`(?m)^Authorization: Bearer (\S+)$`).FindSubmatch(told)
	if url == "" || token == nil {
		t.Fatalf("claude was told %q", told)
	}
	theirs := *w
	theirs.URL, theirs.Token = url, string(token[1])
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) { // until the port is there
		resp, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/healthz") //nolint:noctx,gosec // of this machine
		if err == nil {
			_ = resp.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	session, err := theirs.Connect(ctx)
	testkit.Must(t, err)
	r, err := theirs.Do(ctx, session, world.Run{Code: `console.log(6 * 7, (await fetch("https://api.stripe.com/v1/charges", {method: "POST"})).status)`})
	if err != nil || r.Out != "42 403\n" { // the API is there, with its restricted methods
		t.Errorf("%v, out %q, notes %q", err, r.Out, r.Notes)
	}
	_ = session.Close()
	cancel()
	<-ended
}

// named gives the test pod of helm the service's address, when there is one: the node has no DNS of its own.
func named(ctx context.Context, w *world.World, namespace string) {
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		out, err := world.Kube(ctx, "", "get", "service", "cf-mcp", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
		if ip, bad := netip.ParseAddr(out); err == nil && bad == nil {
			w.Upstream.(*upstream.Server).Name(fmt.Sprint("cf-mcp.", namespace), ip)
			return
		}
	}
}
