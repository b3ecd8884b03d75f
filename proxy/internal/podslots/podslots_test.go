package podslots

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

func pod(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}) }

// A pod keeps its slot, no two pods have the same one, and no other address has any.
// Promise: shared-proxy
func TestOwn(t *testing.T) {
	s := New(Config{})
	if id, ok := s.FindSlot(pod(1)); ok {
		t.Errorf("a stranger has slot %d", id)
	}
	taken := map[slot.ID]bool{}
	for n := range slot.Max {
		id, err := s.AssignSlot(pod(n))
		if err != nil || taken[id] || !id.IsValid() || id.IsServer() {
			t.Fatalf("pod %d: slot %d, %v", n, id, err)
		}
		taken[id] = true
		again, err := s.AssignSlot(pod(n))
		found, ok := s.FindSlot(netip.AddrFrom16(pod(n).As16()))
		if again != id || err != nil || found != id || !ok {
			t.Errorf("pod %d has slot %d, then %d (%v) and %d (%v)", n, id, again, err, found, ok)
		}
	}
	if id, ok := s.FindSlot(pod(slot.Max)); ok {
		t.Errorf("a stranger has slot %d", id)
	}
}

// When all slots are taken, the one whose pod was registered longest ago is reset and given to the next pod. A slot
// with a run, or whose pod was registered just now, is not reassigned.
// Promise: shared-proxy
func TestGivenAway(t *testing.T) {
	now := time.Unix(1e9, 0)
	busy, forgotten := map[slot.ID]bool{}, []slot.ID(nil)
	s := New(Config{
		Busy: func(id slot.ID) bool { return busy[id] }, Forget: func(id slot.ID) { forgotten = append(forgotten, id) },
		Now: func() time.Time { return now },
	})
	for n := range slot.Max {
		now = now.Add(time.Millisecond)
		if _, err := s.AssignSlot(pod(n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AssignSlot(pod(1000)); !errors.Is(err, ErrFull) {
		t.Errorf("while all were just registered: %v", err)
	}
	now = now.Add(idleTime)
	first, _ := s.FindSlot(pod(0))
	busy[first] = true
	second, _ := s.AssignSlot(pod(1)) // registered just now
	third, _ := s.FindSlot(pod(2))
	id, err := s.AssignSlot(pod(1000))
	if err != nil || id != third || len(forgotten) != 1 || forgotten[0] != third {
		t.Errorf("got slot %d (%v) and forgot %v, want %d", id, err, forgotten, third)
	}
	if _, ok := s.FindSlot(pod(2)); ok {
		t.Error("the pod that lost its slot still has it")
	}
	for n, want := range map[int]slot.ID{0: first, 1: second, 1000: third} {
		if id, ok := s.FindSlot(pod(n)); !ok || id != want {
			t.Errorf("pod %d has slot %d (%v), want %d", n, id, ok, want)
		}
	}
}
