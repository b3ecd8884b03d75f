package egress_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

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
	testkit.WaitFor(t, func() bool { return r.memory.UsedBytes() > 32<<20 })
	for range 8 {
		stuck(t, r)
	}
	testkit.WaitFor(t, func() bool { return r.memory.UsedBytes() > 40<<20 })
	if n := r.memory.UsedBytes(); n > budgetSize/4 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestAnsweredHeads: a client over HTTP/2 that takes no answer makes the proxy keep no heads of its requests, which are
// on the budget only until they are answered.
// Promise: one-memory-budget
func TestAnsweredHeads(t *testing.T) {
	r := newRig(t, setup{})
	defer r.begin()()
	const conns, streams, large = 4, 60, 48 << 10
	before := heap()
	for range conns {
		r.takeHeads("TRACE", streams, large)
	}
	if grown := heap() - before; grown > conns*streams*large/4 {
		t.Errorf("%d KiB are held for %d answers that nobody takes", grown>>10, conns*streams)
	}
}

// TestUntakenHeads: the head of an answer is on the budget until the client has taken the answer.
// Promise: one-memory-budget
func TestUntakenHeads(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 50 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 4<<10))
		}
		_, _ = io.WriteString(w, "answer")
	}))
	defer r.begin()()
	const streams = 30
	r.takeHeads("GET", streams, 10)
	time.Sleep(time.Second) // an exchange that ends does so now
	if n := r.memory.UsedBytes(); n < streams*200<<10 {
		t.Errorf("%d KiB are on the budget for the heads of %d answers", n>>10, streams)
	}
}

// takeHeads sends requests with heads of a size from slot 0 and takes the heads of their answers, but no bodies.
func (r *rig) takeHeads(method string, streams, size int) {
	r.t.Helper()
	c, err := tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: demoHost, NextProtos: []string{"h2"}})
	check(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, http2.ClientPreface)
	check(r.t, err)
	f := http2.NewFramer(c, c)
	check(r.t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for i := range streams {
		writeHead(r.t, f, uint32(2*i+1), method, size)
	}
	for answered := 0; answered < streams; {
		frame, err := f.ReadFrame()
		check(r.t, err)
		if frame.Header().Type == http2.FrameHeaders {
			answered++
		}
	}
}

// writeHead sends a request without a body.
func writeHead(t testing.TB, f *http2.Framer, id uint32, method string, size int) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", method}, {":scheme", "https"}, {":authority", demoHost}, {":path", "/"}, {"x", strings.Repeat("^~", size/2)},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	first := true
	for rest := block.Bytes(); len(rest) > 0 || first; first = false {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		if first {
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndStream: true, EndHeaders: len(rest) == 0}))
		} else {
			check(t, f.WriteContinuation(id, len(rest) == 0, part))
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
