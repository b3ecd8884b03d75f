package renewedvalues

import (
	"crypto/rand"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestAside: while a value is added to many, others run again and again, even on one processor.
func TestAside(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	v := New(nil)
	var list []Value
	for range 50 {
		list = append(list, Value{Name: "A_TOKEN", Text: strings.Repeat(rand.Text(), 40), Until: time.Now().Add(time.Hour)})
	}
	var turns atomic.Int64
	var end atomic.Bool
	other := make(chan struct{})
	go func() {
		defer close(other)
		for !end.Load() {
			turns.Add(1)
			runtime.Gosched()
		}
	}()
	before := turns.Load()
	if err := v.AddValues(list...); err != nil {
		t.Fatal(err)
	}
	during := turns.Load() - before
	end.Store(true)
	<-other
	if during < 1000 {
		t.Errorf("others had %d turns meanwhile", during)
	}
}

// BenchmarkAdd renews one of fifty tokens of 1 KB.
func BenchmarkAdd(b *testing.B) {
	v := New(nil)
	add := func() {
		value := Value{Name: "A_TOKEN", Text: strings.Repeat(rand.Text(), 40), Until: time.Now().Add(time.Hour)}
		if err := v.AddValues(value); err != nil {
			b.Fatal(err)
		}
	}
	for range 50 {
		add()
	}
	b.ReportAllocs()
	for b.Loop() {
		for k := range v.live {
			delete(v.live, k)
			break
		}
		add()
	}
}
