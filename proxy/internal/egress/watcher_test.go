package egress_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestWatchersEnd: the search of an encoded body ends with its exchange, also if the request never left. Each search has
// a goroutine and a decoder.
// Promise: one-memory-budget
func TestWatchersEnd(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"calls": "1/h"}`)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	plain := make([]byte, 1<<20)
	_, _ = rand.Read(plain)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(plain)
	check(t, w.Close())
	for i, want := range []int{200, 429, 429, 429} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+demoHost+"/v1", bytes.NewReader(packed.Bytes()))
		check(t, err)
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Content-Encoding", "gzip")
		resp, err := r.client(false).Do(req)
		check(t, err)
		if body(t, resp); resp.StatusCode != want {
			t.Errorf("request %d: status %d; want %d", i, resp.StatusCode, want)
		}
	}
	testkit.WaitFor(t, func() bool {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		return !strings.Contains(all.String(), "coding.(*Body).AddWatcher")
	})
}
