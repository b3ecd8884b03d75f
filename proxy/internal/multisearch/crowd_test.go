package multisearch

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A crowd is a set and a text that has it many times.
type crowd struct {
	set  *Set
	text func(size int, write func(value string) string) string
}

// crowds are texts that are nothing but values of a set, written in ways that escape some of their characters.
func crowds() map[string]crowd {
	rnd := rand.New(rand.NewPCG(5, 6))
	random := func(n int, alphabet string) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(b)
	}
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	short, odd, long := random(20, plain), random(9, plain)+`%2\&`+random(9, plain), random(8<<10, plain)
	all := func(values ...string) *Set {
		var ps []Pattern
		for i, v := range values {
			ps = append(ps, ListForms(v, i)...)
		}
		return New(ps)
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = random(20+rnd.IntN(20), plain)
	}
	// Up to three layers around each so many characters: all in three layers is longer than what is found.
	layers := func(n, every int) func(string) string {
		return func(v string) string {
			var out strings.Builder
			for i := range len(v) {
				c := v[i : i+1]
				for layer := range n {
					if i%every == 0 {
						c = fmt.Sprintf([]string{`\u%04x`, "%%%02x", "&#%d;"}[(i+layer)%3], c[0]) + c[1:]
					}
				}
				out.WriteString(c)
			}
			return out.String()
		}
	}
	ways := map[string]func(string) string{
		"literal": func(v string) string { return v },
		"first":   func(v string) string { return fmt.Sprintf("%%%02x", v[0]) + v[1:] },
		"last":    func(v string) string { return v[:len(v)-1] + fmt.Sprintf("&#x%x;", v[len(v)-1]) },
		"all":     layers(1, 1), "nested": layers(3, 4),
	}
	sets := map[string]crowd{}
	add := func(name string, set *Set, values ...string) {
		for way, write := range ways {
			sets[name+" "+way] = crowd{set, func(size int, then func(string) string) string {
				var out strings.Builder
				for i := 0; out.Len() < size; i++ {
					out.WriteString(then(write(values[i%len(values)])) + ".")
				}
				return out.String()
			}}
		}
	}
	add("one", all(short), short)
	add("odd", all(odd), odd)
	add("beside a short and a long one", all(short, "k8_Zr.q5", long), short)
	add("long", all(long, short), long)
	add("many", all(many...), many...)
	top := all(short)
	add("above", all("fixed-canary-1").JoinSet(all("other-canary-1")).WithLayer(64, func() *Set { return top }), short)
	ways = map[string]func(string) string{"UTF-16": toUTF16}
	add("one", all(short, long), short)
	return sets
}

// cost is the least processor time of some searches, of the whole and in a stream.
func cost(t *testing.T, set *Set, text string) time.Duration {
	least := time.Hour
	for range 3 {
		began := cpuTime()
		set.ReplaceAll(text, func(int) string { return "NAME" })
		r := set.NewReader(strings.NewReader(text), func(int) (string, error) { return "NAME", nil })
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		least = min(least, cpuTime()-began)
	}
	return least
}

// TestCrowdCost: a text that is full of values takes a few times what one takes that nearly has as many, not thousands of
// times.
func TestCrowdCost(t *testing.T) {
	for name, c := range crowds() {
		full := c.text(1<<16, func(v string) string { return v })
		nearly := c.text(1<<16, func(v string) string { return v[:len(v)/2] + "!" + v[len(v)/2+1:] })
		a, b := cost(t, c.set, full), cost(t, c.set, nearly)
		_, n := c.set.ReplaceAll(full, func(int) string { return "" })
		t.Logf("%-42s %5d values take %10v, nearly values %10v, %.1f times", name, n, a, b, float64(a)/float64(b))
		if n == 0 || a > 20*b {
			t.Fatalf("%s: %d values in %d bytes take %v, nearly values %v", name, n, len(full), a, b)
		}
	}
}

// TestCrowdLongest: of two matches at one place the longer counts, wherever it stands in the blocks of a text that is
// searched, and however far behind the end of the shorter its other escapes are.
func TestCrowdLongest(t *testing.T) {
	const long = "sk_live_51HxZqPm7vTbW3nKd9LcYf2RgJs4-AbCdEfGh"
	set := New([]Pattern{{Text: long, ID: 1, Escaped: true}, {Text: long[:10], ID: 2, Escaped: true}})
	for k := 10; k < len(long); k += 3 {
		match := "%26%23%30%31%31%35;" + long[1:k]
		for _, c := range []byte(long[k:]) {
			match += fmt.Sprintf(`\u%04x`, c)
		}
		for n := range spellBlock + 50 {
			before := strings.Repeat("%41zzzzzzzzzzz", n)[:n]
			if got := replaceAll(set, before+match); got != before+"<1>" {
				t.Fatalf("%s after %d bytes became %q", match, n, got[n:])
			}
		}
	}
}
