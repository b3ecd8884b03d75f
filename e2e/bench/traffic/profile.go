package traffic

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/e2e/bench/load"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// profileSeconds is how long one profile lasts.
const profileSeconds = 5

// profiles writes CPU profiles of CodeForge's proxy under the loads of the table to a directory. They are taken
// separately from the measurements, which they would slow down.
func (m *measurement) profiles(ctx context.Context, dir string) error {
	p, _, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca, Profile: true})
	if err != nil {
		return err
	}
	defer p.Close()
	nothing := func() {}
	loads := map[string]func() error{
		"small":  func() error { _, err := load.Keep(ctx, p, "/small", 32, m.cfg.Unit, nothing); return err },
		"json":   func() error { _, err := load.Keep(ctx, p, "/json?size=100000", 2, m.cfg.Unit, nothing); return err },
		"tls":    func() error { _, err := load.Fresh(ctx, p, "/small", 8, m.cfg.Unit); return err },
		"binary": func() error { _, err := load.Download(ctx, p, p.Address, "bytes", 64<<20, nothing); return err },
		"text":   func() error { _, err := load.Download(ctx, p, p.Address, "json", 64<<20, nothing); return err },
	}
	for name, f := range loads {
		log.Printf("profile: %s", name)
		done := make(chan error, 1)
		go func() { done <- profile(ctx, p.Control, filepath.Join(dir, name+".pprof")) }()
		for running := true; running; {
			if err := f(); err != nil {
				return err
			}
			select {
			case err := <-done:
				if err != nil {
					return err
				}
				running = false
			default:
			}
		}
	}
	return nil
}

// profile asks the control socket for one.
func profile(ctx context.Context, socket, path string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://proxy/debug/pprof/profile?seconds=%d", profileSeconds), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for a profile: status %d", resp.StatusCode)
	}
	f, err := os.Create(path) //nolint:gosec // the user's
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}
