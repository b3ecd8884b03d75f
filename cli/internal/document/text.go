package document

import (
	"html"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

var (
	tag      = regexp.MustCompile(`<[/!?]?[A-Za-z][^<>]*>|<!--|-->`)
	link     = regexp.MustCompile(`!?\[([^\[\]]*)\]\([^()\s]*\)`)
	fence    = regexp.MustCompile("```[a-z]*|\\*\\*|__")
	sentence = regexp.MustCompile(`[.!?:]\s|\n\s*\n|\n\s*[-*#|]`)
)

// maxRead bounds the part of a text that is used, in bytes.
const maxRead = 4 << 10

// CleanLine makes text of a document safe to show: on one line, without markup, and without characters that a terminal
// obeys or hides. The result has at most most bytes.
func CleanLine(s string, most int) string {
	if len(s) > maxRead {
		s = strings.ToValidUTF8(s[:maxRead], "")
	}
	s = strings.ToValidUTF8(s, "")
	for range 3 { // markup may be escaped, and the rest may form markup again
		before := s
		s = html.UnescapeString(s)
		s = tag.ReplaceAllString(s, " ")
		if s == before {
			break
		}
	}
	s = link.ReplaceAllString(s, "$1")
	s = fence.ReplaceAllString(s, "")
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case safetext.IsOdd(r) || !unicode.IsPrint(r) || r == utf8.RuneError: // config.json refuses U+FFFD
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return strings.TrimSpace(cutAtSpace(b.String(), most))
}

// FirstSentence returns the first sentence of a text, cleaned by Line.
func FirstSentence(s string, most int) string {
	s = strings.TrimLeft(s, " \t\r\n#*-")
	if len(s) > maxRead {
		s = s[:maxRead]
	}
	if at := sentence.FindStringIndex(s); at != nil && at[0] > 0 {
		end := at[0]
		if s[end] != '\n' && s[end] != ':' {
			end++
		}
		if first := CleanLine(s[:end], most); first != "" {
			return first
		}
	}
	return CleanLine(s, most)
}

// outdated matches the phrases with which a description calls the whole operation deprecated, not only a part.
var outdated = regexp.MustCompile(`(?i)(?:^|[.!:|>()\]\n])[^\w.]*deprecated` +
	`(?:[.:,!)*\]]|\W*$|\W+(?:since|as of|in favou?r|and|version|use|please|from)\b)` +
	`|\b(?:endpoint|api|method|operation|resource|route|function|call|request|version)s?\W+` +
	`(?:is|are|was|were|has been|have been)\W+(?:now |already )?` +
	`(?:deprecated|obsolete|superseded|no longer (?:supported|maintained|recommended))\b` +
	`|^\W*\S+ is (?:now )?deprecated\b`)

// IsDeprecated reports whether a description calls its operation deprecated.
func IsDeprecated(description string) bool {
	return outdated.MatchString(description[:min(len(description), maxRead)])
}

// cutAtSpace shortens a text to at most most bytes, at a nearby space if possible.
func cutAtSpace(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = "…"
	end := most - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if at := strings.LastIndexByte(s[:end], ' '); at > end*3/4 {
		end = at
	}
	return strings.TrimRight(s[:end], " ,;:.") + more
}

// Bounds of SearchWords: the number of words from the first text and from each other text.
const (
	mostWords  = 40
	mostOthers = 16
)

// SearchWords returns the words of texts that the summary lacks, in lower case and each once, for search.
func SearchWords(summary string, texts ...string) string {
	seen := map[string]bool{}
	eachWord(summary, func(word string) bool { seen[word] = true; return true })
	var b strings.Builder
	for i, text := range texts {
		left := mostWords
		if i > 0 {
			left = mostOthers
		}
		eachWord(CleanLine(text, maxRead), func(word string) bool {
			const shortest, longest = 3, 24
			if len(word) < shortest || len(word) > longest || seen[word] || empty[word] {
				return true
			}
			if b.Len()+len(word)+1 > operation.MaxWords {
				return false
			}
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			seen[word] = true
			b.WriteString(word)
			left--
			return left > 0
		})
	}
	return b.String()
}

// eachWord calls f for the words of a text until f returns false.
func eachWord(text string, f func(word string) bool) {
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if !f(word) {
			return
		}
	}
}

// empty are words without meaning for an operation.
var empty = func() map[string]bool {
	out := map[string]bool{}
	for _, word := range strings.Fields("the and for with from that this these those are was were has have had will " +
		"would can could should may might must not but you your yours our its his her their them they who which what " +
		"when where " +
		"how why use used uses using also see into onto than then there here only any all each every other such both via " +
		"per more most less least following given specified specify specifies based returns return returned response " +
		"request requests endpoint operation method api http https www com href code example examples note default " +
		"optional required " +
		"parameter parameters field fields value values object objects following about does been being get gets") {
		out[word] = true
	}
	return out
}()
