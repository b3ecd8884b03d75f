package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestChart: with whatever values, the chart has no mistake that helm lint finds, and everything in it is as the API
// server's schemas say. It needs helm and kubeconform, and no node.
func TestChart(t *testing.T) {
	if world.CurrentMode() != world.Kubernetes {
		t.Skip("of Kubernetes alone")
	}
	root, err := world.Root()
	testkit.Must(t, err)
	chart, node := filepath.Join(root, "deploy/helm/codeforge"), os.Getenv("CODEFORGE_K8S")
	run := func(input, program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(node, "bin", program), args...) //nolint:gosec // of the node
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("", "helm", "lint", "--strict", "--kube-version=1.34.0", chart); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for name, values := range map[string][]string{
		"defaults":     nil,
		"many":         {"mcp.replicas=3", "sandbox.replicas=20", "apis.stripe=stripe-api", "apis.git_hub=github-api", "image.pullSecrets={one}"},
		"a database":   {"database.secret=db", "database.caConfigMap=ca", "egress.database.secret=proxies", "egress.database.caConfigMap=ca"},
		"autoscaling":  {"sandbox.autoscaling.enabled=true"},
		"cert-manager": {"tls.source=certManager", "tls.certManager.issuerRef.name=ours"},
		"monitored":    {"serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"},
		"a ledger":     {"settings.AUDIT_SIZE=1800M"},
		"packages":     {"sandbox.packages=text", "apis.stripe=stripe-api"},
		"placed":       {"sandbox.nodeSelector.pool=sandboxes", "sandbox.tolerations[0].operator=Exists", "sandbox.runtimeClassName=gvisor", "mcp.nodeSelector.pool=x"},
		"shared":       {"egress.mode=shared", "egress.clusterIP=10.96.77.77", "egress.ports={8080}", "apis.stripe=stripe-api", "sandbox.replicas=80", "egress.database.secret=proxies", "sandbox.packages=text"},
		"shared, by cert-manager": {"egress.mode=shared", "egress.clusterIP=10.96.77.77", "egress.requireNetworkPolicy=false", "tls.source=certManager",
			"tls.certManager.issuerRef.name=ours"},
		"bare": {"networkPolicy.enabled=false", "admissionPolicy.enabled=false", "sandbox.createNamespace=false", "tls.source=existing", "mcp.tokenSecret=mine"},
	} {
		args := []string{"template", "cf", chart, "-n", "codeforge", "--kube-version=1.34.0"}
		for _, v := range values {
			args = append(args, "--set", v)
		}
		text, err := run("", "helm", args...)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		out, err := run(text, "kubeconform", "-strict", "-summary", "-skip=ServiceMonitor,Certificate", "-schema-location", filepath.Join(node, "schemas", "{{ .ResourceKind }}{{ .KindSuffix }}.json"))
		if err != nil || !strings.Contains(out, "Invalid: 0, Errors: 0") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for name, c := range map[string]struct{ values, says string }{
		"MCP servers with several replicas": {"mcp.replicas=2,sandbox.servers=4", "sandbox.servers needs mcp.replicas: 1"},
		"packages beside MCP servers":       {"sandbox.servers=1,sandbox.packages=text", "sandbox.servers must be 0"},
		"an unknown source of certificates": {"tls.source=none", "want chart, certManager or existing"},
		"an unknown mode of egress":         {"egress.mode=none", "want sidecar or shared"},
		"a shared proxy without an address": {"egress.mode=shared", "needs egress.clusterIP"},
		"a shared proxy with MCP servers":   {"egress.mode=shared,egress.clusterIP=10.96.77.77,sandbox.servers=1", "sandbox.servers must be 0"},
		"a shared proxy of too many pods":   {"egress.mode=shared,egress.clusterIP=10.96.77.77,sandbox.replicas=81", "knows 100 pods"},
		"slots that are no number":          {"sandbox.slots=abc", "slots"},
		"a value that does not exist":       {"sandbox.slot=4", "slot"},
		"a ledger larger than its volume":   {"settings.AUDIT_SIZE=2g", "may be 1800m at most"},
	} {
		out, err := run("", "helm", "template", "cf", chart, "--kube-version=1.34.0", "--set", c.values)
		if err == nil || !strings.Contains(out+err.Error(), c.says) {
			t.Errorf("%s: %v, want %q:\n%.300s", name, err, c.says, out)
		}
	}
}
