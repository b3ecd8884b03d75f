package lease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestRegistrations: a lease begins only with a registration whose parts fit together.
func TestRegistrations(t *testing.T) {
	now := time.Now()
	canary := strings.Repeat("aZ09", proxyapi.MaxCanary)
	server := slot.ID(slot.Max)
	for name, c := range map[string]struct {
		id     slot.ID
		change func(*proxyapi.Registration)
		kind   policy.ClientType // ClientNone: refused
	}{
		"a run":                   {0, func(*proxyapi.Registration) {}, policy.ClientRun},
		"the last slot":           {slot.Total - 1, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.ClientServer},
		"no slot":                 {-1, func(*proxyapi.Registration) {}, policy.ClientNone},
		"a slot too many":         {slot.Total, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.ClientNone},
		"no generation":           {0, func(r *proxyapi.Registration) { r.Generation = 0 }, policy.ClientNone},
		"no run":                  {0, func(r *proxyapi.Registration) { r.Run = "" }, policy.ClientNone},
		"the longest run":         {0, func(r *proxyapi.Registration) { r.Run = strings.Repeat("r", 128) }, policy.ClientRun},
		"a longer run":            {0, func(r *proxyapi.Registration) { r.Run = strings.Repeat("r", 129) }, policy.ClientNone},
		"a deadline now":          {0, func(r *proxyapi.Registration) { r.Deadline = now }, policy.ClientNone},
		"a dry run without plans": {0, func(r *proxyapi.Registration) { r.DryRun = true }, policy.ClientNone},
		"canaries": {0, func(r *proxyapi.Registration) {
			r.Canaries = slices.Repeat([]string{canary[:proxyapi.MinCanary]}, proxyapi.MaxCanaries)
		}, policy.ClientRun},
		"a canary too many": {0, func(r *proxyapi.Registration) {
			r.Canaries = slices.Repeat([]string{canary[:proxyapi.MinCanary]}, proxyapi.MaxCanaries+1)
		}, policy.ClientNone},
		"the longest canary":       {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MaxCanary]} }, policy.ClientRun},
		"a longer canary":          {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MaxCanary+1]} }, policy.ClientNone},
		"a shorter canary":         {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MinCanary-1]} }, policy.ClientNone},
		"a canary with a z":        {0, func(r *proxyapi.Registration) { r.Canaries = []string{"z" + canary[:proxyapi.MinCanary]} }, policy.ClientRun},
		"a canary with a dash":     {0, func(r *proxyapi.Registration) { r.Canaries = []string{"-" + canary[:proxyapi.MinCanary]} }, policy.ClientNone},
		"a canary with a brace":    {0, func(r *proxyapi.Registration) { r.Canaries = []string{"{" + canary[:proxyapi.MinCanary]} }, policy.ClientNone},
		"a canary of other script": {0, func(r *proxyapi.Registration) { r.Canaries = []string{"é" + canary[:proxyapi.MinCanary]} }, policy.ClientNone},
		"an installation in a run": {0, func(r *proxyapi.Registration) { r.Install = true }, policy.ClientNone},
		"a server":                 {server, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.ClientServer},
		"a server of none":         {server, func(*proxyapi.Registration) {}, policy.ClientNone},
		"a server of two":          {server, func(r *proxyapi.Registration) { r.APIs = []string{"a", "b"} }, policy.ClientNone},
		"an installation":          {server, func(r *proxyapi.Registration) { r.Install = true }, policy.ClientInstall},
		"an installation of an API": {server, func(r *proxyapi.Registration) {
			r.Install, r.APIs = true, []string{"a"}
		}, policy.ClientNone},
	} {
		b := NewTable(Config{Now: func() time.Time { return now }})
		r := proxyapi.Registration{Generation: 7, Run: "r", Deadline: now.Add(time.Minute)}
		c.change(&r)
		l, err := b.BeginLease(c.id, r)
		if (err == nil) != (c.kind != policy.ClientNone) || err != nil && !errors.Is(err, proxyapi.ErrBadRegistration) || err == nil && l.ClientType() != c.kind {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
		if err == nil && (l.Server() == "a") != (c.kind == policy.ClientServer) {
			t.Errorf("%s: of server %q", name, l.Server())
		}
		b.Close()
	}
}

// TestGenerations: only the generation of a slot's lease names it, and only a greater one replaces it.
// Promise: one-run-one-identity
func TestGenerations(t *testing.T) {
	var lost []string
	b := NewTable(Config{Lost: func(id slot.ID, r proxyapi.Receipt) { lost = append(lost, r.Run) }})
	defer b.Close()
	register := func(generation uint64, run string) error {
		_, err := b.BeginLease(3, proxyapi.Registration{Generation: generation, Run: run, Deadline: time.Now().Add(time.Minute)})
		return err
	}
	if err := register(7, "first"); err != nil || !b.IsBusy(3) || b.IsBusy(4) || b.Holder(3).Run != "first" {
		t.Fatal(err)
	}
	for _, generation := range []uint64{6, 7} {
		if err := register(generation, "late"); !errors.Is(err, proxyapi.ErrFenced) {
			t.Errorf("generation %d again: %v", generation, err)
		}
	}
	if l, err := b.FindLease(3, 7); err != nil || l != b.Holder(3) {
		t.Errorf("%v, %v", l, err)
	}
	for _, at := range []struct {
		id         slot.ID
		generation uint64
		want       error
	}{{3, 6, proxyapi.ErrFenced}, {4, 7, proxyapi.ErrFenced}, {-1, 7, proxyapi.ErrBadRegistration}, {slot.Total, 7, proxyapi.ErrBadRegistration}} {
		if _, err := b.FindLease(at.id, at.generation); !errors.Is(err, at.want) {
			t.Errorf("Of %v: %v", at, err)
		}
		if _, err := b.EndLease(at.id, at.generation); !errors.Is(err, at.want) {
			t.Errorf("End %v: %v", at, err)
		}
		if _, err := b.DrainReceipt(at.id, at.generation, ""); !errors.Is(err, at.want) {
			t.Errorf("Drain %v: %v", at, err)
		}
		if err := b.ReplaceCalls(at.id, at.generation, proxyapi.ServerCalls{}); !errors.Is(err, at.want) {
			t.Errorf("SetCalls %v: %v", at, err)
		}
		if at.id < 0 || at.id >= slot.Total {
			if _, err := b.AttachConn(at.id, &conn{}); !errors.Is(err, ErrNone) || b.Holder(at.id) != nil || b.IsBusy(at.id) {
				t.Errorf("Attach %v: %v", at, err)
			}
		}
	}
	if err := b.ReplaceCalls(3, 7, proxyapi.ServerCalls{}); !errors.Is(err, proxyapi.ErrBadRegistration) {
		t.Errorf("calls of a run: %v", err)
	}
	c := &conn{}
	if l, err := b.AttachConn(3, c); err != nil || l.Run != "first" {
		t.Errorf("%v, %v", l, err)
	}
	if err := register(8, "second"); err != nil || !c.closed.Load() || !slices.Equal(lost, []string{"first"}) {
		t.Errorf("%v, closed %t, lost %v", err, c.closed.Load(), lost)
	}
	b.ResetSlot(3)
	if b.IsBusy(3) || b.Holder(3) != nil || !slices.Equal(lost, []string{"first", "second"}) {
		t.Errorf("forgotten: lost %v", lost)
	}
	if err := register(1, "of another pod"); err != nil {
		t.Error(err)
	}
	if r, err := b.EndLease(3, 1); err != nil || r.Run != "of another pod" || len(lost) != 2 {
		t.Errorf("%+v, %v, lost %v", r, err, lost)
	}
}
