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
		if len(words) == 0 || words[0] == "#" {
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
