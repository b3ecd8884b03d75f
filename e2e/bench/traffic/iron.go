package traffic

import (
	"context"
	"fmt"
	"os"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/load"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// startIron starts iron-proxy, if there is one.
func (m *measurement) startIron(ctx context.Context) (err error) {
	if _, err := os.Stat(m.cfg.Iron); err != nil {
		m.col.Miss("iron-proxy could not be built (IRON_PROXY names its program)",
			"iron.p50", "iron.rps", "iron.cpu", "iron.tls", "iron.json", "iron.binary")
		return nil
	}
	m.notes = append(m.notes, "peer: iron-proxy, transparent, with 8 credentials in headers; it leaves responses as they are")
	if m.iron, err = peer.Iron(m.cfg.Iron, m.ca); err != nil {
		return err
	}
	if err := load.Verify(ctx, m.iron); err != nil {
		return fmt.Errorf("%w\n%s", err, m.iron.Process.Log())
	}
	return nil
}

// twin compares CodeForge with iron-proxy, one load after the other.
func (m *measurement) twin(ctx context.Context) error {
	if m.iron == nil {
		return nil
	}
	both := func(f func(*peer.Peer) (measured, error)) (cf, iron measured, err error) {
		if cf, err = f(m.cf); err == nil {
			iron, err = f(m.iron)
		}
		return cf, iron, err
	}
	cf, iron, err := both(func(p *peer.Peer) (measured, error) { return m.keep(ctx, p, "/small", 1, m.cfg.Unit) })
	if err != nil {
		return err
	}
	a, b := bench.Median(cf.Took), bench.Median(iron.Took)
	m.col.Add("iron.p50", a/b, "CodeForge %.0f us, iron-proxy %.0f us", micros(a), micros(b))
	cf, iron, err = both(func(p *peer.Peer) (measured, error) { return m.keep(ctx, p, "/small", 32, 2*m.cfg.Unit) })
	if err != nil {
		return err
	}
	m.col.Add("iron.rps", cf.Rate()/iron.Rate(), "CodeForge %.0f/s, iron-proxy %.0f/s", cf.Rate(), iron.Rate())
	m.col.Add("iron.cpu", iron.CPU/cf.CPU, "CodeForge %.0f us, iron-proxy %.0f us", micros(cf.CPU), micros(iron.CPU))
	cf, iron, err = both(func(p *peer.Peer) (measured, error) {
		return m.metered(p.Process, func(started func()) (load.Samples, error) {
			started()
			return load.Fresh(ctx, p, "/small", 8, m.cfg.Unit)
		})
	})
	if err != nil {
		return err
	}
	m.col.Add("iron.tls", cf.Rate()/iron.Rate(), "CodeForge %.0f/s, iron-proxy %.0f/s", cf.Rate(), iron.Rate())
	return m.twinBulk(ctx)
}

// twinBulk compares downloads, three bodies of each kind in turn.
func (m *measurement) twinBulk(ctx context.Context) error {
	const size = 64 << 20
	for kind, row := range map[string]string{"json": "iron.json", "bytes": "iron.binary"} {
		var rates [2][]float64
		for range 3 {
			for i, p := range []*peer.Peer{m.cf, m.iron} {
				got, err := m.bulk(ctx, p, kind, size)
				if err != nil {
					return err
				}
				rates[i] = append(rates[i], size/got.Elapsed.Seconds()/1e6)
			}
		}
		a, b := bench.Median(rates[0]), bench.Median(rates[1])
		m.col.Add(row, a/b, "CodeForge %.0f MB/s, iron-proxy %.0f MB/s", a, b)
	}
	return nil
}
