package doctor

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestOutside: if CodeForge runs, its proxy checks the hosts and shows its certificate, since this machine may know
// neither: host.docker.internal is a name of the proxy's container.
func TestOutside(t *testing.T) {
	ca, err := testca.New("people")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := proxyapi.Diagnosis{CA: string(ca.PEM())}
		if r.URL.Path != operatorapi.Prefix+"diagnosis" {
			rpc.WriteError(w, http.StatusNotFound, r.URL.Path)
			return
		}
		if skew := int64(600_000); r.URL.Query().Get("offline") == "false" {
			d.Hosts = []proxyapi.HostCheck{
				{Host: "host.docker.internal:3000", Status: 401, Milliseconds: 3, Plain: true, SkewMilliseconds: &skew},
				{Host: "a.test", Code: "upstream_certificate", Problem: "not verified", Hint: "name its authority"},
				{Host: "b.test", Code: "upstream_timeout", Problem: "late"},
			}
		}
		rpc.WriteAnswer(w, http.StatusOK, d)
	}))
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) //nolint:noctx // at once
	if err != nil {
		t.Fatal(err)
	}
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	text := func(offline bool) string {
		var b strings.Builder
		for _, f := range checkOutside(t.Context(), Config{Server: mcpclient.Config{Socket: socket}, Offline: offline}) {
			fmt.Fprintf(&b, "%s|%s|%s|%s\n", f.Check, f.Status, f.Text, f.Fix)
		}
		return b.String()
	}
	got := text(false)
	for _, want := range []string{
		"certificate authority|warning|expires on ", "host host.docker.internal:3000|ok|answers (401, 3 ms, plain HTTP)",
		"host a.test|failed|not verified|name its authority", "host b.test|warning|late", "clock|failed|this machine's clock is off by 10m0s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
	if got := text(true); !strings.Contains(got, "hosts|skipped|not checked") || !strings.Contains(got, "certificate authority|") {
		t.Error(got)
	}
	srv.Close()
	if got := text(false); !strings.HasPrefix(got, "hosts|failed|") {
		t.Error(got)
	}
	for _, c := range []Config{{}, {Server: mcpclient.Config{Socket: socket}, OwnAPIs: true}} {
		if found := checkOutside(t.Context(), c); len(found) != 1 || found[0].Status != Skip {
			t.Errorf("without a proxy that knows the APIs: %+v", found)
		}
	}
}

// TestContainerRuns: only a container that runs is ok, and the one that checks the settings and ends.
func TestContainerRuns(t *testing.T) {
	for status, want := range map[string]bool{
		"Up 3 minutes (healthy)": true, "Up 2 seconds (health: starting)": true, "Up 3 minutes (unhealthy)": false, "Up 1 hour (Paused)": false,
		"Created": false, "Exited (0) 3 minutes ago": false, "Exited (1) 3 minutes ago": false, "Restarting (1) 2 seconds ago": false,
		"Dead": false, "Removal In Progress": false, "": false,
	} {
		if got := isContainerHealthy("codeforge-mcp-server-1", status); got != want {
			t.Errorf("%s: %v", status, got)
		}
	}
	if !isContainerHealthy("codeforge-settings-1", "Exited (0) 3 minutes ago") || isContainerHealthy("codeforge-settings-1", "Exited (1) 1 minute ago") {
		t.Error("settings")
	}
}
