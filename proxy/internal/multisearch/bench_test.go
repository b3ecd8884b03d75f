package multisearch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// texts are 1 MiB each.
func texts() map[string][]byte {
	rnd := rand.New(rand.NewPCG(3, 4))
	const size = 1 << 20
	var js, prose, binary, code bytes.Buffer
	for i := 0; js.Len() < size; i++ {
		fmt.Fprintf(&js, `{"id": %d, "name": "Customer %d", "email": "c%d@example.com", "amount": %d, "live": true},`+"\n", i, i, i, rnd.IntN(1e6))
	}
	for prose.Len() < size {
		prose.WriteString("The quick brown fox jumps over the lazy dog, and then it rests for a while under a tree.\n")
	}
	for binary.Len() < size {
		binary.WriteByte(byte(rnd.Uint32()))
	}
	for code.Len() < size {
		code.WriteString(`"func main() {\n\tfmt.Println(\"hello\")\n\tx := a[1] & 0xff\n}\n\u003ca href=\"https:\/\/example.com\/?a=1%20b\"\u003e",`)
	}
	return map[string][]byte{"json": js.Bytes()[:size], "prose": prose.Bytes()[:size], "binary": binary.Bytes()[:size], "escapes": code.Bytes()[:size]}
}

// patterns are n strings of 40 bytes.
func patterns(n int) []Pattern {
	rnd := rand.New(rand.NewPCG(1, 2))
	var ps []Pattern
	for i := range n {
		ps = append(ps, Pattern{Text: fmt.Sprintf("sk_live_%016x%016x", rnd.Uint64(), rnd.Uint64()), ID: i, Escaped: true})
	}
	return ps
}

// BenchmarkReader reads whole texts. "forms" is a catalog of so many values with all their forms.
func BenchmarkReader(b *testing.B) {
	for _, n := range []int{1, 8, 64, 1000, 10000} {
		set := New(patterns(n))
		for _, name := range []string{"json", "prose", "binary", "escapes"} {
			text := texts()[name]
			b.Run(fmt.Sprintf("patterns=%d/%s", n, name), func(b *testing.B) { readAll(b, set, text) })
		}
	}
	for _, n := range []int{8, 64} {
		var ps []Pattern
		for i, p := range patterns(n) {
			ps = append(ps, ListForms(p.Text, i)...)
		}
		set := New(ps)
		for _, name := range []string{"json", "prose", "binary", "escapes"} {
			text := texts()[name]
			b.Run(fmt.Sprintf("forms=%d/%s", n, name), func(b *testing.B) { readAll(b, set, text) })
		}
	}
}

// readAll reads a whole text again and again. cpu-MB/s is by processor time, which others on the machine disturb less.
func readAll(b *testing.B, set *Set, text []byte) {
	buf := make([]byte, 32<<10)
	src := bytes.NewReader(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	began, n := cpuTime(), 0
	for b.Loop() {
		n++
		src.Reset(text)
		r := set.NewReader(src, mark)
		for {
			if _, err := r.Read(buf); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(n)*float64(len(text))/1e6/(cpuTime()-began).Seconds(), "cpu-MB/s")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHostile reads the texts that are slowest to search.
func BenchmarkHostile(b *testing.B) {
	var ps []Pattern
	for i, p := range patterns(64) {
		ps = append(ps, ListForms(p.Text, i)...)
	}
	set := New(ps)
	for _, unit := range []string{`\`, "%25", "&amp;", "%5C", `\u005c`, "&#92;", "%%", "&&", "%73", "s&#", "sk_live_%3", `sk_live_\u003`, "&#0000115;"} {
		text := bytes.Repeat([]byte(unit), 1<<20/len(unit))
		b.Run(unit, func(b *testing.B) { readAll(b, set, text) })
	}
}
