package peer

import (
	_ "embed" // the addon
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
)

// addon substitutes as CodeForge does: token names in request headers, credentials in responses.
//
//go:embed addon.py
var addon []byte

// ErrMissing means that mitmproxy is not installed.
var ErrMissing = errors.New("mitmproxy is not installed (on Debian: apt-get install mitmproxy)")

// MitmproxyVersion is the first line of `mitmdump --version`, or ErrMissing.
func MitmproxyVersion() (string, error) {
	out, err := exec.Command("mitmdump", "--version").Output() //nolint:noctx // ends by itself
	if err != nil {
		return "", ErrMissing
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}

// Mitmproxy starts two transparent mitmproxies, each behind a REDIRECT: one that buffers whole bodies, and one whose
// addon streams them.
func Mitmproxy(caFile string) (p *Peer, err error) {
	dir, err := os.MkdirTemp(arena.Dir, "mitmproxy-")
	if err != nil {
		return nil, err
	}
	p = &Peer{Name: "mitmproxy", Address: arena.Mitmproxy + ":443", StreamAddress: arena.Mitmproxy + ":8443", Auth: bearer}
	p.stop = func() {
		for _, q := range []*arena.Process{p.Process, p.StreamProcess} {
			if q != nil {
				q.Stop()
			}
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	pairs := make([][2]string, Standard)
	for n := range pairs {
		pairs[n][0], pairs[n][1] = credential(n)
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "addon.py")
	if err := errors.Join(os.WriteFile(script, addon, 0o600), os.WriteFile(filepath.Join(dir, "pairs.json"), text, 0o600)); err != nil {
		return nil, err
	}
	if p.Process, err = mitmdump(dir, caFile, "443", "8080", "whole"); err != nil {
		return nil, err
	}
	if p.StreamProcess, err = mitmdump(dir, caFile, "8443", "8081", "stream"); err != nil {
		return nil, err
	}
	p.Roots, err = pool(filepath.Join(dir, "mitmproxy-ca-cert.pem"))
	return p, err
}

// mitmdump starts one mitmproxy on port that gets the connections to the port from.
func mitmdump(dir, caFile, from, port, mode string) (*arena.Process, error) {
	redirect := arena.In(arena.AtMitmproxy, "iptables", "-t", "nat", "-A", "PREROUTING", "-i", "in0", "-p", "tcp", "--dport", from, "-j", "REDIRECT", "--to-ports", port)
	if out, err := redirect.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redirecting to mitmproxy: %w: %s", err, out)
	}
	cmd := arena.In(arena.AtMitmproxy, "mitmdump", "-q", "--mode", "transparent", "--listen-port", port, "-s", filepath.Join(dir, "addon.py"),
		"--set", "confdir="+dir, "--set", "flow_detail=0", "--set", "ssl_verify_upstream_trusted_ca="+caFile)
	cmd.Env = append(cmd.Env, "BENCH_PAIRS="+filepath.Join(dir, "pairs.json"), "BENCH_MODE="+mode, "HOME="+dir)
	p, err := arena.Start(cmd, true)
	if err != nil {
		return nil, err
	}
	err = p.Await(30*time.Second, func() bool {
		if !exists(filepath.Join(dir, "mitmproxy-ca-cert.pem")) {
			return false
		}
		// Through the redirect: a transparent mitmproxy that gets a connection to its own port connects to itself in a loop.
		c, err := net.DialTimeout("tcp", arena.Mitmproxy+":"+from, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}
