package search

import (
	_ "embed" // thesaurus.txt
	"strings"
	"sync"
)

//go:embed thesaurus.txt
var thesaurusText string

// What a word of like meaning counts: one that the word's own line names, and one in whose line the word is.
const (
	synonymWeight = 0.6
	reverseWeight = 0.5
)

// thesaurus gives the stems that mean about the same as a stem.
var thesaurus = sync.OnceValue(func() map[string][]form {
	out := map[string][]form{}
	add := func(stem, other string, weight float32) {
		for i, f := range out[stem] {
			if f.stem == other {
				out[stem][i].weight = max(f.weight, weight)
				return
			}
		}
		if stem != other {
			out[stem] = append(out[stem], form{other, weight})
		}
	}
	for line := range strings.Lines(thesaurusText) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" || strings.Contains(words[0], "_") {
			continue
		}
		head, oneWay := Stem(words[0]), false
		for _, w := range words[1:] {
			if w == "|" {
				oneWay = true
				continue
			}
			add(head, Stem(w), synonymWeight)
			if !oneWay {
				add(Stem(w), head, reverseWeight)
			}
		}
	}
	return out
})

// phraseWeight is what the further meanings of a phrase count; the first one counts as the word itself.
const phraseWeight = 0.8

// phrase is what two words mean together.
type phrase struct {
	means []form
	// does is what the first meaning says is done, or zero.
	does Kind
}

// phrases are those lines of the thesaurus whose first word has two parts, by that word.
var phrases = sync.OnceValue(func() map[string]*phrase {
	out := map[string]*phrase{}
	for line := range strings.Lines(thesaurusText) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.Contains(words[0], "_") {
			continue
		}
		p := &phrase{does: Verb(words[1])}
		for i, w := range words[1:] {
			f := form{Stem(w), phraseWeight}
			if i == 0 {
				f.weight = 1
			}
			p.means = append(p.means, f)
		}
		first, second, _ := strings.Cut(words[0], "_")
		out[plural(first)+"_"+plural(second)] = p
	}
	return out
})
