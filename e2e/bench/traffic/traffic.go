// Package traffic measures the proxies: in every round each peer in turn.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
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
	// Binary is egress-proxy. Self is the benchmark's own executable, which also starts the origin.
	Binary string
	// Iron is iron-proxy; a file that does not exist leaves its rows out.
	Iron   string
	Rounds int
	// Unit is how long a load lasts. Heavier loads last twice as long.
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
	iron             *peer.Peer // nil where it could not be built
	origin           *arena.Process
	loaded           float64 // resident memory of cf after all loads, in bytes
	curves           []bench.Curve
	notes            []string
}

// Run measures everything in the arena, which must have been made.
func Run(ctx context.Context, cfg Config) (bench.Report, error) {
	m := &measurement{cfg: cfg, col: &bench.Collector{}, ca: filepath.Join(arena.Dir, "ca.pem")}
	if err := m.startOrigin(ctx); err != nil {
		return bench.Report{}, err
	}
	defer m.origin.Stop()
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
	m.iron.Close()
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
func (m *measurement) startOrigin(ctx context.Context) error {
	cert, key := filepath.Join(arena.Dir, "cert.pem"), filepath.Join(arena.Dir, "key.pem")
	if err := origin.Certificate(m.ca, cert, key); err != nil {
		return err
	}
	p, err := arena.Start(arena.In(arena.AtOrigin, "/proc/self/exe", "origin", cert, key), true)
	if err != nil {
		return err
	}
	m.origin = p
	if m.direct, err = peer.Direct(m.ca); err == nil {
		err = p.Await(10*time.Second, func() bool { return load.Verify(ctx, m.direct) == nil })
	}
	if err != nil {
		p.Stop()
	}
	return err
}

// startPeers starts the proxies and checks that each does what it is measured for.
func (m *measurement) startPeers(ctx context.Context) (err error) {
	if m.cf, _, err = peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca}); err != nil {
		return err
	}
	if err := load.Verify(ctx, m.cf); err != nil {
		return fmt.Errorf("%w\n%s", err, m.cf.Process.Log())
	}
	if err := m.startIron(ctx); err != nil {
		return err
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

// peers are the available peers.
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
	// CPU is the proxy's processor time per request, in seconds; Client and Origin are that of the two ends.
	CPU, Client, Origin float64
}

// shares says how the proxy and both ends share the processor time.
func (x measured) shares() string {
	return fmt.Sprintf("CPU per request: proxy %.0f us, client %.0f us, origin %.0f us", micros(x.CPU), micros(x.Client), micros(x.Origin))
}

// keep measures a load over keep-alive connections with the processor time it takes.
func (m *measurement) keep(ctx context.Context, p *peer.Peer, path string, conns int, d time.Duration) (measured, error) {
	return m.metered(p.Process, func(started func()) (load.Samples, error) { return load.Keep(ctx, p, path, conns, d, started) })
}

// metered measures a load with the processor time of both ends and of a proxy, which may be nil, from when the load
// calls started.
func (m *measurement) metered(proxy *arena.Process, f func(started func()) (load.Samples, error)) (measured, error) {
	clocks := func() (at [3]time.Duration, err error) {
		if proxy != nil {
			at[0], err = proxy.CPU()
		}
		var err1, err2 error
		at[1], err1 = arena.CPU(os.Getpid())
		at[2], err2 = m.origin.CPU()
		return at, errors.Join(err, err1, err2)
	}
	var before [3]time.Duration
	var failed error
	s, err := f(func() { before, failed = clocks() })
	if err = errors.Join(err, failed); err != nil {
		return measured{}, err
	}
	after, err := clocks()
	per := func(i int) float64 { return (after[i] - before[i]).Seconds() / float64(max(len(s.Took), 1)) }
	return measured{Samples: s, CPU: per(0), Client: per(1), Origin: per(2)}, err
}

func micros(seconds float64) float64 { return seconds * 1e6 }
