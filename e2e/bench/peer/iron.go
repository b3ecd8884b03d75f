package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/internal/testca"
)

// The ports of iron-proxy: where the client connects, and where its REDIRECT leads.
const (
	ironFrom = "9443"
	ironPort = "9444"
)

// Iron starts iron-proxy behind a REDIRECT. It puts the same eight credentials into request headers, and does not take
// them out of responses.
func Iron(binary, caFile string) (p *Peer, err error) {
	dir, err := os.MkdirTemp(arena.Dir, "iron-")
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	p = &Peer{Name: "iron-proxy", Address: arena.Mitmproxy + ":" + ironFrom, Auth: bearer, Echoes: true}
	p.StreamAddress = p.Address
	p.stop = func() {
		if p.Process != nil {
			p.Process.Stop()
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	authority, err := testca.New("iron-proxy")
	if err != nil {
		return nil, err
	}
	config, env := ironConfig(dir)
	if err := errors.Join(authority.Save(dir), os.WriteFile(at("iron.yaml"), []byte(config), 0o600)); err != nil {
		return nil, err
	}
	redirect := arena.In(arena.AtMitmproxy, "iptables", "-t", "nat", "-A", "PREROUTING", "-i", "in0", "-p", "tcp", "--dport", ironFrom,
		"-j", "REDIRECT", "--to-ports", ironPort)
	if out, err := redirect.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redirecting to iron-proxy: %w: %s", err, out)
	}
	cmd := arena.In(arena.AtMitmproxy, binary, "-config", at("iron.yaml"))
	cmd.Env = append(cmd.Env, append(env, "SSL_CERT_FILE="+caFile)...)
	// Its log lines have somewhere to go, as CodeForge's have.
	if p.Process, err = arena.Start(cmd, os.Getenv("BENCH_LOUD") != ""); err != nil {
		return nil, err
	}
	p.StreamProcess, p.Roots = p.Process, authority.CertPool()
	err = p.Process.Await(30*time.Second, func() bool {
		c, err := net.DialTimeout("tcp", p.Address, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return p, err
}

// ironConfig is iron-proxy's configuration, and the environment with the credentials that it names.
func ironConfig(dir string) (config string, env []string) {
	var b strings.Builder
	fmt.Fprintf(&b, `dns: {enabled: false}
proxy: {https_listen: ":%s", http_listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
tls: {ca_cert: %q, ca_key: %q}
log: {level: info}
transforms:
- name: allowlist
  config: {domains: [%q]}
- name: secrets
  config:
    secrets:
`, ironPort, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), origin.Host)
	for n := range Standard {
		name, value := credential(n)
		fmt.Fprintf(&b, "    - {source: {type: env, var: %s}, replace: {proxy_value: %s, match_headers: [Authorization]}, "+
			"rules: [{host: %q}]}\n", name, name, origin.Host)
		env = append(env, name+"="+value)
	}
	return b.String(), env
}
