package search

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/wordvector"
)

// Index is the searchable content of one source, such as one API. Create it with a Builder. It is immutable.
type Index struct {
	name string
	// named are the stems of the name. In a question they name the place to search.
	named []string
	// terms are all stems in order, concatenated, and ends are their ends. postings are the entries of each term: the
	// distance from the previous entry, and the term's weight in the entry. offsets are the starts of the lists.
	terms    string
	ends     []uint32
	postings []byte
	offsets  []uint32
	counts   []uint32
	kinds    []Kind
	titles   []uint16 // hashes
	vectors  []wordvector.Vector
}

// Kind is the action of an entry, and whether it is outdated.
type Kind uint8

// The kinds. The zero Kind means unknown.
const (
	Read Kind = 1 << iota
	Create
	Change
	Delete
	Deprecated
	Collection // of many things, instead of one
	Nested     // of a part of another thing
)

// Len returns the number of entries.
func (x *Index) Len() int { return len(x.kinds) }

// Name returns the name from NewBuilder.
func (x *Index) Name() string { return x.name }

// stemOf returns the term with a number.
func (x *Index) stemOf(i int) string {
	if i == 0 {
		return x.terms[:x.ends[0]]
	}
	return x.terms[x.ends[i-1]:x.ends[i]]
}

func (x *Index) findTerm(stem string) (int, bool) {
	i := sort.Search(len(x.ends), func(i int) bool { return x.stemOf(i) >= stem })
	return i, i < len(x.ends) && x.stemOf(i) == stem
}

// Field is a text of an entry, and the weight of its words. Above Bound words, each word counts less; zero means no
// bound. Most is the largest number of words that are read; zero means all.
type Field struct {
	Text   string
	Weight float32
	Bound  int
	Most   int
}

// IndexEntry is a searchable item.
type IndexEntry struct {
	Kind Kind
	// Title is the same for entries of which one is enough, such as one operation at several paths. It may be empty.
	Title string
	// Meaning describes the entry in words. The vector of its weighted texts is compared with the question's.
	Meaning []WeightedText
	Fields  []Field
}

// WeightedText is a text and the weight of each of its words.
type WeightedText struct {
	Text   string
	Weight float32
}

// Builder creates an Index.
type Builder struct {
	index Index
	lists map[string]*postingList
	entry map[string]float32 // of one entry, reused
	sum   wordvector.TextSum
}

type postingList struct {
	packed []byte
	last   int
	count  uint32
}

// NewBuilder returns a Builder of an index with this name.
func NewBuilder(name string) *Builder {
	return &Builder{index: Index{name: name}, lists: map[string]*postingList{}, entry: map[string]float32{}}
}

// maxTerms bounds the stems of an index. Each takes some 150 bytes while the index is built. The largest documents that
// people import have a quarter of it. Later stems are not found.
const maxTerms = 1 << 17

// half is the weight at which a term counts half of its maximum in an entry.
const half = 1.6

// AddEntry adds an entry.
func (b *Builder) AddEntry(e IndexEntry) {
	n := b.index.Len()
	title := uint16(n) // equal to another only by chance
	if e.Title != "" {
		title = hashText(e.Title)
	}
	clear(b.entry)
	for _, f := range e.Fields {
		b.addField(f)
	}
	b.index.kinds, b.index.titles = append(b.index.kinds, e.Kind), append(b.index.titles, title)
	for _, m := range e.Meaning {
		b.sum.AddText(m.Text, m.Weight, EachWord)
	}
	b.index.vectors = append(b.index.vectors, b.sum.TakeVector())
	for stem, w := range b.entry {
		l := b.lists[stem]
		if l == nil {
			// Known terms still get further entries, so the common words stay complete.
			if len(b.lists) == maxTerms {
				continue
			}
			l = &postingList{last: -1}
			b.lists[stem] = l
		}
		// Distances are small numbers, which take one byte as a rule.
		l.packed = binary.AppendUvarint(l.packed, uint64(n-l.last))
		l.packed = append(l.packed, byte(max(1, math.Round(float64(math.MaxUint8*w/(w+half))))))
		l.last = n
		l.count++
	}
}

func hashText(s string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	sum := h.Sum32()
	return uint16(sum ^ sum>>16)
}

// addField adds the words of a field to the entry. Each word counts once per field.
func (b *Builder) addField(f Field) {
	if f.Text == "" {
		return
	}
	var stems []string
	EachWord(f.Text, func(word string) {
		if s := StemWord(word); f.Most == 0 || len(stems) < f.Most {
			if !slices.Contains(stems, s) || len(stems) > 2*maxWord {
				stems = append(stems, s)
			}
		}
	})
	w := f.Weight
	if f.Bound > 0 && len(stems) > f.Bound {
		// A long text has each word by chance, so each counts less.
		w *= float32(math.Sqrt(float64(f.Bound) / float64(len(stems))))
	}
	for _, s := range stems {
		b.entry[s] += w
	}
}

// BuildIndex returns the finished index. Do not use the Builder afterwards.
func (b *Builder) BuildIndex() *Index {
	x := &b.index
	x.kinds, x.titles, x.vectors = slices.Clip(x.kinds), slices.Clip(x.titles), slices.Clip(x.vectors)
	x.offsets = make([]uint32, 1, len(b.lists)+1)
	EachWord(x.name, func(word string) { x.named = append(x.named, StemWord(word)) })
	terms := make([]byte, 0, 8*len(b.lists))
	size := 0
	for _, l := range b.lists {
		size += len(l.packed)
	}
	x.postings = make([]byte, 0, size)
	for _, stem := range slices.Sorted(maps.Keys(b.lists)) {
		l := b.lists[stem]
		terms = append(terms, stem...)
		x.ends = append(x.ends, uint32(len(terms)))
		x.postings = append(x.postings, l.packed...)
		x.offsets = append(x.offsets, uint32(len(x.postings)))
		x.counts = append(x.counts, l.count)
	}
	x.terms, x.ends, x.counts = string(terms), slices.Clip(x.ends), slices.Clip(x.counts)
	return x
}
