package generation

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestOnlyGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation")
	var last uint64
	for start := range 4 { // a restart after a crash: nothing is closed
		c, err := OpenCounter(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range start * 700 {
			n, err := c.Next()
			if err != nil || n <= last {
				t.Fatalf("%d after %d: %v", n, last, err)
			}
			last = n
		}
	}
}

// Every number is greater than least, and than the file's if that is greater.
// Promise: shared-proxy
func TestLeast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation")
	var last uint64
	for _, least := range []uint64{5_000_000, 0, 4_000_000, 9_000_000} {
		c, err := OpenCounter(path, least)
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Next()
		if err != nil || n <= least || n <= last {
			t.Errorf("%d after %d, with at least %d: %v", n, last, least, err)
		}
		last = n
	}
}

func TestConcurrent(t *testing.T) {
	c, err := OpenCounter(filepath.Join(t.TempDir(), "generation"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				n, err := c.Next()
				mu.Lock()
				if err != nil || seen[n] {
					t.Errorf("%d twice, or %v", n, err)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// A damaged file is an error: starting again from 1 would let old messages act on new leases.
func TestDamaged(t *testing.T) {
	for _, text := range []string{"", "x\n", "-1\n", "99999999999999999999999\n", "1 2\n"} {
		path := filepath.Join(t.TempDir(), "generation")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenCounter(path, 0); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Numbers that cannot be reserved are not given out.
func TestCannotWrite(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenCounter(filepath.Join(dir, "generation"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	var last error
	for range block + 1 {
		_, last = c.Next()
	}
	if last == nil {
		t.Error("numbers beyond what is on disk")
	}
}
