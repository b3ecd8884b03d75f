// Package readertext words one sentence for its two readers: a model, and a person at a command line.
//
// A template marks where the words differ as {for a model|for a person}. Braces without a bar are text.
package readertext

import "strings"

// Text is a sentence for each reader.
type Text struct{ Model, Person string }

// NewText makes a Text from a template. values are pairs of a placeholder and its replacement. They are inserted last,
// so they are never parsed as a template.
func NewText(template string, values ...string) Text {
	model, person := &strings.Builder{}, &strings.Builder{}
	for rest := template; rest != ""; {
		before, after, _ := strings.Cut(rest, "{")
		one, other, differ := strings.Cut(after, "|")
		other, next, closed := strings.Cut(other, "}")
		if !differ || !closed || strings.ContainsAny(one, "{}") {
			before = rest[:len(rest)-len(after)] // up to and including the brace
			one, other, next = "", "", after
		}
		model.WriteString(before + one)
		person.WriteString(before + other)
		rest = next
	}
	said := Text{model.String(), person.String()}
	for i := 0; i < len(values); i += 2 {
		if strings.Contains(template, values[i]) {
			in := strings.NewReplacer(values...)
			return Text{in.Replace(said.Model), in.Replace(said.Person)}
		}
	}
	return said // preparing a replacer takes longer than all the rest
}
