package main

import (
	"net/netip"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/egress"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
)

// findLease returns the lease of a slot, or of the slot that an address identifies. It is nil if the slot has none.
func (d *daemon) findLease(find func(netip.Addr) (slot.ID, bool), seat *slot.ID, from netip.Addr) *lease.Lease {
	if seat == nil {
		id, ok := find(from)
		if !ok {
			return nil
		}
		seat = &id
	}
	return d.leases.Holder(*seat)
}

// newHostCheck returns a function that reports whether a host resolves for the run or server in a slot. Hosts of other
// tenants' APIs do not resolve.
func (d *daemon) newHostCheck(find func(netip.Addr) (slot.ID, bool)) func(*slot.ID, netip.Addr, catalog.Host) bool {
	return func(seat *slot.ID, from netip.Addr, h catalog.Host) bool {
		rules := d.reloader.Current().Rules
		if l := d.findLease(find, seat, from); l != nil {
			return rules.CanResolve(l, h)
		}
		return rules.CanResolve(nil, h)
	}
}

// newQueryCheck raises the alarm for a queried name that carries what no request may. The name does not leave the
// machine, so the alarm is about the attempt.
func (d *daemon) newQueryCheck(find func(netip.Addr) (slot.ID, bool), j *receipt.Journal) func(*slot.ID, netip.Addr,
	string) {
	return func(seat *slot.ID, from netip.Addr, name string) {
		l := d.findLease(find, seat, from)
		if l == nil || l.Canaries == nil {
			return
		}
		snap := d.reloader.Current()
		if host, err := catalog.ParseHost(name); err == nil && len(snap.Rules.Catalog.ListHolders(host)) > 0 {
			return // the configuration's own text, or judged with the request
		}
		if c, ok := egress.NewRunSwapper(snap, l).SearchName(name, "name"); ok {
			egress.RaiseAlarm(j, l, c, "", strings.TrimSuffix(name, "."))
		}
	}
}

// newQueryLimit limits who may query the resolver, where slots are known by address. A pod that shares the proxy may
// query it before it has a run: nothing is forwarded.
func (in sandboxInputs) newQueryLimit() func(netip.Addr) bool {
	if in.find == nil || in.anyAsks {
		return nil
	}
	return func(a netip.Addr) bool { _, ok := in.find(a); return ok }
}
