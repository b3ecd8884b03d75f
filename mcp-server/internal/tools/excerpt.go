package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// excerptBuffer keeps what a run printed on one stream, in valid UTF-8 and bounded memory: all of a short output, head
// and tail of a long one. Lengths are counted in characters (Unicode code points), the unit of OUTPUT_LIMIT. Make it
// with newExcerpt; it is not safe for concurrent use.
type excerptBuffer struct {
	limit int
	head  strings.Builder // the first limit characters
	heads int             // characters in head
	tail  []byte          // what followed, at least its last limit characters
	tails int             // characters in tail
	total int             // characters written
}

// newExcerpt makes a buffer from which up to limit characters can be shown. A limit below 1 shows nothing.
func newExcerpt(limit int) *excerptBuffer { return &excerptBuffer{limit: max(limit, 0)} }

// WriteString adds to the end.
func (b *excerptBuffer) WriteString(s string) {
	n := utf8.RuneCountInString(s)
	b.total += n
	if room := b.limit - b.heads; room > 0 {
		cut := prefixLength(s, n, room)
		b.head.WriteString(s[:cut])
		b.heads += min(n, room)
		n -= min(n, room)
		s = s[cut:]
	}
	if s == "" {
		return
	}
	b.tail = append(b.tail, s...)
	b.tails += n
	if b.tails > 2*b.limit+4096 {
		drop := prefixLength(string(b.tail), b.tails, b.tails-b.limit)
		b.tail = append(b.tail[:0], b.tail[drop:]...)
		b.tails = b.limit
	}
}

// Len is how many characters were written in all.
func (b *excerptBuffer) Len() int { return b.total }

// Text is what was written, if that is at most limit characters; otherwise its head and tail, limit characters in all,
// and between them a line with the number of characters left out, which is also the second result. limit may not exceed
// the one given to newExcerpt.
func (b *excerptBuffer) Text(limit int) (string, int) {
	limit = min(max(limit, 0), b.limit)
	if b.total <= limit {
		return b.head.String(), 0
	}
	heads := limit * 2 / 3
	tails := limit - heads
	head := b.head.String()
	tail := string(b.tail)
	if b.tails < tails { // the tail begins within head
		tail = head[prefixLength(head, b.heads, b.heads-(tails-b.tails)):] + tail
	} else {
		tail = tail[prefixLength(tail, b.tails, b.tails-tails):]
	}
	head = head[:prefixLength(head, b.heads, heads)]
	left := b.total - limit
	return fmt.Sprintf("%s\n[... %d characters left out ...]\n%s", head, left, tail), left
}

// prefixLength is the length in bytes of the first n characters of s, which has total of them.
func prefixLength(s string, total, n int) int {
	switch {
	case n <= 0:
		return 0
	case n >= total:
		return len(s)
	case total == len(s): // ASCII
		return n
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}
