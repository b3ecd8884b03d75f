package yamltree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// parseYAML parses the first document of a text.
func parseYAML(text string, skip Skip) (*jsonread.Node, error) {
	if countValues(text) > MaxValues {
		return nil, ErrTooMany
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("neither JSON nor YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, errors.New("an empty document")
	}
	c := &yamlConverter{skip: skip, shared: map[*yaml.Node]*jsonread.Node{}}
	return c.convertNode(doc.Content[0], "", 0)
}

// countValues estimates the number of values in a YAML text, before memory is spent on them. Every value except the
// first follows a line feed, or a bracket or comma with another one nearby. Prose rarely has those.
func countValues(text string) int {
	n, last := 0, -8
	for i := range len(text) {
		switch text[i] {
		case '\n':
			n++
		case '[', '{', ',', ':', '-', '?':
			if i-last < 8 {
				n++
			}
			last = i
		}
	}
	return n
}

// yamlConverter converts nodes of the YAML module to jsonread's.
type yamlConverter struct {
	skip   Skip
	count  int
	shared map[*yaml.Node]*jsonread.Node // anchors; nil while being read
}

func (c *yamlConverter) convertNode(y *yaml.Node, around string, depth int) (*jsonread.Node, error) {
	if c.count++; c.count > MaxValues {
		return nil, ErrTooMany
	}
	if depth > MaxDepth {
		return nil, errTooDeep
	}
	if y.Kind == yaml.AliasNode {
		n := c.shared[y.Alias]
		if n == nil {
			return nil, fmt.Errorf("line %d: an alias inside its own value", y.Line)
		}
		return n, nil
	}
	if y.Anchor != "" {
		// An alias to an anchor that is still being read is a cycle.
		c.shared[y] = nil
	}
	n, err := c.convertFresh(y, around, depth)
	if y.Anchor != "" {
		c.shared[y] = n
	}
	return n, err
}

func (c *yamlConverter) convertFresh(y *yaml.Node, around string, depth int) (*jsonread.Node, error) {
	switch y.Kind {
	case yaml.SequenceNode:
		n := &jsonread.Node{Kind: jsonread.List, Members: make([]jsonread.Member, 0, len(y.Content))}
		for _, item := range y.Content {
			v, err := c.convertNode(item, around, depth+1)
			if err != nil {
				return nil, err
			}
			n.Members = append(n.Members, jsonread.Member{Node: v})
		}
		return n, nil
	case yaml.MappingNode:
		return c.convertMapping(y, around, depth)
	}
	switch y.ShortTag() {
	case "!!null":
		return &jsonread.Node{}, nil
	case "!!bool":
		return &jsonread.Node{Kind: jsonread.Bool, Text: strings.ToLower(y.Value)}, nil
	case "!!int", "!!float":
		return &jsonread.Node{Kind: jsonread.Number, Text: y.Value}, nil
	}
	return &jsonread.Node{Kind: jsonread.String, Text: y.Value}, nil
}

func (c *yamlConverter) convertMapping(y *yaml.Node, around string, depth int) (*jsonread.Node, error) {
	n := &jsonread.Node{Kind: jsonread.Object, Members: make([]jsonread.Member, 0, len(y.Content)/2)}
	var merged []*jsonread.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key that is a list or map", key.Line)
		}
		merge := key.ShortTag() == "!!merge"
		if !merge && c.skip != nil && c.skip(around, key.Value) && !hasAnchor(value, 0) {
			continue
		}
		below := key.Value
		if merge {
			below = around
		}
		v, err := c.convertNode(value, below, depth+1)
		if err != nil {
			return nil, err
		}
		if !merge {
			n.Members = append(n.Members, jsonread.Member{Key: key.Value, Node: v})
			continue
		}
		merged = append(merged, v)
		for _, item := range v.ListItems() {
			if c.count++; c.count > MaxValues { // the list may be shared
				return nil, ErrTooMany // the list may be shared
			}
			merged = append(merged, item.Node)
		}
	}
	return n, c.mergeMaps(n, merged)
}

// mergeMaps adds the keys of other maps that a map lacks.
func (c *yamlConverter) mergeMaps(n *jsonread.Node, from []*jsonread.Node) error {
	if len(from) == 0 {
		return nil
	}
	has := map[string]bool{}
	for _, m := range n.Members {
		has[m.Key] = true
	}
	for _, f := range from {
		for _, m := range f.ObjectMembers() {
			if c.count++; c.count > MaxValues {
				return ErrTooMany
			}
			if !has[m.Key] {
				has[m.Key] = true
				n.Members = append(n.Members, m)
			}
		}
	}
	return nil
}

// hasAnchor reports whether a value, or one inside it, may be the target of an alias.
func hasAnchor(y *yaml.Node, depth int) bool {
	if y.Anchor != "" || depth > MaxDepth {
		return true
	}
	return slices.ContainsFunc(y.Content, func(c *yaml.Node) bool { return hasAnchor(c, depth+1) })
}
