package egress_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// stuck sends a refused request with a body in zstd that does not end from slot 0.
func stuck(t *testing.T, r *rig) {
	pr, pw := io.Pipe()
	t.Cleanup(func() { _ = pw.Close() })
	go func() { _, _ = io.WriteString(pw, "\x28\xb5\x2f\xfd\x00\x68") }() // the head of a frame with a window of 8 MiB
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+demoHost+"/", pr)
	check(t, err)
	req.Header.Set("Content-Encoding", "zstd, zstd")
	go func() {
		if resp, err := r.client(true).Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
}

// TestRefusedDecoding: the decoders that search the body of a refused request take memory of the run's share.
// Promise: one-memory-budget
func TestRefusedDecoding(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(noDelete)}})
	defer r.begin()()
	stuck(t, r)
	testkit.WaitFor(t, func() bool { return r.memory.Used() > 32<<20 })
	for range 8 {
		stuck(t, r)
	}
	testkit.WaitFor(t, func() bool { return r.memory.Used() > 40<<20 })
	if n := r.memory.Used(); n > budgetSize/4 {
		t.Errorf("%d bytes are held", n)
	}
}
