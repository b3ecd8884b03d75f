package search

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxWord bounds a word, in bytes. Longer ones are encoded values.
	maxWord = 32
	// maxDigits bounds a number. Longer ones are dates or identifiers.
	maxDigits = 3
)

// EachWord calls each with the words of a text in lower case. It splits identifiers and paths into their parts
// ("listRepoIssues", "/v1/payment_intents"). It omits versions such as v1.
func EachWord(text string, each func(word string)) {
	var b [maxWord]byte
	n, digits := 0, 0
	flush := func() {
		version := n > 1 && b[0] == 'v' && digits == n-1
		if n > 0 && n <= maxWord && !version && (digits < n || digits <= maxDigits) {
			each(string(b[:n]))
		}
		n, digits = 0, 0
	}
	previous := rune(0)
	for i, r := range text {
		switch {
		case r == '\'' && n > 0: // as in "the owner's" and "don't"
			continue
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			previous = 0
			continue
		case unicode.IsUpper(r) && (unicode.IsLower(previous) || n > 1 && unicode.IsUpper(previous) && isLowerAfter(text, i)):
			flush()
		}
		low := unicode.ToLower(r)
		if size := utf8.RuneLen(low); n <= maxWord-size {
			n += utf8.EncodeRune(b[n:], low)
			if '0' <= r && r <= '9' {
				digits++
			}
		} else {
			n = maxWord + 1 // too long
		}
		previous = r
	}
	flush()
}

// isLowerAfter reports whether a small letter follows the letter at i, like after the R of "DNSRecord".
func isLowerAfter(text string, i int) bool {
	_, size := utf8.DecodeRuneInString(text[i:])
	next, _ := utf8.DecodeRuneInString(text[i+size:])
	rest := strings.TrimPrefix(text[i+size:], "s") // "URLs"
	second, _ := utf8.DecodeRuneInString(rest)
	return unicode.IsLower(next) && (len(rest) == len(text[i+size:]) || unicode.IsLower(second))
}

// StemWord returns the common part of the forms of an English word: create, created, creating and creation give
// "creat". The result need not be a word.
func StemWord(word string) string {
	w := dropPlural(word)
	switch {
	case strings.HasSuffix(w, "eed"):
	case strings.HasSuffix(w, "ing") && hasVowel(w[:len(w)-3]) && len(w) > 5:
		w = dropDouble(w[:len(w)-3])
	case strings.HasSuffix(w, "ed") && hasVowel(w[:len(w)-2]) && len(w) > 4:
		w = dropDouble(w[:len(w)-2])
	case strings.HasSuffix(w, "tion") || strings.HasSuffix(w, "sion"):
		if len(w) > 6 {
			w = w[:len(w)-3]
		}
	case strings.HasSuffix(w, "ment") && len(w) > 8:
		w = w[:len(w)-4]
	}
	w = strings.TrimSuffix(w, "e")
	if len(w) > 6 && strings.HasSuffix(w, "at") { // activate, cancellation
		w = dropDouble(w[:len(w)-2])
	}
	if strings.HasSuffix(w, "ific") { // verification
		w = w[:len(w)-1]
	}
	if len(w) > 2 && w[len(w)-1] == 'y' && !isVowel(w[len(w)-2]) {
		w = w[:len(w)-1] + "i"
	}
	return w
}

// dropPlural removes the s of a plural.
func dropPlural(w string) string {
	n := len(w)
	switch {
	case n < 4 || w[n-1] != 's':
	case strings.HasSuffix(w, "ies") && n > 4:
		return w[:n-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "ches"),
		strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "uses") && n > 6:
		return w[:n-2]
	case w[n-2] != 's' && w[n-2] != 'u' && w[n-2] != 'i':
		return w[:n-1]
	}
	return w
}

// dropDouble removes the second of two equal consonants at the end, apart from those that words end in.
func dropDouble(w string) string {
	n := len(w)
	if n > 2 && w[n-1] == w[n-2] && !isVowel(w[n-1]) && w[n-1] != 's' && (w[n-1] != 'l' || n > 5) {
		return w[:n-1]
	}
	return w
}

func hasVowel(w string) bool { return strings.ContainsAny(w, "aeiouy") }

func isVowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }
