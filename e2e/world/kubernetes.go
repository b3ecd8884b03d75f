package world

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The environment of tests in Kubernetes: the folder of the node's programs (.ci/k8s/build), and the tag of the images.
const (
	clusterVar = "CODEFORGE_K8S"
	tagVar     = "CODEFORGE_TAG"
)

// clusterNet is the network namespace of the node that .ci/k8s/up starts.
const clusterNet = "/run/netns/codeforge-k8s"

// insideCluster runs this test binary again in the node's network namespace, where services and pods can be reached. It
// adds the addresses of the upstream.
func insideCluster(root string) int {
	if os.Geteuid() != 0 {
		return cannot(errors.New("a Kubernetes node needs root"))
	}
	if _, err := os.Stat(filepath.Join(clusterDir(), "k")); err != nil {
		return cannot(errors.New("there is no node: .ci/k8s/build and .ci/k8s/up make one"))
	}
	setUp := `ip link show upstream >/dev/null 2>&1 || ip link add upstream type bridge; ip link set upstream up
		for a in ` + upstream.Embedded.Private.String() + " " + upstream.Embedded.Public.String() + `; do ip addr replace $a/32 dev upstream; done
		exec "$0" "$@"`
	args := append([]string{"--net=" + clusterNet, "--", "sh", "-ec", setUp}, os.Args...)
	cmd := exec.Command("nsenter", args...) //nolint:gosec,noctx // ourselves, until we end
	cmd.Env = append(os.Environ(), stageVar+"=tests", rootVar+"="+root)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return cannot(err)
	}
	return wait(cmd)
}

func clusterDir() string { return os.Getenv(clusterVar) }

// Kube runs kubectl with input, if there is any, and returns what it prints.
func Kube(ctx context.Context, input string, args ...string) (string, error) {
	return program(ctx, input, filepath.Join(clusterDir(), "bin", "hk"),
		append([]string{"kubectl", "--kubeconfig=" + kubeconfig()}, args...)...)
}

// ImageTag is the tag of the images.
func ImageTag() string { return cmp.Or(os.Getenv(tagVar), "k8s") }

// Helm runs helm.
func Helm(ctx context.Context, args ...string) (string, error) {
	return program(ctx, "", filepath.Join(clusterDir(), "bin", "helm"), append([]string{"--kubeconfig=" + kubeconfig()}, args...)...)
}

func kubeconfig() string { return filepath.Join(clusterDir(), "run", "admin.kubeconfig") }

func program(ctx context.Context, input, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // of the node
	var out, problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problem
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, problem.String())
	}
	return out.String(), nil
}

// Cluster is a release of the chart.
type Cluster struct {
	// Server and Sandboxes are the namespaces.
	Server, Sandboxes string
	// Release is the release's name.
	Release string
	// Shared means that all sandboxes share a proxy.
	Shared bool
	values string // the path of the file with the chart's values
	root   string
}

// startKubernetes installs the chart, with the upstream in this process.
func (w *World) startKubernetes(cfg Config) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if cfg.Interpreter != "" && cfg.Interpreter != "intruder" || cfg.Registry || cfg.Hosts != nil {
		return &MissingError{"not in Kubernetes: the registry, hosts of a test, an interpreter that is not the intruder"}
	}
	up, ca, err := clusterUpstream(w)
	if err != nil {
		return err
	}
	w.Upstream = up
	root, err := Root()
	if err != nil {
		return errors.Join(err, up.Close())
	}
	id := strings.ToLower(rand.Text()[:6])
	c := &Cluster{Server: "cf-" + id, Sandboxes: "cf-" + id + "-sandboxes", Release: "cf", Shared: cfg.Shared, root: root}
	w.Cluster = c
	w.logs = c.logs
	w.stop = func() error {
		end, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_, gone := Helm(end, "uninstall", c.Release, "-n", c.Server, "--ignore-not-found")
		_, err := Kube(end, "", "delete", "namespace", c.Server, c.Sandboxes, "--ignore-not-found", "--wait=false")
		_, now := Kube(end, "", "delete", "pods", "--all", "-n", c.Sandboxes, "--grace-period=1", "--ignore-not-found")
		return errors.Join(gone, err, now, up.Close(), os.RemoveAll(w.Dir))
	}
	defer func() {
		if err != nil {
			w.logs = func() string { return "" }
			err = errors.Join(err, w.Close())
		}
	}()
	if err := w.install(ctx, cfg, ca); err != nil {
		return fmt.Errorf("%w\n%s", err, c.describe())
	}
	service, err := Kube(ctx, "", "get", "service", "cf-mcp", "-n", c.Server, "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return err
	}
	address, err := Forward("127.0.0.1:0", service+":8080")
	if err != nil {
		return err
	}
	w.URL = "http://" + address + "/mcp"
	w.control = func() *proxyapi.Client { return c.control() }
	return nil
}

func clusterUpstream(w *World) (*upstream.Server, *testca.CA, error) {
	addrs := upstream.Embedded
	ca, err := testca.New("CodeForge e2e upstream")
	if err != nil {
		return nil, nil, err
	}
	private, public := addrs.Private.String(), addrs.Public.String()
	up, err := upstream.Start(upstream.Config{
		CA: ca, Addresses: addrs, Known: known(w.Canaries),
		TLS:  append([]string{private + ":443", public + ":443"}, at(private, upstream.OtherTLS)...),
		HTTP: append([]string{private + ":80", public + ":80"}, at(private, upstream.OtherHTTP)...),
		DNS:  []string{private + ":53"},
	})
	return up, ca, err
}

// install makes the namespaces and the APIs' Secrets, and installs the chart.
func (w *World) install(ctx context.Context, cfg Config, ca *testca.CA) error {
	apis := cfg.APIs
	if apis == nil {
		apis = Standard(w.Canaries, upstream.Embedded.Private.String()+"/32", "ca.pem")
	}
	if cfg.Change != nil {
		apis = cfg.Change(apis)
	}
	var err error
	if w.Dir, err = NewDir(Self, apis, nil); err != nil {
		return err
	}
	c := w.Cluster
	for _, args := range [][]string{
		{"create", "namespace", c.Server},
		{"label", "namespace", c.Server, "pod-security.kubernetes.io/enforce=restricted"},
		{"create", "namespace", c.Sandboxes},
		{"label", "namespace", c.Sandboxes, "pod-security.kubernetes.io/enforce=" + c.level()},
	} {
		if _, err := Kube(ctx, "", args...); err != nil {
			return err
		}
	}
	w.Token = cfg.Env["MCP_AUTH_TOKEN"]
	if w.Token == "" {
		w.Token = rand.Text()
	}
	if _, err := Kube(ctx, "", "create", "secret", "generic", "token", "-n", c.Server, "--from-literal=token="+w.Token); err != nil {
		return err
	}
	tenants := ""
	if path := cfg.Env["MCP_TOKENS_FILE"]; path != "" {
		tenants = "tenants"
		if _, err := Kube(ctx, "", "create", "secret", "generic", tenants, "-n", c.Server, "--from-file=tenants.json="+path); err != nil {
			return err
		}
	}
	secrets := map[string]string{}
	servers := 0
	for _, a := range apis {
		if a.Config["mcp"] != nil {
			servers = 8
		}
		folder := filepath.Join(w.Dir, "apis", a.Name)
		if err := os.WriteFile(filepath.Join(folder, "ca.pem"), ca.PEM(), 0o600); err != nil {
			return err
		}
		name := "api-" + strings.ReplaceAll(a.Name, "_", "-")
		if _, err := Kube(ctx, "", "create", "secret", "generic", name, "-n", c.Sandboxes, "--from-file="+folder); err != nil {
			return err
		}
		secrets[a.Name] = name
	}
	settings := map[string]string{"NO_COLOR": "1"} // kubectl exec passes no variables on
	for k, v := range cfg.Env {
		if k != "MCP_AUTH_TOKEN" && k != "MCP_TOKENS_FILE" && k != "SANDBOX_PROGRAMS" {
			settings[k] = v
		}
	}
	if cfg.TrustCA {
		settings["UPSTREAM_CA_FILE"] = "/apis/httpbin/ca.pem"
	}
	tag := ImageTag()
	switch { // images that .ci/k8s/images made for this
	case cfg.Interpreter != "":
		tag += "-intruder"
	case cfg.Env["SANDBOX_PROGRAMS"] != "":
		tag += "-programs"
	}
	values, err := json.Marshal(map[string]any{
		"egress": c.egress(),
		"image":  map[string]any{"tag": tag, "pullPolicy": "Never"}, "apis": secrets, "settings": settings,
		"mcp": map[string]any{"tokenSecret": "token", "tenantsSecret": tenants, "replicas": max(1, cfg.Replicas)},
		"sandbox": map[string]any{
			"slots": cfg.Slots, "replicas": max(1, cfg.Pods), "servers": servers, "createNamespace": false, "timeoutMax": 120,
			"resources": map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "64Mi"}, "limits": map[string]any{"memory": "4Gi"}},
		},
	})
	if err != nil {
		return err
	}
	c.values = filepath.Join(w.Dir, "values.json")
	if err := os.WriteFile(c.values, values, 0o600); err != nil {
		return err
	}
	return c.Upgrade(ctx)
}

// SharedAddress is the address of a shared proxy's service.
const SharedAddress = "10.96.77.77"

// egress are the chart's values of that name. The node's network does not enforce NetworkPolicies, so sandboxes must
// not wait for that.
func (c *Cluster) egress() map[string]any {
	if !c.Shared {
		return map[string]any{}
	}
	return map[string]any{"mode": "shared", "clusterIP": SharedAddress, "requireNetworkPolicy": false}
}

// level is the PodSecurity level that the sandboxes' namespace enforces.
func (c *Cluster) level() string {
	if c.Shared {
		return "restricted"
	}
	return "privileged"
}

// Upgrade installs the chart, or applies changed values, and waits until everything is ready.
func (c *Cluster) Upgrade(ctx context.Context, more ...string) error {
	chart := filepath.Join(c.root, "deploy", "helm", "codeforge")
	args := []string{"upgrade", "--install", c.Release, chart, "-n", c.Server, "-f", c.values, "--wait", "--timeout=4m"}
	_, err := Helm(ctx, append(args, more...)...)
	return err
}

// Pods are the names of the sandboxes' pods that run.
func (c *Cluster) Pods(ctx context.Context) ([]string, error) {
	out, err := Kube(ctx, "", "get", "pods", "-n", c.Sandboxes, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")
	return strings.Fields(out), err
}

// exec runs the command line in a pod of mcp-server, on a terminal or in a pipe, and returns what it prints.
func (c *Cluster) exec(ctx context.Context, terminal bool, args []string) (string, error) {
	line := []string{"kubectl", "--kubeconfig=" + kubeconfig(), "exec", "-n", c.Server, "deployment/" + c.Release + "-mcp-server", "--"}
	if terminal {
		line = slices.Insert(line, 3, "--stdin", "--tty")
	}
	p := &Process{out: &testkit.Buffer{}}
	p.Cmd = exec.CommandContext(ctx, filepath.Join(clusterDir(), "bin", "hk"), append(append(line, "codeforge"), args...)...) //nolint:gosec // of the node
	p.Cmd.Stdout, p.Cmd.Stderr = p.out, p.out
	shown := func() {}
	if terminal {
		var err error
		if shown, err = onTerminal(p); err != nil {
			return "", err
		}
	}
	err := p.Cmd.Run()
	shown()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return p.Output(), err
}

// processes are the command lines in the node's pods.
func (c *Cluster) processes() (list []string, err error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		group, _ := os.ReadFile(filepath.Join(path, "cgroup")) // gone meanwhile
		if !strings.Contains(string(group), "/kubepods/") {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		list = append(list, strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " ")))
	}
	return list, err
}

// logs are the logs of all containers.
func (c *Cluster) logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	components := [][2]string{{c.Server, "mcp-server"}, {c.Sandboxes, "sandbox"}}
	if c.Shared {
		components = append(components, [2]string{c.Sandboxes, "proxy"})
	}
	for _, of := range components {
		out, err := Kube(ctx, "", "logs", "-n", of[0], "-l", "app.kubernetes.io/component="+of[1], "--all-containers", "--tail=-1",
			"--max-log-requests=50")
		if err != nil {
			fmt.Fprintln(&all, err)
		}
		all.WriteString(out)
	}
	return all.String()
}

// describe describes the pods, for a test that failed.
func (c *Cluster) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	for _, namespace := range []string{c.Server, c.Sandboxes} {
		for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "events", "--sort-by=.lastTimestamp"}} {
			out, err := Kube(ctx, "", append(args, "-n", namespace)...)
			fmt.Fprintln(&all, out, err)
		}
	}
	return all.String() + tail(c.logs(), 6000)
}

// control is a client of the first pod's proxy, or of the shared one, with mcp-server's certificate.
func (c *Cluster) control() *proxyapi.Client {
	return proxyapi.NewClientOver(func(ctx context.Context) (net.Conn, error) {
		id, done, err := c.Identity(ctx, c.Server, "cf-mcp-server-tls")
		if err != nil {
			return nil, err
		}
		defer done()
		if c.Shared {
			return id.Dial(ctx, SharedAddress+":8444", mtls.Proxy)
		}
		ip, err := Kube(ctx, "", "get", "pods", "-n", c.Sandboxes, "-o", "jsonpath={.items[0].status.podIP}")
		if err != nil {
			return nil, err
		}
		return id.Dial(ctx, ip+":844", mtls.Sandbox)
	})
}

// Identity is a certificate of the installation, from its Secret. Call done when it is no longer needed.
func (c *Cluster) Identity(ctx context.Context, namespace, secret string) (id *mtls.Identity, done func(), err error) {
	text, err := Kube(ctx, "", "get", "secret", secret, "-n", namespace, "-o", "json")
	if err != nil {
		return nil, nil, err
	}
	var s struct {
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "identity-")
	if err != nil {
		return nil, nil, err
	}
	for name, data := range s.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	if err == nil {
		id, err = mtls.Load(dir)
	}
	return id, func() { _ = os.RemoveAll(dir) }, err
}

// Forward forwards connections to an address, as kubectl port-forward does, until the process ends. It returns the
// address at which it listens.
func Forward(at, to string) (address string, err error) {
	l, err := net.Listen("tcp4", at) //nolint:noctx // until the process ends
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go forward(c, to)
		}
	}()
	return l.Addr().String(), nil
}

func forward(c net.Conn, to string) {
	defer c.Close()
	other, err := net.Dial("tcp4", to) //nolint:noctx // it ends with the test
	if err != nil {
		return
	}
	defer other.Close()
	go func() {
		_, _ = io.Copy(other, c)
		_ = other.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, other)
}
