package multisearch

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// TestWide: values of any length are found in UTF-16 and UTF-32 at any position, between bytes with and without NULs,
// whatever the sizes of the reads, and text that differs in one byte is left unchanged.
func TestWide(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32() >> 3)
		}
		return string(b)
	}
	for _, value := range []string{"k3y-0042", "k3y-00423", "sk_live_" + strings.Repeat("a1B2", 8)} {
		set := New(append(ListForms(value, 1), ListForms("another-value-that-is-long", 2)...))
		for name, write := range map[string]func(string) string{"UTF-16": toUTF16, "UTF-32": toUTF32} {
			text := write(value)
			wrong := []byte(text)
			wrong[len(text)/2/4*4] ^= 1
			for at := range 80 {
				for _, around := range []func(int) string{noise, func(n int) string { return strings.Repeat("x", n) }} {
					before, after := around(at), around(70)
					for _, found := range []bool{true, false} {
						middle, want := text, write("<1>")
						if !found {
							middle, want = string(wrong), string(wrong)
						}
						want = before + want + after
						if got := replaceAll(set, before+middle+after); got != want {
							t.Fatalf("%s of %d at %d, to be found %t: %q, want %q", name, len(value), at, found, got, want)
						}
						src := iotest.HalfReader(bytes.NewReader([]byte(before + middle + after)))
						if got, err := io.ReadAll(set.NewReader(src, mark)); string(got) != want || err != nil {
							t.Fatalf("%s of %d at %d, read, to be found %t: %q, %v", name, len(value), at, found, got, err)
						}
					}
				}
			}
		}
	}
}

// TestFarApart: some forms are searched for only after a certain byte. Values in these forms are found however far
// apart such bytes are.
func TestFarApart(t *testing.T) {
	const value = "sk_live_a1B2c3D4e5F6g7H8"
	set := New(ListForms(value, 1))
	forms := []string{
		toUTF16(value), toUTF32(value), strings.ReplaceAll(value, "_", "%5f"), strings.ReplaceAll(value, "1", `\u0031`),
		strings.ReplaceAll(value, "a", "&#97;"),
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		var text strings.Builder
		const times = 30
		for range times {
			text.WriteString(strings.Repeat("x", rnd.IntN(100_000)))
			text.WriteString(forms[rnd.IntN(len(forms))])
		}
		found := 0
		src := &pacer{strings.NewReader(text.String()), 1 + rnd.IntN(40_000)}
		_, err := io.Copy(io.Discard, set.NewReader(src, func(int) (string, error) { found++; return "", nil }))
		if found != times || err != nil {
			t.Fatalf("%d of %d in reads of %d, %v", found, times, src.most, err)
		}
	}
}

// pacer limits how many bytes each read returns.
type pacer struct {
	io.Reader
	most int
}

func (p *pacer) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }
