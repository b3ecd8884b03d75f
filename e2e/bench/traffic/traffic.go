// Package traffic measures the proxies: every peer in every round, one after the other.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"runtime"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/load"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// Config says how much to measure.
type Config struct {
	// Binary is egress-proxy, Self the benchmark itself, to start the origin with.
	Binary string
	Rounds int
	// Unit is how long a load lasts; heavier ones last twice as long.
	Unit time.Duration
	// Growth measures the curves too.
	Growth bool
	// Profiles is a directory for processor profiles of the proxy; empty: none are taken.
	Profiles string
}

// measurement is the state of one run.
type measurement struct {
	cfg              Config
	col              *bench.Collector
	ca               string
	direct, cf, mitm *peer.Peer // mitm is nil where it is not installed
	loaded           float64    // resident memory of cf after all loads, in bytes
	curves           []bench.Curve
	notes            []string
}

// Run measures everything in the arena, which must have been made.
func Run(ctx context.Context, cfg Config) (bench.Report, error) {
	m := &measurement{cfg: cfg, col: &bench.Collector{}, ca: filepath.Join(arena.Dir, "ca.pem")}
	stop, err := m.startOrigin(ctx)
	if err != nil {
		return bench.Report{}, err
	}
	defer stop()
	if err := m.startPeers(ctx); err != nil {
		return bench.Report{}, err
	}
	for round := range cfg.Rounds {
		for _, step := range m.steps() {
			log.Printf("proxy, round %d of %d: %s", round+1, cfg.Rounds, step.name)
			runtime.GC()
			if err := step.run(ctx); err != nil {
				return bench.Report{}, fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	loaded, err := m.cf.Process.Resident()
	if err != nil {
		return bench.Report{}, err
	}
	m.loaded = float64(loaded)
	m.cf.Close()
	m.mitm.Close()
	for range cfg.Rounds {
		log.Print("proxy: peak memory")
		if err := m.memory(ctx); err != nil {
			return bench.Report{}, fmt.Errorf("peak memory: %w", err)
		}
	}
	if cfg.Profiles != "" {
		if err := m.profiles(ctx, cfg.Profiles); err != nil {
			return bench.Report{}, err
		}
	}
	if cfg.Growth {
		if err := m.growth(ctx); err != nil {
			return bench.Report{}, err
		}
	}
	return bench.Report{Results: m.col.Results(), Curves: m.curves, Notes: m.notes}, nil
}

// startOrigin starts the origin in its namespace.
func (m *measurement) startOrigin(ctx context.Context) (func(), error) {
	cert, key := filepath.Join(arena.Dir, "cert.pem"), filepath.Join(arena.Dir, "key.pem")
	if err := origin.Certificate(m.ca, cert, key); err != nil {
		return nil, err
	}
	p, err := arena.Start(arena.In(arena.AtOrigin, "/proc/self/exe", "origin", cert, key), true)
	if err != nil {
		return nil, err
	}
	if m.direct, err = peer.Direct(m.ca); err != nil {
		p.Stop()
		return nil, err
	}
	err = p.Await(10*time.Second, func() bool { return load.Verify(ctx, m.direct) == nil })
	return p.Stop, err
}

// startPeers starts the proxies and checks that each does what it is measured for.
func (m *measurement) startPeers(ctx context.Context) (err error) {
	if m.cf, _, err = peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca}); err != nil {
		return err
	}
	if err := load.Verify(ctx, m.cf); err != nil {
		return fmt.Errorf("%w\n%s", err, m.cf.Process.Log())
	}
	version, err := peer.MitmproxyVersion()
	if errors.Is(err, peer.ErrMissing) {
		m.col.Miss(err.Error(), "proxy.added", "proxy.rps", "proxy.cpu", "proxy.json", "proxy.tls", "proxy.stream", "proxy.stream.binary")
		return nil
	}
	m.notes = append(m.notes, "peer: "+version+", transparent, with an addon that substitutes 8 pairs (e2e/bench/peer/addon.py)")
	if m.mitm, err = peer.Mitmproxy(m.ca); err != nil {
		return err
	}
	if err := load.Verify(ctx, m.mitm); err != nil {
		return fmt.Errorf("%w\n%s", err, m.mitm.Process.Log())
	}
	return nil
}

// peers are those that are there.
func (m *measurement) peers() []*peer.Peer {
	all := []*peer.Peer{m.direct, m.cf}
	if m.mitm != nil {
		all = append(all, m.mitm)
	}
	return all
}

// measured is one load on one peer.
type measured struct {
	load.Samples
	// CPU is the proxy's processor time per request, in seconds.
	CPU float64
}

// keep measures a load over keep-alive connections with the processor time of the proxy.
func keep(ctx context.Context, p *peer.Peer, path string, conns int, d time.Duration) (measured, error) {
	return metered(p.Process, func() (load.Samples, error) { return load.Keep(ctx, p, path, conns, d) })
}

// metered measures a load with the processor time of a process, which is nil where there is no proxy.
func metered(proc *arena.Process, f func() (load.Samples, error)) (measured, error) {
	if proc == nil {
		s, err := f()
		return measured{Samples: s}, err
	}
	before, err := proc.CPU()
	if err != nil {
		return measured{}, err
	}
	s, err := f()
	if err != nil {
		return measured{}, err
	}
	after, err := proc.CPU()
	return measured{Samples: s, CPU: (after - before).Seconds() / float64(max(len(s.Took), 1))}, err
}

func micros(seconds float64) float64 { return seconds * 1e6 }
