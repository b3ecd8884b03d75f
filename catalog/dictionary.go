package catalog

// dictionary finds many words in texts at once, in time linear in each text and in the words (Aho and Corasick), so
// that one API's long text, or many credentials, do not slow down the load.
type dictionary struct {
	nodes []dictionaryNode
	root  [256]int32 // where a first byte leads; 0: nowhere
	words int
}

// dictionaryNode is a beginning of words. Number 0 is the empty one, and stands for none.
type dictionaryNode struct {
	b              byte
	child, sibling int32
	back           int32 // the longest other beginning that this one ends in
	word           int32 // the word that ends here, from 1
	shorter        int32 // the nearest node by way of back where a word ends
}

// newDictionary makes the dictionary of words. Equal words have the number of the first; empty ones are in no text.
func newDictionary(words []string) *dictionary {
	d := &dictionary{nodes: make([]dictionaryNode, 1), words: len(words)}
	for i, w := range words {
		at := int32(0)
		for j := range len(w) {
			next := d.step(at, w[j])
			if next == 0 {
				next = d.add(at, w[j])
			}
			at = next
		}
		if w != "" && d.nodes[at].word == 0 {
			d.nodes[at].word = int32(i) + 1 //nolint:gosec // bounded by what a load reads
		}
	}
	d.link()
	return d
}

// step is where a byte leads from a node, or 0.
func (d *dictionary) step(at int32, b byte) int32 {
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

func (d *dictionary) add(at int32, b byte) int32 {
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

// link sets where to go on when a byte leads nowhere, shorter beginnings first.
func (d *dictionary) link() {
	var queue []int32
	for _, n := range d.root {
		if n != 0 {
			queue = append(queue, n)
		}
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for n := d.nodes[at].child; n != 0; n = d.nodes[n].sibling {
			back := d.follow(d.nodes[at].back, d.nodes[n].b)
			d.nodes[n].back, d.nodes[n].shorter = back, back
			if d.nodes[back].word == 0 {
				d.nodes[n].shorter = d.nodes[back].shorter
			}
			queue = append(queue, n)
		}
	}
}

// follow is the longest beginning after one more byte.
func (d *dictionary) follow(at int32, b byte) int32 {
	for {
		if next := d.step(at, b); next != 0 || at == 0 {
			return next
		}
		at = d.nodes[at].back
	}
}

// search looks for words in several texts. A search finds each word once.
type search struct {
	*dictionary
	found []bool // by word
}

func (d *dictionary) search() search { return search{d, make([]bool, d.words)} }

// in calls on for each word in the text that this search has not found before.
func (s search) in(text string, on func(word int)) {
	at := int32(0)
	for i := range len(text) {
		at = s.follow(at, text[i])
		n := at
		if n != 0 && s.nodes[n].word == 0 {
			n = s.nodes[n].shorter
		}
		// Where a word was found before, those that it ends in were too.
		for ; n != 0 && !s.found[s.nodes[n].word-1]; n = s.nodes[n].shorter {
			s.found[s.nodes[n].word-1] = true
			on(int(s.nodes[n].word) - 1)
		}
	}
}
