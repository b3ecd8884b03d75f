package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// soakRuns is the number of runs of a soak test: 2000 if testkit.IsThorough, and few otherwise. SANDBOX_SOAK sets another
// one.
func soakRuns(t *testing.T, few int) int {
	n, err := strconv.Atoi(os.Getenv("SANDBOX_SOAK"))
	if err != nil && testkit.IsThorough() {
		return 2000
	}
	if err != nil || n < 1 {
		t.Log("short: SANDBOX_SOAK=2000 for the whole")
		return few
	}
	return n
}

// attacks are the hostile fifth of a soak: code, timeout, and expected reason. "" means that the client cancels.
var attacks = []struct {
	code    string
	timeout time.Duration
	reason  sandboxapi.Reason
}{
	{"for (;;);", 100 * time.Millisecond, sandboxapi.Timeout},
	{"const b = new Uint8Array(65536).fill(97); for (;;) Deno.stdout.writeSync(b);", time.Minute, sandboxapi.OutputLimit},
	{"const a = []; for (;;) a.push(new Uint8Array(10 << 20).fill(1));", time.Minute, sandboxapi.OOM},
	{"console.log('half'); Deno.stdout.writeSync(new Uint8Array([0xe6, 0xbc])); Deno.exit(9);", time.Minute, sandboxapi.Exited},
	{"setInterval(() => console.log('tick'), 1);", time.Minute, ""},
}

// state is what must not grow.
type state struct{ files, processes, threads, tmp int }

func (s state) grew(before state) bool {
	return s.files > before.files+2 || s.processes != before.processes || s.tmp != before.tmp || s.threads > before.threads+32
}

func look(t *testing.T, w *World) (s state, rss int64) {
	t.Helper()
	pid := w.Pid()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	st, err := proc.ReadStatus(pid)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(w.Dir + "/state")
	if err != nil {
		t.Fatal(err)
	}
	return state{len(fds), len(descendants(w.Process.Pid)), st.Threads, len(entries)}, proc.MemoryOf(pid)
}

// TestSoak does many runs in sequence, a fifth of them hostile. Every response is that of its own run, and nothing
// grows.
func TestSoak(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 3, Warm: 1, Memory: 192 << 20})
		for range 5 {
			w.RunCode(t, "console.log(1)", testkit.Patience)
		}
		awaitWarm(t, w, 1)
		nothingLeft(t, w, m)
		before, rssBefore := look(t, w)
		n := soakRuns(t, map[Mode]int{Root: 20, User: 10, Container: 10}[m]) // mostly sandboxd itself may grow
		for i := range n {
			if rand.IntN(5) > 0 {
				want := fmt.Sprintf("run %d %d\n", i, rand.Int())
				r := w.RunCode(t, "console.log("+strconv.Quote(strings.TrimSpace(want))+")", testkit.Patience)
				if r.Stdout != want || r.Exit.Code != 0 {
					t.Fatalf("run %d: %+v", i, r)
				}
				continue
			}
			a := attacks[rand.IntN(len(attacks))]
			ctx, cancel := context.WithCancel(context.Background())
			if a.reason == "" {
				time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, cancel)
			}
			r, err := w.TryCode(ctx, a.code, a.timeout)
			cancel()
			switch {
			case a.reason == "" && !errors.Is(err, context.Canceled):
				t.Fatalf("cancelled run %d: %v %+v", i, err, r.Exit)
			case a.reason != "" && (err != nil || r.Exit.Reason != a.reason):
				t.Fatalf("run %d %s: %v %+v", i, a.code, err, r.Exit)
			}
		}
		awaitWarm(t, w, 1)
		nothingLeft(t, w, m)
		after, rssAfter := look(t, w)
		for end := time.Now().Add(testkit.Patience); after.grew(before) && time.Now().Before(end); after, rssAfter = look(t, w) {
			time.Sleep(50 * time.Millisecond) // the last run's files may not be closed yet; those of a leak stay
		}
		if after.grew(before) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if rssAfter > rssBefore+24<<20 {
			t.Errorf("sandboxd grew from %d to %d KiB", rssBefore>>10, rssAfter>>10)
		}
		t.Logf("%d runs: %+v -> %+v, RSS %d -> %d KiB", n, before, after, rssBefore>>10, rssAfter>>10)
	})
}

// TestManyClients has 32 clients at once on 8 slots. Each gets its own responses, or ErrBusy.
func TestManyClients(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 8, Warm: 2})
		const clients = 32
		each := max(1, soakRuns(t, 200)/200)
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				client := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.Dial})
				defer client.Close()
				mine := *w
				mine.Client = client
				for i := range each {
					want := fmt.Sprintf("client %d run %d\n", c, i)
					for {
						r, err := mine.TryCode(context.Background(), "await new Promise((r) => setTimeout(r, 5)); console.log("+strconv.Quote(strings.TrimSpace(want))+")", time.Minute)
						if errors.Is(err, sandboxapi.ErrBusy) {
							time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
							continue
						}
						if err != nil || r.Stdout != want {
							t.Errorf("%q: %v %+v", want, err, r)
						}
						break
					}
				}
			})
		}
		wg.Wait()
		stats, err := w.Client.Stats(context.Background())
		if err != nil || stats.Runs != uint64(clients*each) {
			t.Errorf("%+v %v", stats, err)
		}
		t.Logf("%+v", stats)
	})
}

// TestRestart stops sandboxd cleanly, and with SIGKILL during a run. No process of it is left, and the next sandboxd
// continues with greater generations.
func TestRestart(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1})
		last := w.RunCode(t, "console.log(1)", testkit.Patience).Lease.Generation
		for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			lease, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
			if err != nil {
				t.Fatal(err)
			}
			type end struct {
				exit sandboxapi.Exit
				err  error
			}
			up, ended := make(chan struct{}, 1), make(chan end, 1)
			go func() {
				exit, err := w.Client.Run(context.Background(), sandboxapi.RunRequest{
					Generation: lease.Generation, Run: "r", Language: sandboxapi.LanguageTypeScript, Permissions: w.Hash,
					Code: "console.log('up');\nfor (;;);\n", TimeoutMS: 60000,
				}, func(sandboxapi.Event) { up <- struct{}{} })
				ended <- end{exit, err}
			}()
			<-up
			below := descendants(w.Pid())
			w.Restart(t, how)
			switch e := <-ended; {
			case how == syscall.SIGTERM && (e.err != nil || e.exit.Reason != sandboxapi.Cancelled):
				t.Errorf("SIGTERM: %+v %v", e.exit, e.err)
			case how == syscall.SIGKILL && e.err == nil:
				t.Errorf("SIGKILL: %+v", e.exit)
			}
			for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
				left := 0
				for pid, exe := range below {
					if now, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && now == exe {
						left++
					}
				}
				if left == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d of %v are alive", left, below)
				}
			}
			r := w.RunCode(t, "console.log('again')", testkit.Patience)
			if r.Stdout != "again\n" || r.Lease.Generation <= last || r.Lease.Generation <= lease.Generation {
				t.Errorf("%+v, last generation %d", r, last)
			}
			last = r.Lease.Generation
		}
	})
}

// TestIdleMemory measures a waiting interpreter.
func TestIdleMemory(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 4, Warm: 4})
	awaitWarm(t, w, 4)
	time.Sleep(200 * time.Millisecond)
	var private int64
	n := 0
	for pid, exe := range descendants(w.Process.Pid) {
		if !strings.HasSuffix(exe, "/deno") && !strings.HasSuffix(exe, "/bwrap") {
			continue
		}
		if strings.HasSuffix(exe, "/deno") {
			n++
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var name string
			var kb int64
			if k, _ := fmt.Sscan(line, &name, &kb); k == 2 && strings.HasPrefix(name, "Private_") {
				private += kb
			}
		}
	}
	if n != 4 {
		t.Fatalf("%d interpreters", n)
	}
	each := private / 4
	t.Logf("%d KiB private for each waiting interpreter, bubblewrap included", each)
	if each > 20<<10 {
		t.Errorf("%d KiB", each)
	}
}
