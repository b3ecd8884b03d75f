package traffic

import (
	"context"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/load"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// step is one comparison of a round.
type step struct {
	name string
	run  func(context.Context) error
}

func (m *measurement) steps() []step {
	return []step{
		{"one request at a time", m.added},
		{"32 connections", m.throughput},
		{"100 KB JSON", m.json},
		{"new TLS connections", m.handshakes},
		{"events", m.events},
		{"64 MiB downloads", m.downloads},
		{"the same with iron-proxy", m.twin},
	}
}

// all measures the same load on every peer.
func (m *measurement) all(f func(*peer.Peer) (measured, error)) (direct, cf, mitm measured, err error) {
	for i, p := range m.peers() {
		got, err := f(p)
		if err != nil {
			return direct, cf, mitm, err
		}
		*[]*measured{&direct, &cf, &mitm}[i] = got
	}
	return direct, cf, mitm, nil
}

func (m *measurement) added(ctx context.Context) error {
	direct, cf, mitm, err := m.all(func(p *peer.Peer) (measured, error) { return m.keep(ctx, p, "/small", 1, m.cfg.Unit) })
	if err != nil || m.mitm == nil {
		return err
	}
	base := bench.Median(direct.Took)
	ours, theirs := bench.Median(cf.Took)-base, bench.Median(mitm.Took)-base
	m.col.Add("proxy.added", ours/theirs, "CodeForge +%.0f us, mitmproxy +%.0f us on direct %.0f us", micros(ours), micros(theirs), micros(base))
	return nil
}

func (m *measurement) throughput(ctx context.Context) error {
	direct, cf, mitm, err := m.all(func(p *peer.Peer) (measured, error) { return m.keep(ctx, p, "/small", 32, 2*m.cfg.Unit) })
	if err != nil || m.mitm == nil {
		return err
	}
	m.col.Add("proxy.rps", cf.Rate()/mitm.Rate(), "CodeForge %.0f/s, mitmproxy %.0f/s, direct %.0f/s; %s", cf.Rate(), mitm.Rate(), direct.Rate(), cf.shares())
	m.col.Add("proxy.cpu", mitm.CPU/cf.CPU, "CodeForge %.0f us, mitmproxy %.0f us", micros(cf.CPU), micros(mitm.CPU))
	return nil
}

// jsonConns is the number of connections in the latency comparison: few enough that no requests queue in mitmproxy.
const jsonConns = 2

func (m *measurement) json(ctx context.Context) error {
	direct, cf, mitm, err := m.all(func(p *peer.Peer) (measured, error) {
		return m.keep(ctx, p, "/json?size=100000", jsonConns, 2*m.cfg.Unit)
	})
	if err != nil || m.mitm == nil {
		return err
	}
	p99 := func(x measured) float64 { return bench.Quantile(x.Took, 0.99) }
	m.col.Add("proxy.json", p99(cf)/p99(mitm), "p99 CodeForge %.2f ms, mitmproxy %.2f ms, direct %.2f ms; p50 %.2f, %.2f, %.2f ms",
		p99(cf)*1e3, p99(mitm)*1e3, p99(direct)*1e3, bench.Median(cf.Took)*1e3, bench.Median(mitm.Took)*1e3, bench.Median(direct.Took)*1e3)
	return nil
}

func (m *measurement) handshakes(ctx context.Context) error {
	direct, cf, mitm, err := m.all(func(p *peer.Peer) (measured, error) {
		return m.metered(p.Process, func(started func()) (load.Samples, error) {
			started()
			return load.Fresh(ctx, p, "/small", 8, m.cfg.Unit)
		})
	})
	if err != nil || m.mitm == nil {
		return err
	}
	m.col.Add("proxy.tls", cf.Rate()/mitm.Rate(), "CodeForge %.0f/s, mitmproxy %.0f/s, direct %.0f/s; %s", cf.Rate(), mitm.Rate(), direct.Rate(), cf.shares())
	return nil
}

func (m *measurement) events(ctx context.Context) error {
	const every = 5 * time.Millisecond
	n := int(m.cfg.Unit / every)
	direct, err := load.Events(ctx, m.direct, n, every)
	if err != nil {
		return err
	}
	cf, err := load.Events(ctx, m.cf, n, every)
	if err != nil {
		return err
	}
	base, ours := bench.Median(direct), bench.Median(cf)
	detail := "CodeForge %.0f us, direct %.0f us"
	args := []any{micros(ours), micros(base)}
	if m.mitm != nil {
		mitm, err := load.Events(ctx, &peer.Peer{Name: "mitmproxy", Address: m.mitm.StreamAddress, Roots: m.mitm.Roots, Auth: m.mitm.Auth}, n, every)
		if err != nil {
			return err
		}
		detail += ", mitmproxy (streaming) %.0f us"
		args = append(args, micros(bench.Median(mitm)))
	}
	m.col.Add("proxy.sse", micros(ours-base), detail, args...)
	return nil
}

// downloads compares bulk throughput, three bodies of each in turn.
func (m *measurement) downloads(ctx context.Context) error {
	const size = 64 << 20
	for _, kind := range []struct{ name, suffix string }{{"json", ""}, {"bytes", ".binary"}} {
		rates, cpu := map[string][]float64{}, map[string][]float64{}
		for range 3 {
			for _, p := range m.peers() {
				got, err := m.bulk(ctx, p, kind.name, size)
				if err != nil {
					return err
				}
				rates[p.Name] = append(rates[p.Name], size/got.Elapsed.Seconds()/1e6)
				cpu[p.Name] = append(cpu[p.Name], got.CPU*1e3/(size/1e6))
			}
		}
		direct, cf, mitm := bench.Median(rates["direct"]), bench.Median(rates["codeforge"]), bench.Median(rates["mitmproxy"])
		m.col.Add("proxy.download"+kind.suffix, cf/direct, "CodeForge %.0f MB/s, direct %.0f MB/s", cf, direct)
		if m.mitm != nil {
			m.col.Add("proxy.stream"+kind.suffix, cf/mitm, "CodeForge %.0f MB/s, mitmproxy %.0f MB/s; CPU per MB %.1f ms, %.1f ms",
				cf, mitm, bench.Median(cpu["codeforge"]), bench.Median(cpu["mitmproxy"]))
		}
	}
	return nil
}

// bulk downloads one body without whole-body buffering in the peer. It counts as one request.
func (m *measurement) bulk(ctx context.Context, p *peer.Peer, kind string, size int64) (measured, error) {
	return m.metered(p.StreamProcess, func(started func()) (load.Samples, error) {
		took, err := load.Download(ctx, p, p.StreamAddress, kind, size, started)
		return load.Samples{Took: []float64{took.Seconds()}, Elapsed: took}, err
	})
}

// memory is the peak memory of a newly started proxy over bodies of all sizes. It is measured when no other proxy of
// CodeForge runs, because there is only one address for it.
func (m *measurement) memory(ctx context.Context) error {
	p, _, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, size := range []int64{1 << 10, 100_000, 1 << 20, 16 << 20, 256 << 20} {
		if _, err := load.Download(ctx, p, p.Address, "bytes", size, func() {}); err != nil {
			return err
		}
	}
	peak, err := p.Process.Peak()
	if err != nil {
		return err
	}
	m.col.Add("proxy.rss", float64(peak)/1e6, "VmHWM; after the loads above the other proxy had %.0f MB in use", m.loaded/1e6)
	return nil
}
