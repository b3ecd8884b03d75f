// Package podslots assigns the slots of a proxy that many pods share to the pods.
//
// Threat: a slot that passes to another pod together with a connection or a registration of the first pod.
//
// Contract: a slot belongs to one pod at a time, which the address of its connections identifies. An unregistered
// address has no slot. A slot is reassigned only while its pod has no run, and its state is reset. A late registration
// for a finished run gives code nothing: the next run there has a greater generation.
package podslots

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// idleTime is the time after its pod's last registration at which a slot may be reassigned: longer than a registration
// takes.
const idleTime = 15 * time.Second

// ErrFull means that all slots belong to other pods.
var ErrFull error = &rpc.Error{
	Status: http.StatusServiceUnavailable, Text: "the proxy has no slot for another pod",
}

// Config configures PodSlots.
type Config struct {
	// Busy reports whether a slot has a run.
	Busy func(slot.ID) bool
	// Forget resets a slot and ends everything of its former pod.
	Forget func(slot.ID)
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// PodSlots assigns slots to pods. Make one with New. It is safe for concurrent use.
type PodSlots struct {
	conf Config

	mu   sync.Mutex
	pods map[netip.Addr]*podSlot
	next slot.ID // the first slot that no pod has had
}

type podSlot struct {
	id   slot.ID
	used time.Time // the time of its pod's last registration
}

// New makes PodSlots without pods.
func New(c Config) *PodSlots {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &PodSlots{conf: c, pods: map[netip.Addr]*podSlot{}}
}

// AssignSlot returns the slot of a pod that registers, and assigns one if the pod has none.
func (s *PodSlots) AssignSlot(pod netip.Addr) (slot.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.conf.Now()
	if own := s.pods[pod]; own != nil {
		own.used = now
		return own.id, nil
	}
	if s.next < slot.Max {
		s.pods[pod] = &podSlot{s.next, now}
		s.next++
		return s.pods[pod].id, nil
	}
	oldest, ok := s.findLongestIdle(now)
	if !ok {
		return 0, fmt.Errorf("%w: %d have one", ErrFull, slot.Max)
	}
	id := s.pods[oldest].id
	delete(s.pods, oldest)
	// Before the new pod gets the slot: no state of the former pod may remain.
	s.conf.Forget(id)
	s.pods[pod] = &podSlot{id, now}
	return id, nil
}

// findLongestIdle returns the pod that has been idle for the longest time, if it may lose its slot. The caller holds
// mu.
func (s *PodSlots) findLongestIdle(now time.Time) (oldest netip.Addr, ok bool) {
	for pod, own := range s.pods {
		// A registration may be under way for a run that is not known yet.
		if now.Sub(own.used) < idleTime || s.conf.Busy(own.id) || ok && !own.used.Before(s.pods[oldest].used) {
			continue
		}
		oldest, ok = pod, true
	}
	return oldest, ok
}

// FindSlot returns the slot of the pod with an address. It returns false for any other address.
func (s *PodSlots) FindSlot(pod netip.Addr) (slot.ID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An IPv4 address may arrive as IPv6.
	own := s.pods[pod.Unmap()]
	if own == nil {
		//defence:pod-address permits
		return 0, false
	}
	return own.id, true
}
