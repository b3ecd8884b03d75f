package multisearch

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLayered: the newest set above finds what the fixed one does not, from the next read on, and of two matches the
// longer counts.
func TestLayered(t *testing.T) {
	var top atomic.Pointer[Set]
	set := New(ListForms("fixed-canary-1", 1)).WithLayer(64, top.Load)
	if got := replaceAll(set, "fixed-canary-1 minted-canary-1"); got != "<1> minted-canary-1" {
		t.Errorf("without a set above: %q", got)
	}
	in, out := io.Pipe()
	r := set.NewReader(in, func(id int) (string, error) { return map[int]string{1: "<1>", -1: "<-1>"}[id], nil })
	read := func(text string) string {
		t.Helper()
		go func() { _, _ = io.WriteString(out, text+"\n") }()
		var got []byte
		for buf := make([]byte, 64); !strings.HasSuffix(string(got), "\n"); {
			n, err := r.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		return strings.TrimSuffix(string(got), "\n")
	}
	if got := read("minted-canary-1"); got != "minted-canary-1" {
		t.Errorf("before: %q", got)
	}
	top.Store(New(ListForms("minted-canary-1", -1)))
	if got := read("fixed-canary-1 minted-canary-1 " + `\u006dinted-canary-1`); got != "<1> <-1> <-1>" {
		t.Errorf("after: %q", got)
	}
	top.Store(New(append(ListForms("fixed-canary-1-longer", -1), ListForms("fixed-cana", -1)...)))
	if got := read("fixed-canary-1-longer fixed-canary-1"); got != "<-1> <1>" {
		t.Errorf("of two matches: %q", got)
	}
	top.Store(nil)
	if got := read("minted-canary-1"); got != "minted-canary-1" {
		t.Errorf("forgotten: %q", got)
	}
	if empty := New(nil).WithLayer(64, func() *Set { return New(ListForms("minted-canary-1", -1)) }); !empty.Contains("a minted-canary-1") || len(empty.FindAll("minted-canary-1")) != 1 {
		t.Error("a set above none finds nothing")
	}
}

// TestLayeredHold: how much is held back depends on the room for values alone, not on the values that there are.
func TestLayeredHold(t *testing.T) {
	steps := func(top *Set) []int {
		set := New(ListForms("fixed-canary-1", 1)).WithLayer(8192, func() *Set { return top })
		r := set.NewReader(&pieces{text: strings.Repeat("x", 3*set.MaxHeld()), size: 1000}, func(int) (string, error) { return "", nil })
		var out []int
		for buf := make([]byte, 1<<16); ; {
			n, err := r.Read(buf)
			if err != nil {
				return append(out, set.MaxHeld())
			}
			out = append(out, n)
		}
	}
	want := steps(nil)
	for _, n := range []int{8, 300, 8192} {
		if got := steps(New(ListForms(strings.Repeat("v", n), -1))); !slices.Equal(got, want) {
			t.Errorf("a value of %d bytes: %v, without any %v", n, got, want)
		}
	}
	if hold := want[len(want)-1]; hold < New(ListForms(strings.Repeat("v", 8192), 1)).MaxHeld() {
		t.Errorf("%d bytes are held, too few for the longest value", hold)
	}
}

// pieces reads a text in pieces.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// TestAside: a set that is compiled beside other work is the same, and lets the other work go on in each of its steps.
func TestAside(t *testing.T) {
	var ps []Pattern
	for i := range 50 {
		ps = append(ps, ListForms(strings.Repeat(fmt.Sprintf("minted-canary-%d.", i), 60), i)...)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for attempt := 0; ; attempt++ {
		began, last, longest := threadTime(), threadTime(), time.Duration(0)
		set := NewAside(ps, func() {
			now := threadTime()
			longest, last = max(longest, now-last), now
		})
		longest = max(longest, threadTime()-last)
		if got := replaceAll(set, "x minted-canary-7. "+ps[0].Text); got != "x minted-canary-7. <0>" {
			t.Errorf("it finds %q", got)
		}
		all := threadTime() - began
		if longest < all/10 {
			return
		}
		if attempt == 3 {
			t.Fatalf("%v of %v without a rest", longest, all)
		}
	}
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
