// Package secretvalues compiles the values of a catalog once, for all packages that search for them. Package
// multisearch makes the forms of each value (forms.go).
//
// Contract: scrub finds the values in responses, and swap refuses requests that contain one. Both search for all forms
// of the values, which take about 100 times the memory of the values.
package secretvalues

import (
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// ValueSet is an immutable set of values, numbered from 0 in the given order.
type ValueSet struct {
	// Set finds the values. The ID of a match is the number of the value.
	Set *multisearch.Set
	// Lower finds the values in lower-case text.
	Lower *multisearch.Set

	ids map[string]int
}

// New compiles values. It skips empty and repeated ones.
func New(list []secret.Value) *ValueSet {
	v := &ValueSet{ids: map[string]int{}}
	var all, lower []multisearch.Pattern
	for _, s := range list {
		text := s.Reveal()
		// Several credentials may have one value: its patterns are compiled once.
		if _, twice := v.ids[text]; twice || text == "" {
			continue
		}
		id := len(v.ids)
		v.ids[text] = id
		//defence:forms instead append(all, multisearch.Pattern{Text: text, ID: id})
		all = append(all, multisearch.ListForms(text, id)...)
		lower = append(lower, multisearch.ListLowerForms(text, id)...)
	}
	v.Set, v.Lower = multisearch.New(all), multisearch.New(lower)
	return v
}

// Len returns the number of values.
func (v *ValueSet) Len() int { return len(v.ids) }

// FindID returns the number of a value.
func (v *ValueSet) FindID(s secret.Value) (id int, ok bool) {
	id, ok = v.ids[s.Reveal()]
	return id, ok
}
