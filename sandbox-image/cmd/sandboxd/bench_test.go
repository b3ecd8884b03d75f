package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// trivial is the script that both sides run.
const trivial = "console.log(1 + 1)\n"

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// bare runs the script as `deno run` would, without a sandbox.
func bare(b testing.TB, deno, script string) time.Duration {
	start := time.Now()
	if out, err := exec.Command(deno, "run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", script).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return time.Since(start)
}

// BenchmarkAgainstBareDeno prints medians of warm, cold and bare runs, interleaved, and their ratios.
func BenchmarkAgainstBareDeno(b *testing.B) {
	deno := testkit.DenoPath(b)
	script := filepath.Join(b.TempDir(), "main.ts")
	if err := os.WriteFile(script, []byte(trivial), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, m := range []Mode{Root, User, Container} {
		b.Run(string(m), func(b *testing.B) {
			hot := StartWorld(b, Options{Mode: m, Slots: 8, Warm: 2})
			cold := StartWorld(b, Options{Mode: m, Slots: 8, Warm: 0})
			var h, c, n []time.Duration
			once := func(w *World) time.Duration {
				start := time.Now()
				r, err := w.TryCode(context.Background(), trivial, 10*time.Second)
				took := time.Since(start)
				if err != nil || r.Stdout != "2\n" {
					b.Fatalf("%+v %v", r, err)
				}
				if w == hot && !r.Exit.Warm {
					b.Log("not warm")
				}
				return took
			}
			for b.Loop() {
				time.Sleep(60 * time.Millisecond) // until the used interpreter has been replaced
				h = append(h, once(hot))
				time.Sleep(60 * time.Millisecond)
				c = append(c, once(cold))
				n = append(n, bare(b, deno, script))
			}
			mh, mc, mn := median(h), median(c), median(n)
			b.ReportMetric(float64(mh.Microseconds())/1000, "warm-ms")
			b.ReportMetric(float64(mc.Microseconds())/1000, "cold-ms")
			b.ReportMetric(float64(mn.Microseconds())/1000, "bare-ms")
			b.ReportMetric(float64(mn)/float64(mh), "bare/warm")
			b.ReportMetric(float64((mc-mn).Microseconds())/1000, "cold-bare-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkEightAtOnce compares the throughput of eight runs at once with that of eight bare interpreters at once.
func BenchmarkEightAtOnce(b *testing.B) {
	deno := testkit.DenoPath(b)
	script := filepath.Join(b.TempDir(), "main.ts")
	if err := os.WriteFile(script, []byte(trivial), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, m := range []Mode{Root, Container} {
		b.Run(string(m), func(b *testing.B) {
			w := StartWorld(b, Options{Mode: m, Slots: 8, Warm: 2})
			const each = 10
			at := func(f func()) time.Duration {
				var wg sync.WaitGroup
				start := time.Now()
				for range 8 {
					wg.Go(func() {
						for range each {
							f()
						}
					})
				}
				wg.Wait()
				return time.Since(start)
			}
			var ours, theirs []time.Duration
			for b.Loop() {
				ours = append(ours, at(func() {
					if r, err := w.TryCode(context.Background(), trivial, 10*time.Second); err != nil {
						b.Error(fmt.Errorf("%+v: %w", r, err))
					}
				}))
				theirs = append(theirs, at(func() { bare(b, deno, script) }))
			}
			mo, mt := median(ours), median(theirs)
			b.ReportMetric(8*each/mo.Seconds(), "runs/s")
			b.ReportMetric(8*each/mt.Seconds(), "bare/s")
			b.ReportMetric(float64(mt)/float64(mo), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
