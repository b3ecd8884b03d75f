package broker

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestStorm: hundreds of calls of eight servers by eight runs at once, while servers are killed at random. Each answer is
// right or a clear error, and none reaches another's caller.
func TestStorm(t *testing.T) {
	var names []string
	var servers []proxyapi.API
	for n := range 8 {
		names = append(names, fmt.Sprintf("server%d", n))
		servers = append(servers, hostile(t, names[n], nil))
	}
	w := newWorld(t, 8, servers...)
	var right, failed atomic.Int32
	var callers sync.WaitGroup
	for run := range 8 {
		callers.Go(func() {
			for n := range 60 {
				server := names[rand.IntN(len(names))]
				text := fmt.Sprintf("%s run%d call%d", server, run, n)
				tool := []string{"echo", "slow", "read", "twice", "other-id"}[rand.IntN(5)]
				got := w.send(t.Context(), fmt.Sprintf("s%d-r%d", run, run), http.MethodPost, "/"+server+"/"+tool,
					fmt.Sprintf(`{"text":%q,"ms":%d}`, text, rand.IntN(20)), testkit.Patience)
				if rand.IntN(15) == 0 { // not at times: how long a call takes depends on the machine
					w.launcher.killOne()
				}
				if got.status != http.StatusOK && (got.Server != server || got.Tool != tool) {
					t.Errorf("%s of %s was told of %s.%s", tool, server, got.Server, got.Tool)
				}
				switch {
				case got.status == http.StatusOK && got.text() == text:
					right.Add(1)
				case got.Code == serverUnavailable && got.Error != "":
					failed.Add(1)
				default:
					t.Errorf("%s: %d %s", text, got.status, got.body)
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d right, %d clear errors, %d launches", right.Load(), failed.Load(), w.launcher.launches)
	if right.Load() < 100 || failed.Load() == 0 || w.launcher.launches < 16 {
		t.Errorf("%d right, %d errors, %d launches: no storm", right.Load(), failed.Load(), w.launcher.launches)
	}
}

// killOne ends a bridge at random.
func (l *local) killOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.open { // in random order
		s.cancel()
		s.out.Close()
		return
	}
}
