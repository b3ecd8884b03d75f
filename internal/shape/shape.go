// Package shape learns what JSON looks like from examples: names and kinds, never values.
//
// Threat: names can be values too, as in an object that has a member for each user. What is learned of one caller's
// answers is shown to others, so a name is shown only where it is most likely the API's: see Shape.String.
package shape

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Bounds of what is learned. What is beyond them is unknown.
const (
	// MaxRead is how much of one example is read, in bytes. One that breaks off gives the shape of what there is.
	MaxRead = 32 << 10
	// maxDepth is how deep objects nest that are shown, and maxLevels how deep objects and lists nest that are read.
	maxDepth  = 3
	maxLevels = 2 * maxDepth
	// maxMembers is how many names an object has: one with more is a map.
	maxMembers = 120
	// maxItems is how many elements of a list are read.
	maxItems = 30
	// maxNodes is how many members a shape has in all.
	maxNodes = 150
	// maxName is how long a name is at most, in bytes: longer ones may be credentials of letters alone.
	maxName = 32
)

// Kind is a set of kinds of JSON values.
type Kind uint8

// The kinds.
const (
	Object Kind = 1 << iota
	List
	String
	Number
	Boolean
	Null
)

// Shape is what the values at one place look like. Its zero value has seen none.
type Shape struct {
	Kinds Kind `json:"k,omitempty"`
	// Items are the elements of lists.
	Items *Shape `json:"i,omitempty"`
	// Objects is how many different objects there were, and Members what those had.
	Objects int      `json:"n,omitempty"`
	Members []Member `json:"m,omitempty"`
	// Odd is how many members had a name that is data by its look, or one too many. Values are theirs.
	Odd    int    `json:"o,omitempty"`
	Values *Shape `json:"v,omitempty"`
}

// Member is a member of an object.
type Member struct {
	Name string `json:"n"`
	// Count is how many of the objects had it.
	Count int    `json:"c"`
	Shape *Shape `json:"s"`
}

// Of is the shape of one example, nil if it does not begin with a value.
func Of(example io.Reader) *Shape {
	d := json.NewDecoder(io.LimitReader(example, MaxRead))
	d.UseNumber()
	s := &Shape{}
	r := reader{d: d, left: maxNodes}
	_ = r.value(s, 0) // what was read until an error counts
	if s.Kinds == 0 {
		return nil
	}
	return s
}

// reader adds values to shapes.
type reader struct {
	d    *json.Decoder
	left int // how many more members there may be
}

// value adds the next value to a shape. Level is how deep the place is.
func (r *reader) value(s *Shape, level int) error {
	t, err := r.d.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Delim:
		switch t {
		case '{':
			s.Kinds |= Object
			if level < maxLevels {
				return r.object(s, level)
			}
		case '[':
			s.Kinds |= List
			if level < maxLevels {
				return r.list(s, level)
			}
		}
		return r.skip()
	case string:
		s.Kinds |= String
	case json.Number:
		s.Kinds |= Number
	case bool:
		s.Kinds |= Boolean
	case nil:
		s.Kinds |= Null
	}
	return nil
}

// skip reads to the end of the list or object that has begun.
func (r *reader) skip() error {
	for depth := 1; depth > 0; {
		t, err := r.d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// list adds the elements of a list, after its bracket.
func (r *reader) list(s *Shape, level int) error {
	if s.Items == nil {
		s.Items = &Shape{}
	}
	for i := 0; r.d.More(); i++ {
		if i == maxItems {
			return r.skip()
		}
		if err := r.value(s.Items, level+1); err != nil {
			return err
		}
	}
	_, err := r.d.Token()
	return err
}

// object adds the members of an object, after its brace.
func (r *reader) object(s *Shape, level int) error {
	s.Objects++
	for r.d.More() {
		t, err := r.d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // an object's first token, and each one behind a value, is one
		if err := r.value(s.member(name, &r.left), level+1); err != nil {
			return err
		}
	}
	_, err := r.d.Token()
	return err
}

// member is the shape of a member's values, which one more object has. A name that an object has twice counts once.
func (s *Shape) member(name string, left *int) *Shape {
	i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == name })
	if i < 0 && plain(name) && len(s.Members) < maxMembers && *left > 0 {
		*left--
		i = len(s.Members)
		s.Members = append(s.Members, Member{Name: strings.Clone(name), Shape: &Shape{}})
	}
	if i >= 0 {
		s.Members[i].Count = min(s.Members[i].Count+1, s.Objects)
		return s.Members[i].Shape
	}
	s.Odd++
	if s.Values == nil {
		s.Values = &Shape{}
	}
	return s.Values
}

// Join adds what another shape has seen. Again says that it was seen in an answer to the same question: its objects may
// be the same ones.
func (s *Shape) Join(o *Shape, again bool) {
	left := maxNodes - s.size()
	s.join(o, again, &left)
}

func (s *Shape) join(o *Shape, again bool, left *int) {
	if o == nil {
		return
	}
	count := func(a, b int) int {
		if again {
			return max(a, b)
		}
		return a + b
	}
	s.Kinds |= o.Kinds
	s.Objects, s.Odd = count(s.Objects, o.Objects), count(s.Odd, o.Odd)
	if o.Items != nil {
		if s.Items == nil {
			s.Items = &Shape{}
		}
		s.Items.join(o.Items, again, left)
	}
	if o.Values != nil {
		if s.Values == nil {
			s.Values = &Shape{}
		}
		s.Values.join(o.Values, again, left)
	}
	for _, m := range o.Members {
		i := slices.IndexFunc(s.Members, func(n Member) bool { return n.Name == m.Name })
		if i < 0 && (len(s.Members) == maxMembers || *left <= 0) {
			s.Odd += m.Count
			continue
		}
		if i < 0 {
			*left--
			i = len(s.Members)
			s.Members = append(s.Members, Member{Name: m.Name, Shape: &Shape{}})
		}
		s.Members[i].Count = count(s.Members[i].Count, m.Count)
		s.Members[i].Shape.join(m.Shape, again, left)
	}
}

// size is how many members a shape has in all.
func (s *Shape) size() int {
	if s == nil {
		return 0
	}
	n := len(s.Members) + s.Items.size() + s.Values.size()
	for _, m := range s.Members {
		n += m.Shape.size()
	}
	return n
}

// plain reports whether a name looks as APIs write names: words that a small letter, a capital or a hyphen parts.
// Addresses, identifiers and sentences do not.
func plain(name string) bool {
	digits, word, small, after := 0, 0, false, false
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			if after { // h4sh
				return false
			}
			if c >= 'a' {
				small = true
			} else if i > 0 && name[i-1] >= 'a' {
				word = 0
			}
			word++
		case '0' <= c && c <= '9' && i > 0:
			digits, after = digits+1, true
		case c == '_', c == '-' && i > 0, c == '$' && i == 0:
			word, after = 0, false
		default:
			return false
		}
		if word > maxWord {
			return false
		}
	}
	return name != "" && len(name) <= maxName && digits <= maxDigits && (digits == 0 || small)
}

// What words of a plain name have at most.
const (
	maxWord   = 20
	maxDigits = 3
)
