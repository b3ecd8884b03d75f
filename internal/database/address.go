package database

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// addressTime is how long the addresses of a name are cached. resolveTime bounds one look-up.
	addressTime = 15 * time.Second
	resolveTime = 2 * time.Second
)

type addressCache struct {
	mu    sync.Mutex
	list  []netip.AddrPort
	until time.Time
}

// ResolvePostgres returns the addresses of Postgres, which code must not reach. If its name does not resolve now, it
// returns the earlier addresses. A nil DB and SQLite have none.
func (db *DB) ResolvePostgres(ctx context.Context) []netip.AddrPort {
	if db == nil || !db.Postgres {
		return nil
	}
	a := &db.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.list
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", db.config.Host)
	// Also after an error: each run asks, and a dead resolver must not delay each of them.
	a.until = time.Now().Add(addressTime)
	if err != nil {
		return a.list
	}
	a.list = nil
	for _, one := range found {
		a.list = append(a.list, netip.AddrPortFrom(one.Unmap(), db.config.Port))
	}
	return a.list
}
