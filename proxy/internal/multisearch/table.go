package multisearch

import (
	"encoding/binary"
	"math/bits"
)

// tableKind is the kind of the patterns of a table.
type tableKind int

const (
	tableShort      tableKind = iota // patterns of less than longPattern bytes
	tableLong                        // the other patterns
	tableThin                        // of hexadecimal digits, or of the base64 of UTF-16
	tableWideShort                   // of UTF-16, shorter than a block
	tableWide                        // of UTF-16
	tableWiderShort                  // of UTF-32, shorter than a block
	tableWider                       // of UTF-32
)

// blockSizes are the numbers of bytes that are compared at once: eight characters of a value, or six in base64. If a
// pattern is shorter, all blocks of its table are. Public patterns that are shorter than longPattern use half of the
// size.
var blockSizes = [...]int{
	tableShort: wordSize, tableLong: wordSize, tableThin: 16, tableWideShort: 16, tableWide: 16, tableWiderShort: 32,
	tableWider: 32,
}

const longPattern = 16

// chooseTable returns the kind of the table for a pattern.
func (p *Pattern) chooseTable() tableKind {
	n := len(p.Text)
	switch {
	case p.step == 4 && n >= blockSizes[tableWider]:
		return tableWider
	case p.step == 4 && n > wordSize:
		return tableWiderShort
	case p.step == 2 && n >= blockSizes[tableWide]:
		return tableWide
	case p.step == 2 && n > wordSize:
		return tableWideShort
	case p.thin && n >= blockSizes[tableThin]:
		return tableThin
	case n < longPattern:
		return tableShort
	}
	return tableLong
}

// blockTable finds patterns by probing blocks of the text that are stride bytes apart. It knows stride consecutive
// blocks of every pattern, one byte apart. So exactly one probe hits each occurrence. This is the skip of Wu and Manber
// (1994) with a constant shift. No probe depends on the previous one, so the processor does several at once.
//
// Threat: text that contains a known block takes longer to search, and code can measure that over megabytes. Contract:
// the blocks are the last ones of a pattern, in its second half. The public part of most credentials is the beginning.
// An attacker who does not know these bytes must guess a whole block at once. Token names are not secret: they have
// more and shorter blocks.
type blockTable struct {
	zeros  bool   // each block has NULs
	block  int    // bytes of a block
	mask   uint64 // the bits of a block in a word
	stride int
	least  int // the first offset of a pattern's blocks
	most   int // the last offset
	shift  uint
	filter []uint64               // a bit for each hash of a known block
	second []uint64               // the same with another hash, for blocks that pass the first filter
	at     placeIndex[knownBlock] // by block
}

// maxStride bounds the number of blocks of a pattern in a table. A longer stride is not faster.
const maxStride = 64

// newTable indexes the patterns of a list by blocks of most bytes, or fewer if a pattern is shorter.
func newTable(pats []Pattern, list []int32, most int, rest func()) blockTable {
	shortest, public := len(pats[list[0]].Text), true
	for _, i := range list {
		shortest = min(shortest, len(pats[i].Text))
		public = public && pats[i].Word
	}
	if public && shortest < longPattern {
		most /= 2
	}
	t := blockTable{block: min(most, shortest), least: 1 << 30, zeros: pats[list[0]].step > 1 && most > wordSize}
	t.mask = ^uint64(0) >> (64 - 8*min(t.block, wordSize))
	t.stride = shortest - t.block + 1
	// Only the second half of a secret pattern has blocks. See Threat.
	if !public {
		t.stride = (t.stride + 1) / 2
	}
	t.stride = min(t.stride, maxStride)
	// About one bit in 32 is set, and the filter stays in the processor's cache.
	width := min(max(15, bits.Len(uint(len(list)*t.stride*32))), 23)
	t.shift = uint(64 - width)
	t.filter, t.second = make([]uint64, 1<<width/64), make([]uint64, 1<<width/64)
	for _, i := range list {
		base := len(pats[i].Text) - t.block - t.stride + 1
		t.least, t.most = min(t.least, base), max(t.most, base)
	}
	t.at = newPlaces(func(add func(uint64, knownBlock)) {
		for _, i := range list {
			rest()
			text := []byte(pats[i].Text)
			for n := range t.stride {
				add(t.loadBlock(text, t.blockOffset(len(text), n)), newKnown(i, n))
			}
		}
	})
	for _, i := range list {
		rest()
		text := []byte(pats[i].Text)
		for n := range t.stride {
			b := t.loadBlock(text, t.blockOffset(len(text), n))
			h, g := hashKey(b, t.shift), otherHash(b, t.shift)
			t.filter[h>>6] |= 1 << (h & 63)
			t.second[g>>6] |= 1 << (g & 63)
		}
	}
	return t
}

// blockOffset returns the beginning of the nth block of a pattern of some length.
func (t *blockTable) blockOffset(length, n int) int { return length - t.block - t.stride + 1 + n }

// loadBlock returns the block at buf[p:], or for a long block a hash that is almost certainly unique.
func (t *blockTable) loadBlock(buf []byte, p int) uint64 {
	switch n := t.block; {
	case n > 2*wordSize:
		return load16(buf, p)*0xA0761D6478BD642F ^ load16(buf, p+n-2*wordSize)
	case n > wordSize:
		return joinWords(binary.LittleEndian.Uint64(buf[p:]), binary.LittleEndian.Uint64(buf[p+n-wordSize:]))
	case p+wordSize <= len(buf):
		return binary.LittleEndian.Uint64(buf[p:]) & t.mask
	}
	var b uint64
	for i := range t.block {
		b |= uint64(buf[p+i]) << (8 * i)
	}
	return b
}

func load16(buf []byte, p int) uint64 {
	return joinWords(binary.LittleEndian.Uint64(buf[p:]), binary.LittleEndian.Uint64(buf[p+wordSize:]))
}

func joinWords(first, last uint64) uint64 { return first*0xD6E8FEB86659FD93 ^ last }

// isKnownBlock reports whether a block may be in a pattern.
func (t *blockTable) isKnownBlock(block uint64) bool {
	h := hashKey(block, t.shift)
	if t.filter[h>>6]>>(h&63)&1 == 0 {
		return false
	}
	// The second filter makes false hits rare, and a false hit takes long.
	g := otherHash(block, t.shift)
	return t.second[g>>6]>>(g&63)&1 != 0
}

// findMatches probes from next on, until no later probe can hit a core before cut that matters.
func (t *blockTable) findMatches(x *search, next *int, cut int) {
	if t.zeros && !x.hasZeros() {
		// A later cut has no NUL to find either.
		return
	}
	buf := x.buf
	for p := max(*next, x.from+t.least); ; p += t.stride {
		last := min(x.coreLimit(cut)+t.most+t.stride-2, len(buf)-t.block)
		switch {
		case t.zeros:
			p = t.skipWide(buf, p, last)
		case t.block > wordSize:
			p = t.skip16(buf, p, last)
		default:
			p = t.skip8(buf, p, last)
		}
		if p > last {
			*next = p
			return
		}
		b := t.loadBlock(buf, p)
		if !t.isKnownBlock(b) {
			continue
		}
		for _, pl := range t.at.lookUpKey(b) {
			x.tryPlainPattern(pl.patternIndex(), p-t.blockOffset(len(x.set.pats[pl.patternIndex()].Text), pl.blockNumber()))
		}
	}
}

// skipWide returns the first probe at or after p, up to last, with a block that may be known and a NUL in every other
// byte.
func (t *blockTable) skipWide(buf []byte, p, last int) int {
	const even, odd = 0x00FF00FF00FF00FF, 0xFF00FF00FF00FF00
	for ; p <= last; p += t.stride {
		// Text without NULs needs no hash.
		if b := binary.LittleEndian.Uint64(buf[p:]); b&even != 0 && b&odd != 0 {
			continue
		}
		if t.isKnownBlock(t.loadBlock(buf, p)) {
			break
		}
	}
	return p
}

// skip16 returns the first probe at or after p, up to last, with a block of 16 bytes that may be known.
func (t *blockTable) skip16(buf []byte, p, last int) int {
	filter, shift, stride := t.filter, t.shift, t.stride
	for {
		for p+3*stride <= last {
			h0 := hashKey(load16(buf, p), shift)
			h1 := hashKey(load16(buf, p+stride), shift)
			h2 := hashKey(load16(buf, p+2*stride), shift)
			h3 := hashKey(load16(buf, p+3*stride), shift)
			hit := filter[h0>>6]>>(h0&63) | filter[h1>>6]>>(h1&63) | filter[h2>>6]>>(h2&63) | filter[h3>>6]>>(h3&63)
			if hit&1 != 0 {
				break
			}
			p += 4 * stride
		}
		for end := min(p+3*stride, last); p <= end; p += stride {
			if t.isKnownBlock(load16(buf, p)) {
				return p
			}
		}
		if p > last {
			return p
		}
	}
}

// skip8 returns the first probe at or after p, up to last, with a block of at most 8 bytes that may be known.
func (t *blockTable) skip8(buf []byte, p, last int) int {
	filter, shift, stride, mask := t.filter, t.shift, t.stride, t.mask
	for {
		// The four probes are independent, so the processor does them at once, with one branch. Each loads 8 bytes.
		for p+3*stride <= min(last, len(buf)-wordSize) {
			h0 := hashKey(binary.LittleEndian.Uint64(buf[p:])&mask, shift)
			h1 := hashKey(binary.LittleEndian.Uint64(buf[p+stride:])&mask, shift)
			h2 := hashKey(binary.LittleEndian.Uint64(buf[p+2*stride:])&mask, shift)
			h3 := hashKey(binary.LittleEndian.Uint64(buf[p+3*stride:])&mask, shift)
			hit := filter[h0>>6]>>(h0&63) | filter[h1>>6]>>(h1&63) | filter[h2>>6]>>(h2&63) | filter[h3>>6]>>(h3&63)
			if hit&1 != 0 {
				break
			}
			p += 4 * stride
		}
		for end := min(p+3*stride, last); p <= end; p += stride {
			if t.isKnownBlock(t.loadBlock(buf, p)) {
				return p
			}
		}
		if p > last {
			return p
		}
	}
}

// knownBlock is the nth block of a pattern in a table.
type knownBlock uint32

func newKnown(pat int32, n int) knownBlock { return knownBlock(pat)*maxStride + knownBlock(n) }

func (k knownBlock) patternIndex() int32 { return int32(k / maxStride) }
func (k knownBlock) blockNumber() int    { return int(k % maxStride) }

type patternPlace struct{ pat, off int32 }

// placeIndex finds positions by a key. A lookup also returns the positions of a few other keys, so the caller must
// compare.
type placeIndex[P patternPlace | knownBlock] struct {
	shift uint
	start []uint32 // by hash: the index in list of its first position
	list  []P
}

// newPlaces collects the positions that fill adds. It calls fill three times.
func newPlaces[P patternPlace | knownBlock](fill func(add func(key uint64, p P))) placeIndex[P] {
	n := 0
	fill(func(uint64, P) { n++ })
	width := min(max(4, bits.Len(uint(n))), 20)
	m := placeIndex[P]{shift: uint(64 - width), start: make([]uint32, 1<<width+1), list: make([]P, n)}
	fill(func(key uint64, _ P) { m.start[hashKey(key, m.shift)+1]++ })
	for i := 1; i < len(m.start); i++ {
		m.start[i] += m.start[i-1]
	}
	next := append([]uint32(nil), m.start...)
	fill(func(key uint64, p P) {
		h := hashKey(key, m.shift)
		m.list[next[h]] = p
		next[h]++
	})
	return m
}

func (m *placeIndex[P]) lookUpKey(key uint64) []P {
	h := hashKey(key, m.shift)
	return m.list[m.start[h]:m.start[h+1]]
}

func hashKey(key uint64, shift uint) uint64 { return key * 0x9E3779B97F4A7C15 >> shift }

func otherHash(key uint64, shift uint) uint64 { return (key ^ key>>29) * 0xBF58476D1CE4E5B9 >> shift }
