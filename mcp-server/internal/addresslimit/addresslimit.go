// Package addresslimit bounds the requests of each address on the internet.
//
// Threat: one sender uses up a limit that all senders share, so that the others cannot log in. Contract: the memory is
// constant. A sender with many addresses of one network counts as one.
package addresslimit

import (
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// Limit bounds the requests of each address, and those of all addresses together. Several addresses may share a bucket,
// and senders cannot know which. It is safe for concurrent use. Make one with New.
type Limit struct {
	each  rate.Limit
	burst int
	all   *rate.Limiter
	seed  maphash.Seed

	mu      sync.Mutex
	buckets [1024]*rate.Limiter
}

// New permits an address so many requests each second after a burst. All addresses together have the rate all, after a
// burst of a minute's requests, at most 1,000.
func New(each rate.Limit, burst int, all float64) *Limit {
	return &Limit{
		each: each, burst: burst, all: rate.NewLimiter(rate.Limit(all), min(int(all*60), 1000)), seed: maphash.MakeSeed(),
	}
}

// IsExceeded counts a request of an address, and reports whether it is one too many.
func (l *Limit) IsExceeded(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.buckets[maphash.String(l.seed, address)%uint64(len(l.buckets))]
	if *b == nil {
		*b = rate.NewLimiter(l.each, l.burst)
	}
	// The address first: refused requests of one address must not use up the share of all.
	return !(*b).Allow() || !l.all.Allow()
}

// AddressOf returns the network of a request's sender, for counting only. A proxy of the public host appends the
// address to X-Forwarded-For. A sender without a proxy may forge it, so all addresses share a second limit.
func AddressOf(r *http.Request) string {
	text := r.RemoteAddr
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	if list := r.Header.Values("X-Forwarded-For"); len(list) > 0 {
		last := list[len(list)-1]
		text = strings.TrimSpace(last[strings.LastIndex(last, ",")+1:])
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		// Some proxies add the port, which changes with each connection.
		with, err := netip.ParseAddrPort(text)
		if err != nil {
			return "unknown"
		}
		a = with.Addr()
	}
	// One subscriber may have a whole /48, which is enough to use up the share of all addresses.
	if a = a.Unmap(); a.Is6() {
		if p, err := a.Prefix(48); err == nil {
			return p.String()
		}
	}
	return a.String()
}
