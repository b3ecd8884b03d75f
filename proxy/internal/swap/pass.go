package swap

import "github.com/codeforge-mcp/codeforge/proxy/internal/engine"

// Most of a body passes unchanged. The pass functions say how many bytes of a text do, and leave a writer in the state
// in which it would be had it taken them one by one: what they do not know for certain, they leave to that. So a body
// that arrives byte by byte is rewritten without them. They are given text without token names, which a search for all
// of them at once has found, and that does not end within a word.

// sight tells how far a text certainly has no name.
type sight struct {
	walk engine.Walk
	next int // no name begins before it
	end  int // the word at the end, which may go on
}

// maxRun is more than a word with a name and what precedes it in the last escape, as in \u002dAPI_KEY.
const maxRun = 2 * maxName

// sight begins to look at a text. done must be called.
func (w *words) sight(text []byte) sight {
	end := len(text)
	for end > 0 && len(text)-end <= maxRun && isWord(text[end-1]) {
		end--
	}
	if len(text)-end > maxRun {
		end = len(text)
	}
	return sight{walk: w.x.s.parts.Walk(text), next: -1, end: end}
}

func (s *sight) done() { s.walk.End() }

// clear returns the end of what has no name from at on. at must not decrease.
func (s *sight) clear(at int) int {
	if at >= s.end {
		return at
	}
	if at > s.next {
		if s.next = s.walk.Next(at); s.next < 0 || s.next > s.end {
			s.next = s.end
		}
	}
	return s.next
}

// pass takes all of a plain text.
func (w *words) pass(text []byte) int {
	if len(w.word) > 0 || len(w.escape) > 0 || len(text) == 0 {
		return 0
	}
	w.long = isWord(text[len(text)-1])
	return len(text)
}

// lengths is a set of lengths of texts, of which those from 63 bytes on are one.
type lengths uint64

func (l *lengths) add(n int) { *l |= 1 << min(n, 63) }

func (l lengths) has(n int) bool { return l>>min(n, 63)&1 != 0 }
