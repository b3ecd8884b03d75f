// Package search finds among thousands of operations, tools and skills those that a few words of English mean.
//
// The ranking is BM25 over weighted fields. What users say is not what documents say, so words are reduced to their
// stems, a table names words of like meaning, a word that no entry has is taken for a misspelt one, and what a question
// is after (to read, create, change or delete) counts.
package search

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// Hit is an entry that was found.
type Hit struct {
	Index *Index
	Entry int // in the order in which entries were added
	Score float32
	// Share is which part of the question's words the entry has, by their weight, from 0 to 1.
	Share float32
}

// MaxQuery bounds the words of a question that count.
const MaxQuery = 24

// Search returns the entries that fit a question best, no more than most.
func Search(all []*Index, question string, most int) []Hit {
	q := parse(all, question)
	if len(q.groups) == 0 {
		return nil
	}
	room := rooms.Get().(*room)
	defer rooms.Put(room)
	var hits []Hit
	for _, x := range all {
		hits = room.search(x, q, spare*most, hits)
	}
	return varied(hits, most)
}

// How much less an entry counts when better ones are about the same place or say the same.
const (
	sameFamily = 0.96
	sameText   = 0.8
	// spare is how many more entries than asked for are ranked, so that there are others to choose.
	spare = 4
)

// varied chooses the best hits, each of which counts less for every one before it that is like it.
func varied(hits []Hit, most int) []Hit {
	var out []Hit
	for len(out) < most && len(hits) > 0 {
		best, at := float32(-1), 0
		for i, h := range hits {
			score := h.Score
			if score <= best {
				break // none after it is better
			}
			k := h.Index.likes[h.Entry]
			for _, o := range out {
				if o.Index != h.Index {
					continue
				}
				ok := o.Index.likes[o.Entry]
				if ok.text == k.text {
					// The one that is not below another thing is the usual one: POST /refunds beside POST /charges/{id}/refunds.
					if o.Index.kinds[o.Entry]&Nested == 0 || h.Index.kinds[h.Entry]&Nested != 0 {
						score *= sameText
					}
				} else if ok.family == k.family {
					score *= sameFamily
				}
			}
			if score > best {
				best, at = score, i
			}
		}
		h := hits[at]
		h.Score = best
		out = append(out, h)
		hits = slices.Delete(hits, at, at+1)
	}
	return out
}

// room is what a search needs: for each entry, the sum so far, the best form of the word at hand, and the weight of the
// words that it has.
type room struct {
	sum, best, has []float32
	touched, found []int
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// How much more or less an entry scores.
const (
	rightKind, nearKind, wrongKind = 1.3, 0.95, 0.6
	vagueRead                      = 1.12 // to read, where the question has no verb
	outdated                       = 0.6
	elsewhere                      = 0.45 // in another place than the one that the question names
	rightNumber                    = 1.12 // many asked for and answered, or one
	// brevity is for entries of few words, which say little else than what was asked.
	brevity = 1.5
)

// search merges the best entries of one index into hits, which are in order, and keeps at most a bounded number.
func (r *room) search(x *Index, q question, most int, hits []Hit) []Hit {
	if n := x.Len(); len(r.sum) < n {
		r.sum, r.best, r.has = make([]float32, n), make([]float32, n), make([]float32, n)
	}
	r.touched = r.touched[:0]
	total := float32(0)
	for _, g := range q.groups {
		if g.names(x) {
			continue
		}
		total += g.weight
		r.found = r.found[:0]
		for _, f := range g.forms {
			if i, ok := x.find(f.stem); ok {
				r.read(x.postings[x.offsets[i]:x.offsets[i+1]], f.weight/math.MaxUint8)
			}
		}
		for _, e := range r.found {
			if r.sum[e] == 0 {
				r.touched = append(r.touched, e)
			}
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
	var factors [math.MaxUint8 + 1]float32
	for k := range factors {
		factors[k] = q.factor(x, Kind(k))
	}
	for _, e := range r.touched { // total is not zero: a word has added to it
		share := r.has[e] / total
		score := r.sum[e] * float32(math.Sqrt(float64(share))) * factors[x.kinds[e]] *
			(1 + brevity/float32(2+x.likes[e].length))
		r.sum[e], r.has[e] = 0, 0
		if score > floor {
			hits = append(hits, Hit{x, e, score, share})
		}
		if len(hits)-from >= 8*most {
			hits = keep(hits, from, most)
			floor = max(floor, hits[len(hits)-1].Score)
		}
	}
	hits = keep(hits, from, most)
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(most, len(hits))]
}

// best orders the entries of one index.
func best(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Entry, b.Entry)) }

// read notes for each entry of a term how much the term counts there, if that is more than its other forms.
func (r *room) read(postings []byte, weight float32) {
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

// keep leaves the best of the hits behind from.
func keep(hits []Hit, from, most int) []Hit {
	list := hits[from:]
	slices.SortStableFunc(list, best)
	return hits[:from+min(most, len(list))]
}

// factor is what an entry's kind makes of its score.
func (q question) factor(x *Index, k Kind) float32 {
	f := float32(1)
	const does = Read | Create | Change | Delete
	switch {
	case q.vague && k&Read != 0:
		f = vagueRead
	case q.kind == 0 || k&does == 0:
	case k&q.kind != 0:
		f = rightKind
	case k&(Create|Change) != 0 && q.kind&(Create|Change) != 0:
		f = nearKind
	default:
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
