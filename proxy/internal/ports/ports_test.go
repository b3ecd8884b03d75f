package ports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
)

// board is what is open, as "slot:port".
type board struct {
	mu   sync.Mutex
	open []string
	busy map[string]bool
}

func (b *board) list() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.open)
	return strings.Join(b.open, " ")
}

func (b *board) config(log *slog.Logger, seats ...*slot.ID) Config {
	name := func(seat *slot.ID, port uint16) string {
		if seat == nil {
			return fmt.Sprintf("all:%d", port)
		}
		return fmt.Sprintf("%d:%d", *seat, port)
	}
	return Config{
		Slots: seats, Log: log,
		Open: func(seat *slot.ID, port uint16) (entrance.Listener, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.busy[name(seat, port)] {
				return entrance.Listener{}, errors.New("in use")
			}
			return entrance.Listener{Port: port, Slot: seat}, nil
		},
		Add: func(l entrance.Listener) (func(), error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			n := name(l.Slot, l.Port)
			b.open = append(b.open, n)
			return func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.open = slices.DeleteFunc(b.open, func(s string) bool { return s == n })
			}, nil
		},
	}
}

// TestSet: exactly the ports of the last SetPorts are open, each at every seat and once.
// Promise: no-other-way-out
func TestSet(t *testing.T) {
	zero, seven := slot.ID(0), slot.ID(7)
	for _, c := range []struct {
		seats []*slot.ID
		sets  [][]uint16
		want  []string
	}{
		{[]*slot.ID{nil}, [][]uint16{{3000, 9200}, {9200}, nil, {1}, {9200}}, []string{"all:3000 all:9200", "all:9200", "", "all:1", "all:9200"}},
		{[]*slot.ID{&zero, &seven}, [][]uint16{nil, {3000}, {3000, 3001}, {3001}}, []string{"", "0:3000 7:3000", "0:3000 0:3001 7:3000 7:3001", "0:3001 7:3001"}},
	} {
		b := &board{}
		p := New(b.config(logline.New(&testkit.Buffer{}, "text", nil), c.seats...))
		for i, set := range c.sets {
			p.SetPorts(set)
			if got := b.list(); got != c.want[i] {
				t.Errorf("after %v: %q, want %q", set, got, c.want[i])
			}
		}
	}
}

// TestRetry: a port that cannot be opened hinders no other, is said once, and is opened when it can be.
func TestRetry(t *testing.T) {
	zero, seven := slot.ID(0), slot.ID(7)
	b := &board{busy: map[string]bool{"7:3000": true}}
	logs := &testkit.Buffer{}
	p := New(b.config(logline.New(logs, "text", nil), &zero, &seven))
	p.SetPorts([]uint16{3000, 3001})
	if got := b.list(); got != "0:3000 0:3001 7:3001" {
		t.Fatalf("open: %q", got)
	}
	p.mu.Lock()
	p.openMissing()
	p.mu.Unlock()
	if n := strings.Count(logs.String(), "port=3000"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, logs.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.RetryFailed(ctx); close(done) }()
	b.mu.Lock()
	b.busy = nil
	b.mu.Unlock()
	testkit.WaitFor(t, func() bool { return b.list() == "0:3000 0:3001 7:3000 7:3001" })
	cancel()
	<-done
}
