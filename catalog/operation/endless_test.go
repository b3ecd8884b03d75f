package operation

import (
	"io"
	"strings"
	"testing"
)

// repeat is a text that is repeated without end.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// TestEndless: a file or a line without end is refused at its limit.
// Promise: documents-are-data
func TestEndless(t *testing.T) {
	const head = `{"format":1,"server":"https://a.example","operations":2000000,"types":0}` + "\n"
	for text, says := range map[string]string{`{"m":"GET","p":"/a"}` + "\n": "larger than", "a": "longer than"} {
		d, err := newReader(io.MultiReader(strings.NewReader(head), &repeat{text: text}), 1<<16+MaxLine)
		for err == nil {
			_, err = d.Next()
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
