package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// excerptBuffer stores the output of one stream of a run in valid UTF-8 and bounded memory. It keeps all of a short
// output, and the head and tail of a long one. Lengths count characters (Unicode code points), the unit of
// OUTPUT_LIMIT. Create it with newExcerpt. It is not safe for concurrent use.
type excerptBuffer struct {
	limit int
	head  strings.Builder // the first limit characters
	heads int             // characters in head
	tail  []byte          // the text after the head, at least the last limit characters
	tails int             // characters in tail
	total int             // characters written
}

// newExcerpt returns a buffer that can show up to limit characters. A limit below 1 shows no text.
func newExcerpt(limit int) *excerptBuffer { return &excerptBuffer{limit: max(limit, 0)} }

// WriteString appends s.
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
	// Trimmed only at twice the limit: trimming on each write would copy the tail each time.
	if b.tails > 2*b.limit+4096 {
		drop := prefixLength(string(b.tail), b.tails, b.tails-b.limit)
		b.tail = append(b.tail[:0], b.tail[drop:]...)
		b.tails = b.limit
	}
}

// Len returns the number of all written characters.
func (b *excerptBuffer) Len() int { return b.total }

// Text returns the written text if it has at most limit characters. Otherwise it returns head and tail, limit
// characters together, with a line between them that counts the omitted characters. The second result is that count.
// limit must not exceed the limit of newExcerpt.
func (b *excerptBuffer) Text(limit int) (string, int) {
	limit = min(max(limit, 0), b.limit)
	// A short output is complete in head.
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

// prefixLength returns the length in bytes of the first n characters of s. total is the number of characters in s.
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
