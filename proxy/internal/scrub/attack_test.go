package scrub

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
)

type attackPieces struct {
	r     *rand.Rand
	data  []byte
	sizes []int
	i     int
}

func (a *attackPieces) Read(p []byte) (int, error) {
	if len(a.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), a.sizes[a.i%len(a.sizes)])], a.data)
	a.i++
	a.data = a.data[n:]
	if len(a.data) == 0 && a.r.IntN(2) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (a *attackPieces) Close() error { return nil }

func attackCode(t *testing.T, name string, text []byte) []byte {
	var b bytes.Buffer
	var w io.WriteCloser
	switch name {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, _ = flate.NewWriter(&b, 1)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	default:
		return text
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAttackBodies reads responses with values in several forms, under codings, charsets and lengths, in pieces of odd sizes.
func TestAttackBodies(t *testing.T) {
	long, _ := time.ParseDuration(os.Getenv("CODEFORGE_ATTACK"))
	seed := uint64(31)
	if long > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	r := rand.New(rand.NewPCG(seed, 4))
	values := []string{"sk_live_51Hx/Zq+canary==", "k3y-0042", strings.Repeat("Long-Value.", 90), "AKIA-MINTED-1234567890"}
	var creds []catalog.Credential
	for i, v := range values[:3] {
		creds = append(creds, catalog.Credential{Name: fmt.Sprint("KEY_", i), Value: secret.New(v)})
	}
	plain := New(creds)
	m := renewedvalues.New(nil)
	if err := m.AddValues(renewedvalues.Value{Name: "MINTED", Text: values[3], Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	above := plain.WithMinted(m)
	wide := func(s string, big bool) string {
		var b strings.Builder
		for i := range len(s) {
			if big {
				b.WriteByte(0)
			}
			b.WriteByte(s[i])
			if !big {
				b.WriteByte(0)
			}
		}
		return b.String()
	}
	sizes := []int{1, 2, 3, 15, 16, 17, 31, 33, 4095, 4096, 4097, 32767, 32768, 32769, 262143, 262144, 262145}
	began, n := time.Now(), 0
	for ; n < 150 || time.Since(began) < long; n++ {
		s, known := plain, values[:3]
		if r.IntN(2) == 0 {
			s, known = above, values
		}
		var text bytes.Buffer
		var cores []string
		for range 1 + r.IntN(4) {
			v := known[r.IntN(len(known))]
			form := v
			switch r.IntN(7) {
			case 0:
				form = wide(v, false)
			case 1:
				form = wide(v, true)
			case 2:
				form = hex.EncodeToString([]byte(v))
			case 3:
				form = strings.ReplaceAll(v, "e", `\u0065`)
			case 4:
				form = strings.ReplaceAll(v, "-", "%2d")
			case 5:
				form = strings.ReplaceAll(wide(v, false), "\x00", "\x00\x00\x00")
			}
			core := strings.Trim(form, "\x00")
			at := []int{0, 1, 4096, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 300_000}[r.IntN(8)] - []int{0, 1, len(form), len(form) / 2}[r.IntN(4)]
			for text.Len() < at {
				switch r.IntN(4) {
				case 0:
					text.WriteString(strings.Repeat("x", min(at-text.Len(), 1+r.IntN(5000))))
				case 1:
					text.WriteString(wide(strings.Repeat("y", 1+r.IntN(500)), false))
				case 2:
					text.WriteString("\n{\"a\": \"b\\n\"}\n")
				case 3:
					text.WriteString("%20\\\"&amp;\x00")
				}
			}
			text.WriteString(form)
			cores = append(cores, core)
		}
		text.WriteString(strings.Repeat("z", r.IntN(30)))
		coding := []string{"", "", "gzip", "deflate", "raw deflate", "br", "zstd"}[r.IntN(7)]
		kind := []string{"application/octet-stream", "application/json", "text/html", "text/event-stream", "image/png", ""}[r.IntN(6)]
		data := attackCode(t, coding, text.Bytes())
		resp := &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, ContentLength: -1, Trailer: http.Header{"X-Trail": {values[0]}}}
		if coding != "" {
			resp.Header.Set("Content-Encoding", strings.TrimPrefix(coding, "raw "))
		}
		if kind != "" {
			resp.Header.Set("Content-Type", kind)
		}
		if r.IntN(2) == 0 {
			resp.ContentLength = int64(len(data))
		}
		size := sizes[r.IntN(len(sizes))]
		if len(data) > 100_000 && size < 15 {
			size = 4097
		}
		resp.Body = &attackPieces{r, data, []int{size, sizes[3+r.IntN(len(sizes)-3)]}, 0}
		if _, err := s.ScrubResponse(resp, Options{Method: "GET"}); err != nil {
			continue
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		for _, core := range cores {
			// What a charset's decoder makes of a text is no longer these bytes; then the value itself must not be there.
			if bytes.Contains(got, []byte(core)) {
				t.Fatalf("seed %d: %.60q (%d bytes) came through %q %q in pieces of %d, length %d of %d, %v", seed, core, len(core), coding, kind, size, resp.ContentLength, len(data), err)
			}
		}
		for _, v := range known {
			if bytes.Contains(got, []byte(v)) || err == nil && strings.Contains(resp.Trailer.Get("X-Trail"), values[0]) {
				t.Fatalf("seed %d: %.60q came through %q %q", seed, v, coding, kind)
			}
		}
	}
	t.Log(n, "responses")
}
