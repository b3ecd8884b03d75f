// Package tokens estimates how many tokens a text takes in a model's context, without any model's tokenizer. Models
// differ from each other by a tenth; the estimate is about as far from each of them for English text, JSON and
// TypeScript. mcp-server's TestTokens compares it with two real tokenizers.
package tokens

import "unicode"

// The usual lengths of what tokenizers have in their vocabularies. A word is one token with the space before it.
const (
	wordLetters = 8 // a longer word takes further tokens, of wordPart letters each
	wordPart    = 5
	digits      = 3
	marks       = 3
)

// Estimate is about how many tokens a text takes.
func Estimate(text string) int {
	n := 0
	runes := []rune(text)
	for i := 0; i < len(runes); {
		kind := kindOf(runes[i])
		j := i + 1
		for j < len(runes) && kindOf(runes[j]) == kind && (kind != letter || !hump(runes[j-1], runes[j])) {
			j++
		}
		length := j - i
		switch kind {
		case letter:
			n++
			if length > wordLetters {
				n += (length - wordLetters + wordPart - 1) / wordPart
			}
		case digit:
			n += (length + digits - 1) / digits
		case mark:
			n += (length + marks - 1) / marks
		case other:
			n += length
		case space:
			if length > 1 || runes[i] == '\n' {
				n++ // one space belongs to the word after it
			}
		}
		i = j
	}
	return n
}

type kind uint8

const (
	letter kind = iota
	digit
	mark
	space
	other
)

func kindOf(r rune) kind {
	switch {
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return letter
	case r >= '0' && r <= '9':
		return digit
	case unicode.IsSpace(r):
		return space
	case r < 0x80:
		return mark
	case unicode.Is(unicode.Latin, r):
		return letter
	}
	return other
}

// hump reports whether a word of camel case begins anew.
func hump(before, after rune) bool { return unicode.IsLower(before) && unicode.IsUpper(after) }
