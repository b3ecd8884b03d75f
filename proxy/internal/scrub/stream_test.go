package scrub

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
)

// TestEventsLeaveAtOnce sends an event, and the next one only after the first came through scrubbed.
func TestEventsLeaveAtOnce(t *testing.T) {
	s := New(creds())
	for _, name := range encodings {
		pr, pw := io.Pipe()
		resp := respond(-1, pr, "Content-Type", "text/event-stream", "Content-Encoding", label(name))
		if _, err := s.ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		next := make(chan bool)
		go func() {
			var w flusher = plain{pw}
			if name != "identity" {
				w = encoder(t, name, pw)
			}
			for i := 0; <-next; i++ {
				_, _ = fmt.Fprintf(w, "data: %d %s\n\n", i, canary)
				_ = w.Flush()
			}
			_ = w.Close()
			_ = pw.Close()
		}()
		done := make(chan error, 1)
		go func() {
			defer close(done)
			for i := range 20 {
				next <- true
				want := fmt.Sprintf("data: %d STRIPE_AUTH_TOKEN\n\n", i)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					done <- fmt.Errorf("got %q, %w", got, err)
				}
			}
			next <- false
			if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
				done <- fmt.Errorf("then %q, %w", rest, err)
			}
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("%s: an event is held back", name)
		}
	}
}

type plain struct{ io.WriteCloser }

func (plain) Flush() error { return nil }

// TestNoOracle: what has left before an upstream pauses is the same for a true and a false guess.
// Promise: no-oracle
func TestNoOracle(t *testing.T) {
	s := New(creds())
	left := func(text string, how framing.Kind) (n int) {
		synctest.Test(t, func(t *testing.T) {
			pr, pw := io.Pipe()
			resp := respond(-1, pr)
			if _, err := s.ScrubResponse(resp, Options{Framing: how}); err != nil {
				t.Fatal(err)
			}
			var got atomic.Int64
			go func() {
				buf := make([]byte, 4096)
				for {
					c, err := resp.Body.Read(buf)
					got.Add(int64(c))
					if err != nil {
						return
					}
				}
			}()
			_, _ = io.WriteString(pw, text)
			synctest.Wait() // the pause: whatever leaves before more comes has left
			n = int(got.Load())
			_ = pw.Close()
			synctest.Wait()
		})
		return n
	}
	for _, before := range []string{"", "event\n", strings.Repeat("y", 3000)} {
		for n := 4; n < len(canary); n += 5 {
			if a, b := left(before+canary[:n], framing.None), left(before+canary[:n-1]+"~", framing.None); a != b {
				t.Errorf("%q: %d bytes left, of a false guess %d", before+canary[:n], a, b)
			}
		}
	}
	// By message, what has left depends on the length in the head, the line feed or the bracket alone.
	for how, frame := range map[framing.Kind]struct{ before, after string }{
		framing.Lengths: {"\x00\x00\x00\x00\x03abc\x00\x00\x00\x00\x20" + strings.Repeat("x", 8), strings.Repeat("y", 24)},
		framing.Lines:   {"{}\n{\"guess\": \"", "\"}\n"},
		framing.JSON:    {"[{},{\"guess\": \"", "\"}"},
	} {
		for n := 4; n < len(canary); n += 5 {
			rest := frame.after
			if how == framing.Lengths {
				rest = rest[:24-n]
			}
			right, wrong := frame.before+canary[:n], frame.before+canary[:n-1]+"~"
			if a, b := left(right, how), left(wrong, how); a != b || a == 0 || a >= len(frame.before) {
				t.Errorf("%q: %d bytes left, of a false guess %d", right, a, b)
			}
			if a, b := left(right+rest, how), left(wrong+rest, how); a != b || a != len(right+rest) {
				t.Errorf("%q: of a complete message %d bytes left, of a false guess %d", right+rest, a, b)
			}
		}
	}
}

func TestBombs(t *testing.T) {
	s := New(creds())
	zeros := make([]byte, 1<<20)
	for _, names := range [][]string{{"br"}, {"zstd"}, {"gzip", "gzip"}, {"gzip", "br"}, {"zlib"}} {
		var b bytes.Buffer
		var w io.WriteCloser = plain{nopCloser{&b}}
		closers := []io.Closer{}
		for i := len(names) - 1; i >= 0; i-- {
			e := encoder(t, names[i], w)
			closers = append([]io.Closer{e}, closers...)
			w = e
		}
		for range 40 {
			if _, err := w.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range closers {
			_ = c.Close()
		}
		var header []string
		for _, n := range names {
			header = append(header, "Content-Encoding", label(n))
		}
		resp := respond(-1, &b, header...)
		if _, err := s.ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, coding.ErrRatio) || n > coding.RatioFrom+1<<20 {
			t.Errorf("%v: %d bytes, %v", names, n, err)
		}
		_ = resp.Body.Close()
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestUpstream reads from a real server over both protocols.
func TestUpstream(t *testing.T) {
	s := New(creds())
	const large = 64 << 20
	line := []byte(strings.Repeat("0123456789abcde ", 4096)[:65535] + "\n")
	mux := http.NewServeMux()
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Echo")
		for i := range len(canary) {
			_, _ = w.Write([]byte{canary[i]})
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Echo", canary)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(large+len(canary)))
		for range large / len(line) {
			_, _ = w.Write(line)
		}
		_, _ = io.WriteString(w, canary)
	})
	mux.HandleFunc("/abort", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half\n"+canary[:20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, h2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(mux)
		server.Config.ErrorLog = nil
		server.EnableHTTP2 = h2
		server.StartTLS()
		client := server.Client().Transport.(*http.Transport)
		client.ForceAttemptHTTP2 = h2
		if !h2 {
			client.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		get := func(path string) *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if (resp.ProtoMajor == 2) != h2 {
				t.Fatalf("got %s", resp.Proto)
			}
			if _, err := s.ScrubResponse(resp, Options{}); err != nil {
				t.Fatal(err)
			}
			return resp
		}
		resp := get("/bytes")
		if got, err := io.ReadAll(resp.Body); string(got) != "STRIPE_AUTH_TOKEN" || err != nil || resp.Trailer.Get("X-Echo") != "STRIPE_AUTH_TOKEN" {
			t.Errorf("%s: got %q, %v, %v", resp.Proto, got, err, resp.Trailer)
		}
		_ = resp.Body.Close()
		resp = get("/large")
		var tail tailWriter
		n, err := io.Copy(&tail, resp.Body)
		if want := int64(large + len("STRIPE_AUTH_TOKEN")); n != want || err != nil || !strings.HasSuffix(string(tail), "STRIPE_AUTH_TOKEN") {
			t.Errorf("%s: got %d of %d bytes, %v, %q", resp.Proto, n, want, err, tail)
		}
		_ = resp.Body.Close()
		resp = get("/abort")
		if got, err := io.ReadAll(resp.Body); string(got) != "half\n" || err == nil {
			t.Errorf("%s: an abort gave %q, %v", resp.Proto, got, err)
		}
		_ = resp.Body.Close()
		server.Close()
	}
}

// tailWriter keeps the last bytes.
type tailWriter []byte

func (w *tailWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	*w = (*w)[max(0, len(*w)-40):]
	return len(p), nil
}

// TestConstantMemory scrubs 64 MiB, less of what is slow to encode, and checks the live heap.
func TestConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := New(creds())
	const noise = 4096 // so that the ratio stays small
	random := rand.New(rand.NewPCG(1, 2))
	block := []byte(strings.Repeat("x", noise) + canary + "\n")
	for _, name := range encodings {
		size := 16 << 20
		if name != "identity" { // which the race detector makes very slow
			size = 4 << 20
		}
		pr, pw := io.Pipe()
		go func() {
			var w flusher = plain{pw}
			if name != "identity" {
				w = encoder(t, name, pw)
			}
			for range size / len(block) {
				for i := range noise / 8 {
					block[8*i+int(random.Uint32()%8)] = 'a' + byte(random.Uint32()%26)
				}
				_, _ = w.Write(block)
			}
			_ = w.Close()
			_ = pw.Close()
		}()
		resp := respond(-1, pr, "Content-Encoding", label(name))
		report, err := s.ScrubResponse(resp, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var before, now runtime.MemStats
		buf := make([]byte, 32<<10)
		var most uint64
		for i := 0; ; i++ {
			_, err := resp.Body.Read(buf)
			if i == 20 {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			if i > 20 && i%20 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
			if err != nil {
				if err != io.EOF {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
		}
		_ = resp.Body.Close()
		if want := size / len(block); report.Count() != want {
			t.Errorf("%s: %d of %d", name, report.Count(), want)
		}
		if grown := int64(most) - int64(before.HeapAlloc); grown > 6<<20 {
			t.Errorf("%s: the heap grew by %d KiB", name, grown>>10)
		}
	}
}

// FuzzBody compares a body in an encoding, in pieces, with the whole text.
// Promise: scrubbed-responses
func FuzzBody(f *testing.F) {
	for i := range encodings {
		f.Add("x "+canary+"\n c2tfbGl2ZV81MUh4L1pxK2NhbmFyeT09 sk_live_51Hx%2FZq&#43;canary==", uint8(i), uint8(0), uint8(3), false)
	}
	s := New(creds("SECOND_TOKEN", "%41%42/\\&aaaa"))
	f.Fuzz(func(t *testing.T, text string, inner, outer, size uint8, known bool) {
		a, b := encodings[int(inner)%len(encodings)], encodings[int(outer)%len(encodings)]
		coded := encode(t, b, encode(t, a, []byte(text)))
		length := int64(-1)
		if known {
			length = int64(len(coded))
		}
		// Of a text without a type, zero bytes at the beginning would mean UTF-16 or UTF-32: see FuzzCharset.
		resp := respond(length, &pieces{coded, int(size)}, "Content-Type", "application/octet-stream",
			"Content-Encoding", label(a), "Content-Encoding", label(b))
		if _, err := s.ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := s.String(text); err != nil || string(got) != want {
			t.Fatalf("%q in %s in %s: got %q, %v, want %q", text, a, b, got, err, want)
		}
		if strings.Contains(string(got), canary) { // what String misses too
			t.Fatalf("%q in %s in %s: the credential came through", text, a, b)
		}
		if known && resp.ContentLength != int64(len(got)) {
			t.Fatalf("length is %d, not %d", resp.ContentLength, len(got))
		}
	})
}

// FuzzBroken gives the decoders anything. They must end, bounded, without a panic.
func FuzzBroken(f *testing.F) {
	for i, name := range encodings[1:] {
		f.Add(encode(f, name, []byte("some text, some more text "+canary)), uint8(i), uint8(7))
	}
	s := New(creds())
	f.Fuzz(func(t *testing.T, data []byte, which, size uint8) {
		name := label(encodings[1+int(which)%5])
		resp := respond(-1, &pieces{data, int(size)}, "Content-Encoding", name)
		if _, err := s.ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		var begin bytes.Buffer
		n, err := io.Copy(&begin, io.LimitReader(resp.Body, 1<<20))
		if err == nil {
			var more int64
			more, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 63<<20))
			n += more
		}
		if bytes.Contains(begin.Bytes(), []byte(canary)) {
			t.Fatal("the credential came through")
		}
		if err != nil && !errors.Is(err, coding.ErrBroken) && !errors.Is(err, coding.ErrRatio) || n > int64(len(data)+1)*coding.Ratio+coding.RatioFrom {
			t.Fatalf("%d bytes, %v", n, err)
		}
		_ = resp.Body.Close()
	})
}

type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), max(1, p.size))], p.data)
	p.data = p.data[n:]
	return n, nil
}

func BenchmarkBody(b *testing.B) {
	var text bytes.Buffer
	for i := 0; text.Len() < 4<<20; i++ {
		fmt.Fprintf(&text, `{"id": %d, "name": "Customer %d", "live": true},`+"\n", i, i*7919%10007)
	}
	s := New(creds("B_TOKEN", "ghp_0123456789abcdefghijABCDEFGHIJ", "C_TOKEN", "xoxb-123456789012-abcdefghijklmnop"))
	for _, name := range encodings {
		for _, size := range []int{2 << 10, 100 << 10, 4 << 20} {
			plain := text.Bytes()[:size]
			coded := encode(b, name, plain)
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				buf := make([]byte, 32<<10)
				for b.Loop() {
					resp := respond(int64(len(coded)), bytes.NewReader(coded), "Content-Encoding", label(name))
					if _, err := s.ScrubResponse(resp, Options{}); err != nil {
						b.Fatal(err)
					}
					for {
						if _, err := resp.Body.Read(buf); err != nil {
							break
						}
					}
					_ = resp.Body.Close()
				}
			})
		}
	}
}
