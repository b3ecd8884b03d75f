package openapi

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// refResolver follows references inside the document.
type refResolver struct {
	root  *jsonread.Node
	known map[string]*jsonread.Node
	// index holds the members of large maps by key.
	index map[*jsonread.Node]map[string]*jsonread.Node
	// outside counts the references to other files or addresses.
	outside int
}

// maxChain bounds a chain of references, which can be a cycle.
const maxChain = 20

// followRefs follows a node's reference, and the references of its targets. If the chain ends nowhere, it returns nil.
func (r *refResolver) followRefs(n *jsonread.Node) *jsonread.Node {
	for range maxChain {
		ref := n.GetValue("$ref")
		if !ref.Is(jsonread.String) {
			return n
		}
		n = r.findTarget(ref.Text)
	}
	return nil
}

// findTarget returns the target of a reference, or nil.
func (r *refResolver) findTarget(ref string) *jsonread.Node {
	if n, ok := r.known[ref]; ok {
		return n
	}
	n := r.followPointer(ref)
	// A missing target is cached too: many references may lead to it.
	r.known[ref] = n
	return n
}

// followPointer follows a JSON pointer in a fragment (RFC 6901, section 6).
func (r *refResolver) followPointer(ref string) *jsonread.Node {
	pointer, inside := strings.CutPrefix(ref, "#/")
	if !inside {
		if ref != "#" {
			r.outside++
			return nil
		}
		return r.root
	}
	n := r.root
	for part := range strings.SplitSeq(pointer, "/") {
		key := strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := r.childNode(n, key)
		// Some documents percent-encode the pointer, as RFC 6901, section 6 requires, and others do not.
		if next == nil {
			if plain, err := url.PathUnescape(part); err == nil {
				next = r.childNode(n, strings.NewReplacer("~1", "/", "~0", "~").Replace(plain))
			}
		}
		if n = next; n == nil {
			return nil
		}
	}
	return n
}

func (r *refResolver) childNode(n *jsonread.Node, key string) *jsonread.Node {
	if n.Is(jsonread.List) {
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Members) {
			return n.Members[i].Node
		}
		return nil
	}
	const large = 16
	if n == nil || len(n.Members) <= large {
		return n.GetValue(key)
	}
	index := r.index[n]
	if index == nil {
		index = make(map[string]*jsonread.Node, len(n.Members))
		for _, m := range n.ObjectMembers() {
			// Of duplicate keys the first counts.
			if index[m.Key] == nil {
				index[m.Key] = m.Node
			}
		}
		r.index[n] = index
	}
	return index[key]
}
