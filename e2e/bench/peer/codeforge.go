package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// CodeForgeConfig describes the proxy to start. The zero config has Standard credentials in one API.
type CodeForgeConfig struct {
	// Binary is egress-proxy.
	Binary string
	// CA is the file with the origin's authority.
	CA string
	// Credentials is how many the API of the origin has; zero means Standard.
	Credentials int
	// APIs is how many APIs there are; zero means one. Each further API has one credential, for other hosts.
	APIs int
	// Profile opens /debug/pprof on the control socket.
	Profile bool
}

// generations count up, as those of sandboxd do.
var generations atomic.Uint64

// CodeForge starts egress-proxy in gateway mode with a run in slot 0, and returns the time until it was ready.
func CodeForge(c CodeForgeConfig) (p *Peer, start time.Duration, err error) {
	dir, err := os.MkdirTemp(arena.Dir, "codeforge-")
	if err != nil {
		return nil, 0, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := c.writeAPIs(at("apis")); err != nil {
		return nil, 0, err
	}
	for _, d := range []string{"private", "public"} {
		if err := os.Mkdir(at(d), 0o700); err != nil {
			return nil, 0, err
		}
	}
	cmd := arena.In(arena.AtCodeForge, c.Binary, "--mode", "gateway", "--apis", at("apis"), "--ca-private", at("private"),
		"--ca-public", at("public"), "--control", at("control.sock"), "--tokens", at("tokens"), "--audit", at("audit"),
		"--credentials", at("credentials.sock"))
	if c.Profile {
		cmd.Args = append(cmd.Args, "--profile")
	}
	began := time.Now()
	proc, err := arena.Start(cmd, os.Getenv("BENCH_LOUD") != "")
	if err != nil {
		return nil, 0, err
	}
	p = &Peer{
		Name: "codeforge", Address: arena.CodeForge + ":443", StreamAddress: arena.CodeForge + ":443", Process: proc, StreamProcess: proc, Auth: bearer,
		stop: func() { proc.Stop(); _ = os.RemoveAll(dir) },
	}
	control := proxyapi.NewClient(at("control.sock"))
	defer control.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := proc.Await(30*time.Second, func() bool {
		h, err := control.FetchHealth(ctx)
		return err == nil && h.Ready
	}); err != nil {
		p.Close()
		return nil, 0, err
	}
	start = time.Since(began)
	err = control.RegisterRun(ctx, slot.ID(0), proxyapi.Registration{Generation: generations.Add(1), Run: "bench", Deadline: time.Now().Add(time.Hour)})
	if err == nil {
		p.Roots, err = pool(at("public/ca.pem"))
	}
	if err != nil {
		p.Close()
		return nil, 0, errors.Join(err, errors.New(proc.Log()))
	}
	p.Control = at("control.sock")
	return p, start, nil
}

// writeAPIs writes the folder of APIs.
func (c CodeForgeConfig) writeAPIs(dir string) error {
	apis := max(c.APIs, 1)
	for i := range apis {
		creds := map[string]any{}
		if i > 0 {
			creds[fmt.Sprintf("OTHER_TOKEN_%d", i)] = fmt.Sprintf("sk_live_other_%024d", i)
		} else {
			number := c.Credentials
			if number == 0 {
				number = Standard
			}
			for n := range number {
				name, value := credential(n)
				creds[name] = value
			}
		}
		host := origin.Host
		if i > 0 {
			host = fmt.Sprintf("api%d.example.com", i)
		}
		text, err := json.Marshal(map[string]any{
			"description": "benchmark", "domains": []string{host}, "credentials": creds,
			"allow_private": []string{arena.Origin + "/32"}, "ca_file": c.CA,
		})
		if err != nil {
			return err
		}
		folder := filepath.Join(dir, fmt.Sprintf("bench%d", i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "config.json"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
