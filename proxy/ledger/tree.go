package ledger

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// tree is a growing Merkle tree (RFC 6962). It keeps the roots of its complete subtrees, at most one of each height.
type tree struct {
	size int64
	edge []tlog.Hash // edge[h] is valid if bit h of size is set
}

func (t *tree) addLeaf(h tlog.Hash) { t.graftSubtree(0, h) }

// maxHeight bounds the height of a kept subtree, and maxSize the size of a tree that grows.
const maxHeight, maxSize = 48, 1 << 62

// graftSubtree appends a complete subtree of a height. If such a subtree does not fit at the end of the tree, graft
// returns false and keeps the tree.
func (t *tree) graftSubtree(height int, h tlog.Hash) bool {
	// A size that overflows would make the loop below endless.
	if height > maxHeight || t.size > maxSize || t.size&(1<<height-1) != 0 {
		return false
	}
	size := t.size + 1<<height
	// Like a binary addition: two subtrees of one height make one of the next height.
	for ; t.size>>height&1 == 1; height++ {
		h = tlog.NodeHash(t.edge[height], h)
	}
	for height >= len(t.edge) {
		t.edge = append(t.edge, tlog.Hash{})
	}
	t.edge[height], t.size = h, size
	return true
}

// rootSize is the size of an entry in a file of roots, in bytes: the height and the hash.
const rootSize = 1 + tlog.HashSize

// computeRoots returns the roots of the largest complete subtrees of the leaves in r. begin is the number of the first
// leaf.
func computeRoots(r io.Reader, begin int64) ([]byte, error) {
	type root struct {
		height int
		hash   tlog.Hash
	}
	var list []root
	for at := begin; ; at++ {
		var leaf root
		if _, err := io.ReadFull(r, leaf.hash[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		for n := len(list); n > 0 && at>>leaf.height&1 == 1 && list[n-1].height == leaf.height; n-- {
			leaf = root{leaf.height + 1, tlog.NodeHash(list[n-1].hash, leaf.hash)}
			list = list[:n-1]
		}
		list = append(list, leaf)
	}
	var out []byte
	for _, r := range list {
		out = append(append(out, byte(r.height)), r.hash[:]...)
	}
	return out, nil
}

// currentHead returns the tree's size and root.
func (t *tree) currentHead() Head {
	out := Head{Size: t.size}
	for i, h := range t.completeRoots() {
		if i == 0 {
			out.Root = h
		} else {
			out.Root = tlog.NodeHash(h, out.Root)
		}
	}
	return out
}

// completeRoots returns the roots of the complete subtrees, the smallest first.
func (t *tree) completeRoots() []tlog.Hash {
	out := make([]tlog.Hash, 0, len(t.edge))
	for height, h := range t.edge {
		if t.size>>height&1 == 1 {
			out = append(out, h)
		}
	}
	return out
}

// newTree returns the tree of a size with these complete subtrees.
func newTree(size int64, complete []tlog.Hash) (tree, error) {
	t := tree{size: size}
	for height := 0; size>>height != 0; height++ {
		var h tlog.Hash
		if size>>height&1 == 1 {
			if len(complete) == 0 {
				return tree{}, errEdge
			}
			h, complete = complete[0], complete[1:]
		}
		t.edge = append(t.edge, h)
	}
	if len(complete) > 0 {
		return tree{}, errEdge
	}
	return t, nil
}

var errEdge = errors.New("the checkpoint's edge does not fit its size")

// Head is a state of the ledger: the number of records, and the root of their tree.
type Head struct {
	Size int64
	Root tlog.Hash
}

// String returns the head in the form for results and the log: "18231 mX3...=".
func (h Head) String() string { return strconv.FormatInt(h.Size, 10) + " " + h.Root.String() }

// ParseHead parses the form of String, also in the middle of a line that someone copied.
func ParseHead(text string) (Head, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'=,;:()[]{}", r) })
	for i := 1; i < len(fields); i++ {
		size, err := strconv.ParseInt(fields[i-1], 10, 64)
		if err != nil || size < 1 {
			continue
		}
		if root, err := tlog.ParseHash(fields[i] + "="); err == nil {
			return Head{size, root}, nil
		}
	}
	return Head{}, errors.New(`want a number of records and a hash, as a result has them: "18231 mX3...="`)
}

// noteText returns the text that a checkpoint signs.
func (h Head) noteText(origin string) string {
	return fmt.Sprintf("%s\n%d\n%s\n", origin, h.Size, h.Root)
}

// verifyNote verifies a checkpoint's signature, and that its edge has the signed root.
func (c *Checkpoint) verifyNote(v note.Verifier) (Head, tree, error) {
	//defence:ledger-signature
	if _, err := note.Open([]byte(c.Note), note.VerifierList(v)); err != nil {
		return Head{}, tree{}, errors.New("its signature is not that of the ledger's key")
	}
	return c.parseNote(v.Name())
}

// matchTree reports whether the checkpoint is one of exactly this tree. It does not check the signature.
func (c *Checkpoint) matchTree(origin string, t *tree) bool {
	h := t.currentHead()
	return strings.HasPrefix(c.Note, h.noteText(origin)+"\n") && slices.Equal(c.Edge, t.completeRoots())
}

// parseNote is open without the signature check, which takes far longer than the rest.
func (c *Checkpoint) parseNote(origin string) (Head, tree, error) {
	lines := strings.SplitN(c.Note, "\n", 5)
	if len(lines) != 5 || lines[0] != origin || lines[3] != "" {
		return Head{}, tree{}, errors.New("it is not a checkpoint of this ledger")
	}
	h, err := ParseHead(lines[1] + " " + lines[2])
	if err != nil {
		return Head{}, tree{}, err
	}
	t, err := newTree(h.Size, c.Edge)
	if err == nil && t.currentHead() != h {
		// The signature covers only the head: an edge that is not its tree would let the next records grow on a forged one.
		err = errEdge
	}
	return h, t, err
}
