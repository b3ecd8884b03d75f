package idempotency_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/idempotency"
)

// TestBegin: a key comes back after an end that nobody knows, once at a time, and for a day.
// Promise: repeated-writes
func TestBegin(t *testing.T) {
	now := time.Now()
	k := &idempotency.Keys{Now: func() time.Time { return now }}
	a, b := idempotency.Group{1}, idempotency.Group{2}
	first, ended := k.BeginAttempt("", a)
	ended(true)
	second, ended := k.BeginAttempt("", a)
	if second == first {
		t.Error("the key of a request that was answered came back")
	}
	beside, endBeside := k.BeginAttempt("", a)
	if beside == second {
		t.Error("two requests at once have one key")
	}
	ended(false)
	ended(true) // only the first call counts
	if other, _ := k.BeginAttempt("", b); other == second {
		t.Error("another request has the key")
	}
	third, ended := k.BeginAttempt("", a)
	if third != second {
		t.Error("the key of a request without a known end did not come back")
	}
	ended(false)
	endBeside(false)
	x, _ := k.BeginAttempt("", a)
	y, _ := k.BeginAttempt("", a)
	z, _ := k.BeginAttempt("", a)
	if x != second || y != beside || z == x || z == y {
		t.Error("two attempts without a known end are repeated otherwise than one after the other")
	}
	late, ended := k.BeginAttempt("", b)
	ended(false)
	began := now
	now = now.Add(25 * time.Hour)
	if again, _ := k.BeginAttempt("", b); again == late {
		t.Error("a key came back after a day")
	}
	now = began
	late, ended = k.BeginAttempt("", b)
	ended(false)
	now = testkit.AfterSleep(now, 60*time.Hour)
	if again, _ := k.BeginAttempt("", b); again == late {
		t.Error("a key came back after days in which the machine slept")
	}
}

// TestMost: what code leaves without a known end is bounded, and the oldest goes first.
// Promise: repeated-writes
func TestMost(t *testing.T) {
	k := &idempotency.Keys{}
	keys := map[int]string{}
	group := func(i int) (g idempotency.Group) { copy(g[:], fmt.Sprint(i)); return g }
	const n = 10_100
	for i := range n {
		key, ended := k.BeginAttempt("", group(i))
		ended(false)
		keys[i] = key
	}
	if again, _ := k.BeginAttempt("", group(0)); again == keys[0] {
		t.Error("the oldest is still there")
	}
	if again, _ := k.BeginAttempt("", group(n-1)); again != keys[n-1] {
		t.Error("the newest is gone")
	}
}

// TestTenants: what one tenant leaves without a known end displaces no attempt of another.
// Promise: tenant-shares
func TestTenants(t *testing.T) {
	k := &idempotency.Keys{}
	first, ended := k.BeginAttempt("alice", idempotency.Group{})
	ended(false)
	for i := range 10_100 {
		g := idempotency.Group{1}
		copy(g[1:], fmt.Sprint(i))
		_, ended := k.BeginAttempt("mallory", g)
		ended(false)
	}
	if again, _ := k.BeginAttempt("alice", idempotency.Group{}); again != first {
		t.Error("the repetition of another tenant's request has another key")
	}
}
