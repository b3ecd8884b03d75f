package shape

import (
	"fmt"
	"math/bits"
	"strings"
)

// maxText is how long a shape is as text, in bytes.
const maxText = 1500

// String is the shape as a type of TypeScript, "unknown" if nothing is known.
//
// The names of an object are shown if at least two different objects at this place had them. Of one object alone they
// are shown if its values are of several kinds, as those of a map are not. Other objects are maps, of which only the
// values are told, and so are those that have many names which are data by their look.
func (s *Shape) String() string {
	for depth := maxDepth; ; depth-- {
		if text := s.text(depth); depth == 1 || len(text) <= maxText {
			return text
		}
	}
}

func (s *Shape) text(depth int) string {
	if s == nil || s.Kinds == 0 {
		return "unknown"
	}
	var parts []string
	for kind := Object; kind <= Null; kind <<= 1 {
		if s.Kinds&kind == 0 {
			continue
		}
		switch kind {
		case Object:
			parts = append(parts, s.object(depth))
		case List:
			item := s.Items.text(depth)
			if s.Items != nil && bits.OnesCount8(uint8(s.Items.Kinds)) > 1 {
				item = "(" + item + ")"
			}
			parts = append(parts, item+"[]")
		case String:
			parts = append(parts, "string")
		case Number:
			parts = append(parts, "number")
		case Boolean:
			parts = append(parts, "boolean")
		case Null:
			parts = append(parts, "null")
		}
	}
	return strings.Join(parts, " | ")
}

func (s *Shape) object(depth int) string {
	const unknown = "{ [key: string]: unknown }"
	if depth == 0 || s.Objects == 0 {
		return unknown
	}
	shown := s.shown()
	if len(shown) == 0 {
		if len(s.Members) == 0 && s.Odd == 0 {
			return "{}"
		}
		return "{ [key: string]: " + s.values().text(depth-1) + " }"
	}
	var b strings.Builder
	b.WriteString("{ ")
	hidden := len(s.Members) - len(shown)
	if s.Odd > 0 {
		hidden++
	}
	for i, m := range shown {
		name := m.Name
		if strings.Contains(name, "-") {
			name = `"` + name + `"`
		}
		if m.Count < s.Objects {
			name += "?"
		}
		text := name + ": " + m.Shape.text(depth-1) + "; "
		if depth == 1 && b.Len()+len(text) > maxText-len("…000 more }") {
			hidden += len(shown) - i
			break
		}
		b.WriteString(text)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "…%d more ", hidden)
	}
	return b.String() + "}"
}

// shown are the members whose names are the API's. There are none in a map.
func (s *Shape) shown() []Member {
	named, again := 0, 0
	kinds := Kind(0)
	var out []Member
	for _, m := range s.Members {
		named += m.Count
		kinds |= m.Shape.Kinds &^ Null
		if 2 <= m.Count && s.Objects <= 3*m.Count {
			again++
			out = append(out, m)
		}
	}
	severalKinds := bits.OnesCount8(uint8(kinds)) > 1
	switch {
	case 3*s.Odd > named: // a quarter of all
		//defence:shape-names instead s.Members
		return nil
	case s.Objects < 2 && severalKinds:
		return s.Members
	case s.Objects < 2, 2*again < len(s.Members) && !severalKinds:
		//defence:shape-names instead s.Members
		return nil
	}
	return out
}

// values are what all members of a map have in common.
func (s *Shape) values() *Shape {
	all := &Shape{}
	all.Join(s.Values, false)
	for _, m := range s.Members {
		all.Join(m.Shape, false)
	}
	return all
}
