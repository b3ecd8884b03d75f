// Package search finds the operations, tools and skills that a few English words describe, among thousands.
//
// Three parts make a score. Words: BM25 over weighted fields of stems, with similar and misspelt words. Meaning: the
// similarity of the vectors of question and entry. Intent: whether the question wants to read, create, change or
// delete, and one thing or many. The weights were fitted on 3,144 questions about 84 documents, with vectors that were
// trained without these documents. make bench-search measures them with other questions.
package search

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// Hit is a found entry.
type Hit struct {
	Index *Index
	Entry int // its number, in the order of Builder.AddEntry
	Score float32
	// Words, Meaning and Intent are the parts of Score: (Words + meaningWeight * Meaning) * Intent.
	Words, Meaning, Intent float32
	// Share is the part of the question's words that the entry has, by weight, from 0 to 1.
	Share float32
}

// Ranker selects the parts of the score.
type Ranker int

// The rankers. Both is in use; the others are for comparison.
const (
	Both Ranker = iota
	ByWords
	ByMeaning
)

// MaxQuery bounds the words of a question that count.
const MaxQuery = 24

// Search returns the entries that fit a question best, at most most.
func Search(all []*Index, question string, most int) []Hit {
	return Both.SearchWith(all, question, most)
}

// SearchWith is the search with one ranker.
func (k Ranker) SearchWith(all []*Index, question string, most int) []Hit {
	q := parseQuery(all, question)
	memory := memories.Get().(*scoreMemory)
	defer memories.Put(memory)
	var hits []Hit
	for _, x := range all {
		hits = memory.searchIndex(x, q, k, spare*most, hits)
	}
	preferTopLevel(hits)
	return hits[:min(most, len(hits))]
}

// spare is the factor by which more entries are ranked than asked for, so that preferTopLevel has entries to compare.
const spare = 4

// preferTopLevel compares entries with the same title. An entry that is not below another object comes just before the
// better ones that are: POST /refunds before POST /charges/{id}/refunds.
func preferTopLevel(hits []Hit) {
	for i, h := range hits {
		for _, o := range hits[:i] {
			if hasSameTitle(o, h) && o.kind() == h.kind()|Nested && h.kind()&Nested == 0 {
				hits[i].Score = max(hits[i].Score, math.Nextafter32(o.Score, math.MaxFloat32))
			}
		}
	}
	slices.SortStableFunc(hits, compareScores)
}

func compareScores(a, b Hit) int { return cmp.Compare(b.Score, a.Score) }

func hasSameTitle(a, b Hit) bool {
	return a.Index == b.Index && a.Index.titles[a.Entry] == b.Index.titles[b.Entry]
}

func (h Hit) kind() Kind { return h.Index.kinds[h.Entry] }

// scoreMemory is the memory of a search. For each entry it has the sum so far, the best form of the present word, and
// the weight of the words found.
type scoreMemory struct {
	sum, best, has []float32
	found          []int
}

var memories = sync.Pool{New: func() any { return new(scoreMemory) }}

const (
	// meaningWeight is the weight of the similarity beside the words. With 1, the right entry is among the first five for
	// 1 % fewer questions.
	meaningWeight = 2
	// leastMeaning is the least similarity of an entry without a word of the question. With 0, the right entry is among
	// the first 16 for 0.3 % more questions, but a question without a right entry gets entries too.
	leastMeaning = 0.1
)

// searchIndex merges the best entries of one index into hits, which stay sorted and bounded by most.
func (r *scoreMemory) searchIndex(x *Index, q parsedQuery, by Ranker, most int, hits []Hit) []Hit {
	// The memory is reused between searches and grows to the largest index.
	if n := x.Len(); len(r.sum) < n {
		r.sum, r.best, r.has = make([]float32, n), make([]float32, n), make([]float32, n)
	}
	total := float32(0)
	for _, g := range q.groups {
		if slices.Contains(g.places, x) { // the name of the index does not distinguish its entries
			continue
		}
		total += g.weight
		r.found = r.found[:0]
		for _, f := range g.forms {
			if i, ok := x.findTerm(f.stem); ok {
				r.readPostings(x.postings[x.offsets[i]:x.offsets[i+1]], f.weight/math.MaxUint8)
			}
		}
		for _, e := range r.found {
			r.sum[e] += g.weight * r.best[e]
			r.has[e] += g.weight * min(1, 2*r.best[e])
			r.best[e] = 0
		}
	}
	floor := float32(0)
	if len(hits) == most {
		floor = hits[most-1].Score
	}
	from := len(hits)
	var intents [math.MaxUint8 + 1]float32
	// Computed once for each kind: an index has thousands of entries but few kinds.
	for k := range intents {
		intents[k] = q.intentFactor(x, Kind(k))
	}
	for e := range x.kinds {
		h := Hit{Index: x, Entry: e, Intent: intents[x.kinds[e]]}
		if r.has[e] > 0 { // so total is above zero
			h.Share = r.has[e] / total
			h.Words = r.sum[e] / total * float32(math.Sqrt(float64(h.Share)))
			// Cleared while reading, so that the next search can reuse the memory.
			r.sum[e], r.has[e] = 0, 0
		}
		h.Meaning = max(0, q.vector.Likeness(&x.vectors[e]))
		words, meaning := h.Words, meaningWeight*h.Meaning
		switch {
		case by == ByWords:
			meaning = 0
		case by == ByMeaning:
			words = 0
		case words == 0 && h.Meaning < leastMeaning:
			continue
		}
		if h.Score = (words + meaning) * h.Intent; h.Score <= floor {
			continue
		}
		hits = append(hits, h)
		if len(hits)-from >= 8*most {
			// Cut now and then, so that a common word does not keep every entry.
			hits = keepBest(hits, from, most)
			floor = max(floor, hits[len(hits)-1].Score)
		}
	}
	hits = keepBest(hits, from, most)
	slices.SortStableFunc(hits, compareScores)
	return hits[:min(most, len(hits))]
}

// readPostings records the weight of a term in each of its entries, if it is above the weight of its other forms.
func (r *scoreMemory) readPostings(postings []byte, weight float32) {
	entry := -1
	for i := 0; i < len(postings); i += 2 {
		step := int(postings[i])
		if step >= 0x80 {
			long, n := binary.Uvarint(postings[i:])
			step, i = int(long), i+n-1
		}
		entry += step
		old := r.best[entry]
		if old == 0 {
			r.found = append(r.found, entry)
		}
		r.best[entry] = max(old, float32(postings[i+1])*weight)
	}
}

func keepBest(hits []Hit, from, most int) []Hit {
	list := hits[from:]
	slices.SortStableFunc(list, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Entry, b.Entry))
	})
	return hits[:from+min(most, len(list))]
}

// Factors of an entry's score.
const (
	wrongKind   = 0.8 // to delete instead of to read: 2 % more right entries among five
	outdated    = 0.95
	elsewhere   = 0.45 // in another place than the question names
	rightNumber = 1.12 // many asked for and answered, or one: 5 % more right entries at rank 1
)

// intentFactor returns the factor of an entry's kind.
func (q parsedQuery) intentFactor(x *Index, k Kind) float32 {
	f := float32(1)
	const does = Read | Create | Change | Delete
	wants := q.kind
	if wants&(Create|Change) != 0 { // people and documents use the verbs of one for the other
		wants |= Create | Change
	}
	if wants != 0 && k&does != 0 && k&wants == 0 {
		f = wrongKind
	}
	if k&Deprecated != 0 {
		f *= outdated
	}
	if q.many != 0 && k&Read != 0 && (q.many > 0) == (k&Collection != 0) {
		f *= rightNumber
	}
	if len(q.places) > 0 && !slices.Contains(q.places, x) {
		f *= elsewhere
	}
	return f
}
