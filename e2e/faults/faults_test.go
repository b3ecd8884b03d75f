// Package faults causes 25 kinds of fault, one after the other, while four clients run code. No answer may be wrong, no
// credential may show, and after each fault the service must heal by itself. `make faults` runs it.
package faults

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

const (
	clients = 4
	// mostHealing is how long the service may take to heal. A part that hangs is noticed after a minute.
	mostHealing = 2 * time.Minute
	probeEvery  = 400 * time.Millisecond
	token       = "OTHER_TOKEN"
)

// soak is a running CodeForge with its clients.
type soak struct {
	*world.World
	t *testing.T
	// host fails in the ways of upstream faults.
	host *faultyHost
	// outer is the process of codeforge up --detach, which starts all parts again.
	outer         int
	right, failed atomic.Int64
}

// run runs code that fetches a mark, and reports whether the answer was right. A wrong answer fails the test: a result
// without an error that is not the mark, a credential in the result, or a request with a name in place of the credential.
func (s *soak) run(ctx context.Context) bool {
	mark := "mark" + rand.Text()
	ctx, cancel := context.WithTimeout(ctx, mostHealing)
	defer cancel()
	session, err := s.Connect(ctx)
	if err != nil {
		return false
	}
	defer session.Close()
	r, err := s.Do(ctx, session, world.Run{Timeout: 30, APIs: []string{"other"}, Code: fmt.Sprintf(
		`const r = await fetch("https://%s/mark?m=%s", {headers: {Authorization: "Bearer %s"}, signal: AbortSignal.timeout(25000)});
const text = await r.text();
if (!r.ok) throw new Error(text);
console.log(text);`, upstream.Other, mark, token)})
	if where := s.Leak(r.JSON); where != "" {
		s.t.Errorf("the result shows a credential: %s", where)
	}
	if err != nil || r.IsError {
		return false
	}
	if r.Out != mark+"\n" {
		s.t.Errorf("a wrong answer: %q, want %q", r.Out, mark)
	}
	return true
}

// awaitHealing waits for two right answers in a row, and returns how long that took.
func (s *soak) awaitHealing(ctx context.Context) (time.Duration, bool) {
	began := time.Now()
	for inRow := 0; inRow < 2; time.Sleep(probeEvery) {
		if time.Since(began) > mostHealing {
			return mostHealing, false
		}
		probe, cancel := context.WithTimeout(ctx, 10*time.Second)
		if s.run(probe) {
			inRow++
		} else {
			inRow = 0
		}
		cancel()
	}
	return time.Since(began), true
}

// TestFaults causes each fault in turn until CODEFORGE_FAULTS is over, for example 15m, and each at least once.
// CODEFORGE_FAULT limits it to the faults whose names match.
func TestFaults(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("CODEFORGE_FAULTS"))
	if err != nil {
		t.Skip("make faults runs it")
	}
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range clients {
		load.Go(func() {
			for ctx.Err() == nil {
				if s.run(ctx) {
					s.right.Add(1)
				} else if s.failed.Add(1); ctx.Err() == nil {
					time.Sleep(probeEvery)
				}
			}
		})
	}
	defer load.Wait()
	defer cancel()
	only := regexp.MustCompile(os.Getenv("CODEFORGE_FAULT"))
	for began, round := time.Now(), 0; round == 0 || time.Since(began) < length; round++ {
		for _, f := range kinds() {
			if round > 0 && time.Since(began) > length {
				break
			}
			if !only.MatchString(f.name) {
				continue
			}
			if _, ok := s.awaitHealing(ctx); !ok {
				t.Fatalf("before %s: the service gives no right answer", f.name)
			}
			right, failed := s.right.Load(), s.failed.Load()
			end, err := f.begin(s)
			if err != nil {
				t.Errorf("%s: %v", f.name, err)
				continue
			}
			time.Sleep(f.lasts)
			if end != nil {
				end()
			}
			took, ok := s.awaitHealing(ctx)
			t.Logf("%6.1f s  %-34s lasted %4s  healed after %5.1f s  %d right, %d failed", time.Since(began).Seconds(), f.name, f.lasts,
				took.Seconds(), s.right.Load()-right, s.failed.Load()-failed)
			if !ok {
				t.Errorf("%s does not heal", f.name)
			}
		}
	}
	cancel()
	load.Wait()
	t.Logf("%d runs were right, %d failed with an error", s.right.Load(), s.failed.Load())
	if n := s.host.unswapped.Load(); n > 0 {
		t.Errorf("%d requests arrived without the credential", n)
	}
}

// start starts CodeForge in the background, with a state directory of 256 MiB, and an upstream that can fail.
func start(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, host: &faultyHost{}}
	s.World = world.Start(t, world.Config{Slots: clients + 2, Hosts: s.host.names()})
	s.host.key = s.Canaries[token].Value()
	testkit.Must(t, s.Process.Stop())
	testkit.Must(t, mountSmall(s.Process.State))
	t.Cleanup(func() { unmount(s.Process.State) })
	p, err := world.StartUp(s.User, s.Dir, clients+2, "--detach")
	testkit.Must(t, err)
	t.Cleanup(func() {
		_, _, _ = world.Tool(context.Background(), world.Command{Dir: s.Dir, Args: []string{"down", "--state", p.State}})
	})
	if code, err := p.Wait(testkit.Patience); err != nil || code != 0 {
		t.Fatalf("codeforge up --detach: %d, %v\n%s", code, err, p.Output())
	}
	up, err := readUp(p.State)
	testkit.Must(t, err)
	s.URL, s.outer = up.URL+"/mcp", up.PID
	return s
}
