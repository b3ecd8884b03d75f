package multisearch

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding/charmap"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// attackForms are ways to write a value that the promise every-echoed-form names, written without Forms and Pattern.
func attackForms(r *rand.Rand, v string) (text, core string) {
	spread := func(n int) string {
		var b strings.Builder
		for i := range len(v) {
			if i > 0 {
				b.WriteString(strings.Repeat("\x00", n))
			}
			b.WriteByte(v[i])
		}
		return b.String()
	}
	b64 := func(raw string, enc *base64.Encoding) (string, string) {
		pre := make([]byte, r.IntN(7))
		post := make([]byte, r.IntN(7))
		for i := range pre {
			pre[i] = byte(r.Uint32())
		}
		for i := range post {
			post[i] = byte(r.Uint32())
		}
		all := enc.EncodeToString([]byte(string(pre) + raw + string(post)))
		first, last := (8*len(pre)+5)/6, 8*(len(pre)+len(raw))/6
		return all, all[first:last]
	}
	one := func(i int, how func(byte) string) string { return v[:i] + how(v[i]) + v[i+1:] }
	every := func(how func(byte) string) string {
		var b strings.Builder
		for i := range len(v) {
			b.WriteString(how(v[i]))
		}
		return b.String()
	}
	some := func(how func(byte) string) string {
		rate := 1 + r.IntN(40)
		var b strings.Builder
		for i := range len(v) {
			if r.IntN(rate) == 0 {
				b.WriteString(how(v[i]))
			} else {
				b.WriteByte(v[i])
			}
		}
		return b.String()
	}
	escapes := []func(byte) string{
		func(b byte) string { return fmt.Sprintf("%%%02x", b) },
		func(b byte) string { return fmt.Sprintf("%%%02X", b) },
		func(b byte) string { return fmt.Sprintf("%%25%02X", b) },
		func(b byte) string { return fmt.Sprintf(`\u%04x`, b) },
		func(b byte) string { return fmt.Sprintf(`\\u%04X`, b) },
		func(b byte) string { return fmt.Sprintf("&#%d;", b) },
		func(b byte) string { return fmt.Sprintf("&#x%x;", b) },
		func(b byte) string { return fmt.Sprintf("&amp;#x%x;", b) },
		func(b byte) string { return fmt.Sprintf(`%%5Cu%04x`, b) },
		func(b byte) string { return fmt.Sprintf(`\u0025%02x`, b) },
	}
	how := escapes[r.IntN(len(escapes))]
	switch r.IntN(13) {
	case 0:
		return spread(1), spread(1)
	case 1:
		return spread(3), spread(3)
	case 2:
		text, core = b64(v, base64.StdEncoding)
		return text, core
	case 3:
		return b64(v, base64.RawURLEncoding)
	case 4:
		return b64(spread(1)+"\x00", base64.StdEncoding)
	case 5:
		h := hex.EncodeToString([]byte(v))
		return h, h
	case 6:
		h := strings.ToUpper(hex.EncodeToString([]byte(v)))
		return h, h
	case 7:
		page := []*charmap.Charmap{charmap.CodePage037, charmap.CodePage1047}[r.IntN(2)]
		s, _ := page.NewEncoder().String(v)
		return s, s
	case 8:
		s := one([]int{0, len(v) - 1, len(v) / 2, r.IntN(len(v))}[r.IntN(4)], how)
		return s, s
	case 9:
		if s := every(how); len(s) <= maxStretch*len(v) { // what takes more is not found
			return s, s
		}
	case 10:
		if s := some(how); len(s) <= maxStretch*len(v) {
			return s, s
		}
	}
	return v, v
}

func attackFiller(r *rand.Rand, kind, n int) []byte {
	b := make([]byte, n)
	switch kind {
	case 0:
		for i := range b {
			b[i] = 'x'
		}
	case 1:
		for i := range b {
			b[i] = byte(r.Uint32() >> 5)
		}
	case 2:
		copy(b, bytes.Repeat([]byte("some words, \"and\": 1\n"), n/20+1))
	case 3:
		copy(b, bytes.Repeat([]byte(`\"a%20&amp;\n`), n/10+1))
	case 4: // UTF-16
		for i := 0; i < n; i += 2 {
			b[i] = 'a' + byte(r.IntN(26))
		}
	case 5:
		for i := range b {
			if i%4096 == 0 {
				b[i] = 0
			} else {
				b[i] = 'y'
			}
		}
	case 6:
		for i := range b {
			b[i] = "%\\&;u0x4#"[r.IntN(9)]
		}
	case 7: // NULs alone
	}
	return b
}

var attackSizes = []int{1, 2, 3, 15, 16, 17, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 16383, 16384, 32767, 32768, 32769, 65536, 131071, 131072, 262143, 262144, 262145}

// attackReader reads in pieces of odd sizes, sometimes nothing, sometimes the end with the data.
type attackReader struct {
	r     *rand.Rand
	text  []byte
	sizes []int
	i     int
	eof   bool
}

func (a *attackReader) Read(p []byte) (int, error) {
	if len(a.text) == 0 {
		return 0, io.EOF
	}
	if a.r.IntN(20) == 0 {
		return 0, nil
	}
	n := copy(p[:min(len(p), a.sizes[a.i%len(a.sizes)])], a.text)
	a.i++
	a.text = a.text[n:]
	if len(a.text) == 0 && a.eof {
		return n, io.EOF
	}
	return n, nil
}

func attackValue(r *rand.Rand, n int) string {
	alphabet := []string{
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "0123456789abcdef", "ab", "sk_live-+/=.~", "aZ0!#$()*,-./:;<=>?@[]^_`{|}~ '\"",
	}[r.IntN(5)]
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// TestAttackBorders puts values in every promised form at borders of reads and of buffers. CODEFORGE_ATTACK=10m makes it
// longer.
func TestAttackBorders(t *testing.T) {
	long, _ := time.ParseDuration(os.Getenv("CODEFORGE_ATTACK"))
	seed := uint64(11)
	if long > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	r := rand.New(rand.NewPCG(seed, 4))
	began, streams, planted := time.Now(), 0, 0
	for round := 0; round < testkit.ChooseRepeats(2, 4) || time.Since(began) < long; round++ {
		n := []int{1, 2, 8, 64, 500}[r.IntN(5)]
		if long == 0 {
			n = min(n, 64)
		}
		lengths := []int{8, 9, 10, 12, 15, 16, 17, 24, 31, 32, 33, 40, 64, 100, 255, 256, 257, 1000, 4096, 8191, 8192}
		var values []string
		var ps []Pattern
		prefix, suffix := attackValue(r, 20), attackValue(r, 20)
		for id := range n {
			size := lengths[r.IntN(len(lengths))]
			if n > 8 {
				size = lengths[r.IntN(13)]
			}
			v := attackValue(r, size)
			switch r.IntN(5) {
			case 0:
				v = prefix + v
			case 1:
				v += suffix
			case 2:
				if len(values) > 0 {
					v = v[:4] + values[r.IntN(len(values))] + v[4:]
				}
			}
			if n <= 8 && r.IntN(5) == 0 {
				v = []string{"%", `\`, "&", "=", "%2", "&#"}[r.IntN(6)] + v
			}
			if n <= 8 && r.IntN(5) == 0 {
				v += []string{"%", `\`, "&", "=", "%2", "&#", ";"}[r.IntN(7)]
			}
			v = strings.TrimSpace(v)
			if len(v) < 8 || len(v) > 8192 {
				v = "sk-0123456789-" + fmt.Sprint(id)
			}
			values = append(values, v)
			ps = append(ps, ListForms(v, id)...)
		}
		var set *Set
		switch r.IntN(4) {
		case 0:
			half := len(ps) / 2
			top := New(ps[half:])
			set = New(ps[:half]).WithLayer(8192, func() *Set { return top })
		case 1:
			half := len(ps) / 2
			set = New(ps[:half]).JoinSet(New(ps[half:]))
		default:
			set = New(ps)
		}
		odd := set.esc.anOdd
		for range 40 {
			if long > 0 && time.Since(began) > long {
				break
			}
			hold := set.MaxHeld()
			size := attackSizes[r.IntN(len(attackSizes))]
			var text []byte
			var cores []string
			kind := r.IntN(8)
			if odd && (kind == 3 || kind == 6) {
				kind = 0
			}
			for range 1 + r.IntN(5) {
				borders := []int{0, size, 2 * size, hold, bufferSize, bufferSize / 2, bufferSize + hold, bufferSize + 2*hold, 4096, 32 << 10, 64 << 10}
				form, core := attackForms(r, values[r.IntN(len(values))])
				at := borders[r.IntN(len(borders))] - []int{0, 1, len(form), len(form) - 1, len(form) / 2, len(form) + 1}[r.IntN(6)] + r.IntN(3) - 1
				if size < 100 {
					at = min(at, 3000+r.IntN(50))
				}
				if gap := at - len(text); gap > 0 {
					if r.IntN(3) == 0 {
						kind = r.IntN(8)
						if odd && (kind == 3 || kind == 6) {
							kind = 0
						}
					}
					text = append(text, attackFiller(r, kind, gap)...)
				} else {
					text = append(text, attackFiller(r, kind, r.IntN(40))...)
				}
				if kind == 6 || kind == 3 { // what is before may be the beginning of an escape
					text = append(text, "zz"...)
				}
				text = append(text, form...)
				cores = append(cores, core)
			}
			text = append(text, attackFiller(r, kind, r.IntN(300))...)
			whole := string(text)
			sizes := []int{size}
			if r.IntN(2) == 0 {
				sizes = append(sizes, attackSizes[r.IntN(len(attackSizes))], size+1)
			}
			src := &attackReader{r: r, text: bytes.Clone(text), sizes: sizes, eof: r.IntN(2) == 0}
			got, err := io.ReadAll(set.NewReader(src, func(int) (string, error) { return "<>", nil }))
			if err != nil {
				t.Fatal(err)
			}
			streams++
			replaced, _ := set.ReplaceAll(whole, func(int) string { return "<>" })
			for _, core := range cores {
				planted++
				if strings.Contains(string(got), core) || strings.Contains(replaced, core) {
					_ = os.WriteFile("/tmp/attack.text", text, 0o600)
					t.Fatalf("seed %d round %d: %d values; %.200q (%d bytes) by %v came through: streamed %v, whole %v; odd %v",
						seed, round, n, core, len(core), sizes, strings.Contains(string(got), core), strings.Contains(replaced, core), odd)
				}
			}
			if string(got) != replaced && n < 500 {
				_ = os.WriteFile("/tmp/attack.text", text, 0o600)
				t.Fatalf("seed %d round %d: streamed by %v differs from whole; %d values, lengths %d %d, odd %v", seed, round, sizes, n, len(got), len(replaced), odd)
			}
		}
	}
	t.Log(streams, "streams", planted, "planted")
}

// TestAttackSameText: a value that is another's hexadecimal digits is found escaped too, whichever comes first.
func TestAttackSameText(t *testing.T) {
	const a, b = "k3y-0042", "6b33792d30303432"
	for _, ps := range [][]Pattern{append(ListForms(a, 1), ListForms(b, 2)...), append(ListForms(b, 2), ListForms(a, 1)...)} {
		for _, text := range []string{b, "%36b33792d30303432", `\u0036b33792d30303432`, "6b33792d3030343&#50;"} {
			if !New(ps).Contains(text) {
				t.Errorf("%q is not found", text)
			}
		}
	}
}
