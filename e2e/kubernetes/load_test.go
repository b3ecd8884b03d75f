package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestUnderLoad: what happens to runs while the release changes, or loses pods.
// Promise: lost-pods-repeat-nothing
func TestUnderLoad(t *testing.T) {
	w := start(t, world.Config{Pods: 2, Replicas: 3})
	for _, check := range []struct {
		name string
		do   func(*testing.T, *world.World)
	}{
		{"scaled", scaled},
		{"sandboxes killed", podKilled},
		{"updated", updated},
		{"mcp-server killed", serverKilled},
	} {
		if !t.Run(check.name, func(t *testing.T) { check.do(t, w) }) {
			return
		}
	}
}

// outcome is how one of many runs ended.
type outcome struct {
	trial string
	world.Result
	err error
}

// crowd keeps width runs of one second going beside during: at least count, and until it ends.
func crowd(t *testing.T, w *world.World, name string, count, width int, during func(ctx context.Context) error) []outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var work sync.WaitGroup
	var mu sync.Mutex
	var out []outcome
	var over atomic.Bool
	seats := make(chan struct{}, width)
	for i := 0; i < count || !over.Load(); i++ {
		seats <- struct{}{}
		if i == width {
			work.Go(func() {
				defer over.Store(true)
				if err := during(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		work.Go(func() {
			o := outcome{trial: fmt.Sprint(name, i, ".")}
			o.Result, o.err = w.Do(ctx, w.Session(), world.Run{Code: fetches(o.trial, 1), APIs: []string{"httpbin"}})
			mu.Lock()
			out = append(out, o)
			mu.Unlock()
			<-seats
		})
	}
	work.Wait()
	return out
}

// unharmed: each run gave its right answer, and arrived once.
func unharmed(t *testing.T, w *world.World, runs []outcome) {
	t.Helper()
	for _, o := range runs {
		if n := len(w.Upstream.Seen(o.trial)); o.err != nil || o.IsError || o.Out != right(o.trial) || n != 1 {
			t.Errorf("%s: arrived %d times, %v, out %q, notes %q", o.trial, n, o.err, o.Out, o.Notes)
		}
	}
	t.Logf("%d runs", len(runs))
}

// scaled: from 2 to 6 pods and back no run fails.
func scaled(t *testing.T, w *world.World) {
	unharmed(t, w, crowd(t, w, "scaled", 0, 6, func(ctx context.Context) error {
		for _, n := range []int{6, 2} {
			if _, err := world.Kube(ctx, "", "scale", "deployment/cf-sandbox", "-n", w.Cluster.Sandboxes, fmt.Sprint("--replicas=", n)); err != nil {
				return err
			}
			if err := pods(ctx, w.Cluster.Sandboxes, n); err != nil {
				return err
			}
		}
		return nil
	}))
}

// pods waits until so many pods are in a namespace, all of them ready.
func pods(ctx context.Context, namespace string, n int) error {
	for {
		out, err := world.Kube(ctx, "", "get", "pods", "-n", namespace, "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err != nil {
			return err
		}
		if out == strings.Repeat("True ", n) {
			return nil
		}
		time.Sleep(time.Second)
	}
}

// podKilled: a pod dies under runs. Each run has its right answer, or is said to be lost; none is run twice, and those
// of other pods are unharmed. On a busy machine a pod may have no run at the moment, so it is tried until one is lost.
func podKilled(t *testing.T, w *world.World) {
	const slots = 4 // of one of two pods
	lost := 0
	for i := 0; i < 3 && lost == 0; i++ {
		of := processes(t, w) // of one pod
		runs := crowd(t, w, fmt.Sprint("killed", i, "."), 100, 2*slots, func(context.Context) error {
			return errors.Join(syscall.Kill(of["sandbox"], syscall.SIGKILL), syscall.Kill(of["proxy"], syscall.SIGKILL))
		})
		for _, o := range runs {
			switch {
			case o.err == nil && !o.IsError && o.Out == right(o.trial):
			case o.err == nil && o.IsError && strings.Contains(o.Out+o.Notes, "connection to the sandbox"),
				// The proxy's container was killed a moment before the code's.
				o.err == nil && o.IsError && strings.Contains(o.Out+o.Notes, "The proxy stopped before the run's receipt"):
				lost++
			default:
				t.Errorf("%s: %v, out %q, notes %q", o.trial, o.err, o.Out, o.Notes)
			}
			if n := len(w.Upstream.Seen(o.trial)); n > 1 {
				t.Errorf("%s arrived %d times", o.trial, n)
			}
		}
		t.Logf("%d of %d runs were lost", lost, len(runs))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		testkit.Must(t, pods(ctx, w.Cluster.Sandboxes, 2))
		cancel()
	}
	if lost == 0 || lost > slots {
		t.Errorf("%d runs were lost of a pod that had %d", lost, slots)
	}
}

// updated: an update of all pods fails no run.
func updated(t *testing.T, w *world.World) {
	before, err := w.Cluster.Pods(t.Context())
	testkit.Must(t, err)
	unharmed(t, w, crowd(t, w, "updated", 0, 6, func(ctx context.Context) error {
		return w.Cluster.Upgrade(ctx, "--set", "settings.USER_AGENT=other")
	}))
	after, err := w.Cluster.Pods(t.Context())
	testkit.Must(t, err)
	if strings.Join(after, " ") == strings.Join(before, " ") {
		t.Error("nothing was updated")
	}
}

// serverKilled: one of three mcp-servers dies under clients of both eras of the protocol. A client loses the call
// that it had there, connects again, and goes on; no call is made twice.
func serverKilled(t *testing.T, w *world.World) {
	const clients, calls = 5, 8 // of each era; calls after the kill
	const most = 2              // calls that a client may lose: one under way, one before the dead server is known
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	testkit.Must(t, pods(ctx, w.Cluster.Server, 3)) // those before the update have gone
	server := processes(t, w)["mcp-server"]
	var work sync.WaitGroup
	var killed atomic.Bool
	var lost, done, began atomic.Int64
	for _, era := range []string{"2025-11-25", "2026-07-28"} {
		for n := range clients {
			work.Go(func() {
				good, failed := 0, 0
				var problem error
				for i := 0; good < calls && failed <= most && ctx.Err() == nil; {
					session, err := w.ConnectAs(ctx, nil, era)
					if err != nil { // the service leads to the dead one until it is known
						time.Sleep(100 * time.Millisecond)
						continue
					}
					for ; err == nil && good < calls; i++ { // until the session breaks
						trial := fmt.Sprint("era", era, ".", n, ".", i, ".")
						began.Add(1)
						var r world.Result
						r, err = w.Do(ctx, session, world.Run{Code: fetches(trial, 1), APIs: []string{"httpbin"}})
						if err == nil && (r.IsError || r.Out != right(trial)) {
							t.Errorf("%s: out %q, notes %q", trial, r.Out, r.Notes)
						}
						if arrived := len(w.Upstream.Seen(trial)); arrived > 1 {
							t.Errorf("%s arrived %d times", trial, arrived)
						}
						if done.Add(1); err == nil && killed.Load() {
							good++
						}
					}
					_ = session.Close()
					if err != nil {
						failed++
						lost.Add(1)
						problem = err
					}
				}
				if good < calls {
					t.Errorf("client %d of %s: %d of %d calls, %d lost: %v", n, era, good, calls, failed, problem)
				}
			})
		}
	}
	for began.Load() < 4*clients {
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	killed.Store(true)
	work.Wait()
	t.Logf("%d calls by %d clients of each era, %d lost", done.Load(), clients, lost.Load())
}
