package multisearch

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const canary = "sk_live_51Hx/Zq+canary=="

// echoes are some ways in which a canary comes back.
var echoes = map[string]string{
	"raw": canary, "percent": "sk_live_51Hx%2FZq%2Bcanary%3D%3D", "json": `sk_live_51Hx\/Zq\u002bcanary==`,
	"html": "sk_live_51Hx&#x2F;Zq&#43;canary==", "hex": "736b5f6c6976655f353148782f5a712b63616e6172793d3d",
	"base64 0": "c2tfbGl2ZV81MUh4L1pxK2NhbmFyeT09", "base64 1": "YTpza19saXZlXzUxSHgvWnErY2FuYXJ5PT0=", "url": "Onxza19saXZlXzUxSHgvWnErY2FuYXJ5PT0",
}

// chunks reads text in pieces of alternating sizes.
type chunks struct {
	text  string
	sizes []int
	i     int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := min(len(p), len(c.text), max(1, c.sizes[c.i%len(c.sizes)]))
	c.i++
	copy(p, c.text[:n])
	c.text = c.text[n:]
	return n, nil
}

// TestReaderSplits puts echoes at many positions around the boundaries of reads and of the buffer.
func TestReaderSplits(t *testing.T) {
	set := New(ListForms(canary, 1))
	fillers := map[string]string{"letters": "x", "lines": "abc def\n", "escapes": `\"a%20&amp;`}
	sizes := []int{1, 3, 256, 4096, 64 << 10, bufferSize + 2*set.hold}
	if testkit.IsThorough() {
		sizes = append(sizes, 2, 7, 255, 257, 32<<10) // FuzzReader tries sizes too
	}
	for name, echo := range echoes {
		for filler, unit := range fillers {
			for _, size := range sizes {
				for _, at := range []int{0, 1, size - len(echo), size - 20, size - 1, size, size + 1, 2*size - 11, set.hold, bufferSize - 5, bufferSize + 2*set.hold - 9} {
					if at < 0 || size < 100 && at > 5000 {
						continue
					}
					text := strings.Repeat(unit, at/len(unit)+1)[:at] + " " + echo + " tail"
					want := replaceAll(set, text)
					if !strings.Contains(want, "<1>") {
						t.Fatalf("%s: not found", name)
					}
					got, err := io.ReadAll(set.NewReader(&chunks{text: text, sizes: []int{size}}, mark))
					if err != nil || string(got) != want {
						t.Fatalf("%s among %s, reads of %d, at %d: differs (%v)", name, filler, size, at, err)
					}
				}
			}
		}
	}
}

func TestReaderOneByte(t *testing.T) {
	set := New(append(ListForms("abcdefgh/ijk", 1), Pattern{Text: "abcdefgh", ID: 2}))
	text := "xxabcdefgh\\/ijkabcdefghabcdefgh/ijk&#97;bcdefgh/ij\nabcdefgh" + strings.Repeat("y", 2000) + "abcdefgh/ijkabcd"
	want := replaceAll(set, text)
	for name, src := range map[string]io.Reader{
		"whole": strings.NewReader(text), "byte": iotest.OneByteReader(strings.NewReader(text)),
		"half": iotest.HalfReader(strings.NewReader(text)), "data and error": iotest.DataErrReader(strings.NewReader(text)),
	} {
		got, err := io.ReadAll(iotest.OneByteReader(set.NewReader(src, mark)))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if err := iotest.TestReader(set.NewReader(strings.NewReader(text), mark), []byte(want)); err != nil {
		t.Error(err)
	}
}

func TestReaderErrors(t *testing.T) {
	set := New(ListForms(canary, 1))
	broken := errors.New("broken")
	r := set.NewReader(io.MultiReader(strings.NewReader("one\ntwo "+canary+"\nsk_live_51Hx/Zq+canary="), iotest.ErrReader(broken)), mark)
	got, err := io.ReadAll(r)
	if string(got) != "one\ntwo <1>\n" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, broken) {
		t.Errorf("then %v", err)
	}
	r = set.NewReader(strings.NewReader("one "+canary+" two"), func(int) (string, error) { return "", broken })
	if got, err := io.ReadAll(r); string(got) != "one " || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
	r = set.NewReader(strings.NewReader("one"), mark)
	r.Stop()
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("a stopped reader reads")
	}
	if _, err := set.NewReader(idle{}, mark).Read(make([]byte, 1)); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

// idle never has anything.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// steps feeds pieces one at a time and notes how many bytes had left before each.
func steps(set *Set, pieces []string) []int {
	var left []int
	n := 0
	src := &stepper{pieces: pieces, before: func() { left = append(left, n) }}
	r := set.NewReader(src, mark)
	buf := make([]byte, 64)
	for {
		c, err := r.Read(buf)
		n += c
		if err != nil {
			return append(left, n)
		}
	}
}

type stepper struct {
	pieces []string
	before func()
}

func (s *stepper) Read(p []byte) (int, error) {
	s.before()
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces = s.pieces[1:]
	return n, nil
}

// TestNoOracle: a true and a false guess of every prefix of every echo leave at the same byte, whatever comes before.
// Promise: no-oracle
func TestNoOracle(t *testing.T) {
	set := New(ListForms(canary, 1))
	for name, echo := range echoes {
		for _, before := range []string{"", "data: ", "x\n", strings.Repeat("y", 255), strings.Repeat("z", 5000)} {
			for n := 1; n < len(echo); n++ {
				right, wrong := echo[:n], echo[:n-1]+"~"
				if set.Contains(right) {
					break // what is missing is padding
				}
				for _, split := range []int{0, n / 2, n} {
					a := steps(set, []string{before, right[:split], right[split:], "~", "~~", "\n", "rest"})
					b := steps(set, []string{before, wrong[:split], wrong[split:], "~", "~~", "\n", "rest"})
					if fmt.Sprint(a) != fmt.Sprint(b) {
						t.Fatalf("%s: %q left at %v, %q at %v", name, right, a, wrong, b)
					}
				}
			}
		}
	}
}

// TestLinesLeaveAtOnce: a finished line leaves before anything more is read.
func TestLinesLeaveAtOnce(t *testing.T) {
	set := New(ListForms(canary, 1))
	got := steps(set, []string{"data: 1\n\n", "data: " + canary[:9], canary[9:] + "\n\n", "{}\n", strings.Repeat("x", 3*set.hold)})
	want := []int{0, 9, 9, 9 + 6 + 3 + 2, 23, 23 + 2*set.hold - 1, 23 + 3*set.hold}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

// TestConstantMemory reads an endless stream of lines and of letters.
func TestConstantMemory(t *testing.T) {
	set := New(ListForms(canary, 1))
	text := strings.Repeat("some text without an end ", 40) + canary
	for _, end := range []string{"\n", ""} {
		r := set.NewReader(&endless{text: text + end}, func(int) (string, error) { return "NAME", nil })
		buf := make([]byte, 32<<10)
		read := func() {
			for range 64 {
				if _, err := r.Read(buf); err != nil {
					t.Fatal(err)
				}
			}
		}
		read()
		if n := testing.AllocsPerRun(20, read); n > 1 {
			t.Errorf("%v allocations", n)
		}
		if len(*r.buf) != bufferSize+2*set.hold {
			t.Errorf("the buffer is %d bytes", len(*r.buf))
		}
		r.Stop()
	}
}

type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := copy(p[n:], e.text[e.at:])
		n, e.at = n+c, (e.at+c)%len(e.text)
	}
	return n, nil
}

// FuzzReader compares a stream in pieces with the whole text, and a short one with the naive search, for all forms of some
// values.
func FuzzReader(f *testing.F) {
	for _, echo := range echoes {
		f.Add(canary, "x"+echo+"\n"+echo[:5]+"&#115;k_live_51Hx/Zq+canary==", []byte{1, 2, 3})
	}
	f.Add("%41%42%43\\\\&amp;", "%41%42%43\\\\&amp;%2541%41%42%43\\\\\\\\&amp;amp;", []byte{1})
	f.Add("aaaaaaaa", strings.Repeat("a", 300), []byte{7, 1})
	f.Add(canary, strings.Repeat("%73k_live_51Hx/Zq&#43;canary=="+canary, 60), []byte{255, 3})
	f.Fuzz(func(t *testing.T, value, text string, sizes []byte) {
		if len(value) < 8 || len(sizes) == 0 || len(text) > 20000 {
			return
		}
		ps := append(ListForms(value, 1), ListForms(value[:7]+"tail/of another", 2)...)
		ps = append(ps, Pattern{Text: value[1:8], ID: 3, Word: true})
		set := New(ps)
		want := replaceAll(set, text)
		if len(text) < 300 && !tooAmbiguous(set, text) {
			if naively := naiveAll(set, text); want != naively {
				t.Fatalf("%q in %q: got %q, naively %q", value, text, want, naively)
			}
		}
		cut := make([]int, len(sizes))
		for i, s := range sizes {
			cut[i] = int(s)
		}
		got, err := io.ReadAll(set.NewReader(&chunks{text: text, sizes: cut}, mark))
		if err != nil || string(got) != want {
			t.Fatalf("%q in %q by %v: got %q, %v, want %q", value, text, cut, got, err, want)
		}
	})
}
