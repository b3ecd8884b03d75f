package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestNamespaces checks that the tests' names resolve, that the upstream serves them with verified TLS, and that it
// records requests.
func TestNamespaces(t *testing.T) {
	if CurrentMode() == Docker {
		t.Skip("embedded mode only: Docker tests use no namespaces of their own")
	}
	s, ca, err := startUpstream(upstream.Embedded, map[string]string{"X": "known-secret"}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range []string{upstream.HTTPBin, upstream.H2, upstream.Evil} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.CertPool()}, ForceAttemptHTTP2: true}}
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/x/echo?t="+name+"&form=hex-upper&enc=gzip&place=headers-many", nil)
		req.Header.Set("Authorization", "Bearer sesame")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		if got := resp.Header["X-Echo"]; len(got) != 20 || got[3] != "3 736573616D65" {
			t.Errorf("%s: X-Echo = %q", name, got)
		}
		seen := s.Seen(name)
		if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer sesame" || seen[0].Name != name {
			t.Errorf("%s: seen %+v", name, seen)
		}
		wires := s.Wires(name)
		if len(wires) != 1 || len(wires[0].Bytes) == 0 {
			t.Errorf("%s: wires %+v", name, wires)
		}
	}
	if _, err := net.DefaultResolver.LookupHost(ctx, "nowhere.test"); err == nil {
		t.Error("nowhere.test resolves")
	}
	if ifs, _ := net.Interfaces(); len(ifs) != 2 {
		t.Errorf("network devices: %v, want lo and %s", ifs, wire)
	}
}

// TestLeftovers checks that Leftovers finds a process and a socket, and nothing when there is nothing.
func TestLeftovers(t *testing.T) {
	if CurrentMode() == Docker {
		t.Skip("embedded mode only")
	}
	before := TakeSnapshot()
	if left := before.Leftovers(); len(left) != 0 {
		t.Fatalf("leftovers of nothing: %v", left)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A process that has just been started has no command line for a moment.
	testkit.WaitFor(t, func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		return strings.HasPrefix(string(text), "sleep")
	})
	l, err := net.Listen("unix", "@codeforge-leftover")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(before.now(), "\n")
	_ = l.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, want := range []string{"sleep 600", "@codeforge-leftover"} {
		if !strings.Contains(all, want) {
			t.Errorf("leftovers %q do not show %q", all, want)
		}
	}
	if left := before.Leftovers(); len(left) != 0 {
		t.Errorf("leftovers after the end: %v", left)
	}
}
