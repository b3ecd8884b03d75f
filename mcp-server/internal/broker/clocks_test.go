package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestLimitPaused: the time in which requests of a run wait for a person does not count for the run's calls, whether
// they began before or meanwhile, and counts for those of other runs.
func TestLimitPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQuiet(Config{Catalog: func() proxyapi.Catalog { return proxyapi.Catalog{} }})
		defer b.Close(context.WithoutCancel(t.Context()))
		ended, began := map[string]time.Duration{}, time.Now()
		limit := func(name, run string) func() {
			return b.limitCall(run, 10*time.Second, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				ended[name] = time.Since(began)
			})
		}
		stops := []func(){limit("before", "r1"), limit("of another run", "r2")}
		time.Sleep(4 * time.Second)
		b.Pause("r1", true)
		b.Pause("r1", true)
		stops = append(stops, limit("meanwhile", "r1"))
		time.Sleep(time.Minute)
		b.Pause("r1", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.mu.Lock()
		if ended["before"] != 70*time.Second || ended["meanwhile"] != 74*time.Second || ended["of another run"] != 10*time.Second {
			t.Errorf("%v", ended)
		}
		b.mu.Unlock()
		for _, stop := range stops {
			stop()
		}
		b.Pause("r3", true)
		b.Pause("r3", false)
		if len(b.limits) != 0 {
			t.Errorf("%d are left", len(b.limits))
		}
	})
}
