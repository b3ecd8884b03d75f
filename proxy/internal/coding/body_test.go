package coding

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
)

// TestAheadMemory: a small body that decodes to more than an exchange already holds takes memory for it. If there is
// none, the rest of the body never leaves without its beginning.
// Promise: one-memory-budget
func TestAheadMemory(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 400 {
		_, _ = w.Write([]byte(string(bytes.Repeat([]byte("some text that repeats\n"), 45))[:1024]))
	}
	_ = w.Close()
	ahead := func(t *testing.T, budget *membudget.Budget, taken int64) (*http.Request, error) {
		account := budget.OpenAccount("run")
		account.TryTake(taken)
		ctx := membudget.NewContext(t.Context(), account)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x", bytes.NewReader(packed.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		body := BodyOf(req)
		body.AddDecoder([]string{"gzip"})
		return req, ReadAhead(req, true)
	}
	budget := membudget.New(64 << 20)
	req, err := ahead(t, budget, 0)
	text, _ := io.ReadAll(req.Body)
	if err != nil || len(text) != 400<<10 || req.ContentLength != 400<<10 {
		t.Errorf("%d bytes, announced %d: %v", len(text), req.ContentLength, err)
	}
	if budget.UsedBytes() != 2*ExactUpTo {
		t.Errorf("%d bytes are taken for a body of 400 KiB", budget.UsedBytes())
	}
	synctest.Test(t, func(t *testing.T) {
		req, err := ahead(t, membudget.New(2<<20), 64<<10)
		text, later := io.ReadAll(req.Body)
		if !errors.Is(err, membudget.ErrFull) || !errors.Is(later, membudget.ErrFull) || len(text) > 0 {
			t.Errorf("without memory: %v, then %d bytes and %v", err, len(text), later)
		}
	})
}

// TestAheadBound: a short body that decodes to more than the bound leaves as a whole, in chunks.
func TestAheadBound(t *testing.T) {
	for _, more := range []int{-1, 0, 1} {
		text := bytes.Repeat([]byte("x"), 2*ExactUpTo+more)
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(text)
		_ = w.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x", bytes.NewReader(packed.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		body := BodyOf(req)
		body.AddDecoder([]string{"gzip"})
		err = ReadAhead(req, false)
		got, later := io.ReadAll(req.Body)
		if want := map[bool]int64{true: int64(len(text)), false: -1}[more < 0]; err != nil || later != nil || !bytes.Equal(got, text) || req.ContentLength != want {
			t.Errorf("%d bytes more than the bound: got %d, announced %d: %v, %v", more, len(got), req.ContentLength, err, later)
		}
	}
}
