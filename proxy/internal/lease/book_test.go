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
		kind   policy.Kind // KindNone: refused
	}{
		"a run":                   {0, func(*proxyapi.Registration) {}, policy.KindRun},
		"the last slot":           {slot.Total - 1, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.KindServer},
		"no slot":                 {-1, func(*proxyapi.Registration) {}, policy.KindNone},
		"a slot too many":         {slot.Total, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.KindNone},
		"no generation":           {0, func(r *proxyapi.Registration) { r.Generation = 0 }, policy.KindNone},
		"no run":                  {0, func(r *proxyapi.Registration) { r.Run = "" }, policy.KindNone},
		"the longest run":         {0, func(r *proxyapi.Registration) { r.Run = strings.Repeat("r", 128) }, policy.KindRun},
		"a longer run":            {0, func(r *proxyapi.Registration) { r.Run = strings.Repeat("r", 129) }, policy.KindNone},
		"a deadline now":          {0, func(r *proxyapi.Registration) { r.Deadline = now }, policy.KindNone},
		"a dry run without plans": {0, func(r *proxyapi.Registration) { r.DryRun = true }, policy.KindNone},
		"canaries": {0, func(r *proxyapi.Registration) {
			r.Canaries = slices.Repeat([]string{canary[:proxyapi.MinCanary]}, proxyapi.MaxCanaries)
		}, policy.KindRun},
		"a canary too many": {0, func(r *proxyapi.Registration) {
			r.Canaries = slices.Repeat([]string{canary[:proxyapi.MinCanary]}, proxyapi.MaxCanaries+1)
		}, policy.KindNone},
		"the longest canary":       {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MaxCanary]} }, policy.KindRun},
		"a longer canary":          {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MaxCanary+1]} }, policy.KindNone},
		"a shorter canary":         {0, func(r *proxyapi.Registration) { r.Canaries = []string{canary[:proxyapi.MinCanary-1]} }, policy.KindNone},
		"a canary with a z":        {0, func(r *proxyapi.Registration) { r.Canaries = []string{"z" + canary[:proxyapi.MinCanary]} }, policy.KindRun},
		"a canary with a dash":     {0, func(r *proxyapi.Registration) { r.Canaries = []string{"-" + canary[:proxyapi.MinCanary]} }, policy.KindNone},
		"a canary with a brace":    {0, func(r *proxyapi.Registration) { r.Canaries = []string{"{" + canary[:proxyapi.MinCanary]} }, policy.KindNone},
		"a canary of other script": {0, func(r *proxyapi.Registration) { r.Canaries = []string{"é" + canary[:proxyapi.MinCanary]} }, policy.KindNone},
		"an installation in a run": {0, func(r *proxyapi.Registration) { r.Install = true }, policy.KindNone},
		"a server":                 {server, func(r *proxyapi.Registration) { r.APIs = []string{"a"} }, policy.KindServer},
		"a server of none":         {server, func(*proxyapi.Registration) {}, policy.KindNone},
		"a server of two":          {server, func(r *proxyapi.Registration) { r.APIs = []string{"a", "b"} }, policy.KindNone},
		"an installation":          {server, func(r *proxyapi.Registration) { r.Install = true }, policy.KindInstall},
		"an installation of an API": {server, func(r *proxyapi.Registration) {
			r.Install, r.APIs = true, []string{"a"}
		}, policy.KindNone},
	} {
		b := NewTable(Config{Now: func() time.Time { return now }})
		r := proxyapi.Registration{Generation: 7, Run: "r", Deadline: now.Add(time.Minute)}
		c.change(&r)
		l, err := b.BeginLease(c.id, r)
		if (err == nil) != (c.kind != policy.KindNone) || err != nil && !errors.Is(err, proxyapi.ErrBadRegistration) || err == nil && l.Kind() != c.kind {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
		if err == nil && (l.Server() == "a") != (c.kind == policy.KindServer) {
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
