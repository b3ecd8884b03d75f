package catalog

// dictionary is an Aho-Corasick automaton. It finds many words in a text in linear time, so that neither a long text of
// an API nor many credentials slow down the load.
type dictionary struct {
	nodes []dictionaryNode
	root  [256]int32 // the root's children by byte, or 0
	words int
}

// dictionaryNode is a node of the trie. Node 0 is the root. As child, sibling and output, 0 means no node.
type dictionaryNode struct {
	b              byte
	child, sibling int32
	failure        int32 // the node of the longest proper suffix that is in the trie
	word           int32 // the word that ends here, from 1, or 0
	output         int32 // the nearest node along failure links at which a word ends
}

// newDictionary makes the dictionary of words. Equal words have the number of the first one. Empty words are never
// found.
func newDictionary(words []string) *dictionary {
	d := &dictionary{nodes: make([]dictionaryNode, 1), words: len(words)}
	for i, w := range words {
		at := int32(0)
		for j := range len(w) {
			next := d.childOf(at, w[j])
			if next == 0 {
				next = d.addChild(at, w[j])
			}
			at = next
		}
		if w != "" && d.nodes[at].word == 0 {
			d.nodes[at].word = int32(i) + 1 //nolint:gosec // bounded by what a load reads
		}
	}
	d.linkNodes()
	return d
}

// childOf returns the child of a node for a byte, or 0.
func (d *dictionary) childOf(at int32, b byte) int32 {
	if at == 0 {
		return d.root[b]
	}
	for n := d.nodes[at].child; n != 0; n = d.nodes[n].sibling {
		if d.nodes[n].b == b {
			return n
		}
	}
	return 0
}

func (d *dictionary) addChild(at int32, b byte) int32 {
	n := int32(len(d.nodes)) //nolint:gosec // bounded by what a load reads
	node := dictionaryNode{b: b}
	if at == 0 {
		d.root[b] = n
	} else {
		node.sibling, d.nodes[at].child = d.nodes[at].child, n
	}
	d.nodes = append(d.nodes, node)
	return n
}

// linkNodes sets failure and output links, breadth first.
func (d *dictionary) linkNodes() {
	var queue []int32
	for _, n := range d.root {
		if n != 0 {
			queue = append(queue, n)
		}
	}
	// Breadth first: the failure node of a child is nearer to the root, so it is already linked.
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for n := d.nodes[at].child; n != 0; n = d.nodes[n].sibling {
			failure := d.followByte(d.nodes[at].failure, d.nodes[n].b)
			d.nodes[n].failure, d.nodes[n].output = failure, failure
			// Skip nodes without a word, so that next visits only words.
			if d.nodes[failure].word == 0 {
				d.nodes[n].output = d.nodes[failure].output
			}
			queue = append(queue, n)
		}
	}
}

// followByte returns the node after one more byte. It follows failure links if necessary.
func (d *dictionary) followByte(at int32, b byte) int32 {
	for {
		if next := d.childOf(at, b); next != 0 || at == 0 {
			return next
		}
		at = d.nodes[at].failure
	}
}

// dictionarySearch searches several texts. It reports each word once.
type dictionarySearch struct {
	*dictionary
	found []bool // by word
}

func (d *dictionary) newSearch() dictionarySearch { return dictionarySearch{d, make([]bool, d.words)} }

// scanText calls report for each word in the text that this search has not found before.
func (s dictionarySearch) scanText(text string, report func(word int)) { scanPiece(s, 0, text, report) }

// scanPiece is scan for a text in pieces. at is the result of next for the previous piece, or 0 for the first piece.
func scanPiece[T string | []byte](s dictionarySearch, at int32, text T, report func(word int)) int32 {
	for i := range len(text) {
		at = s.followByte(at, text[i])
		n := at
		if n != 0 && s.nodes[n].word == 0 {
			n = s.nodes[n].output
		}
		// If a word was found before, its suffixes were found before, too.
		for ; n != 0 && !s.found[s.nodes[n].word-1]; n = s.nodes[n].output {
			s.found[s.nodes[n].word-1] = true
			report(int(s.nodes[n].word) - 1)
		}
	}
	return at
}
