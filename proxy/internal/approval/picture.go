package approval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

const (
	maxLines  = 40      // groups of steps in a picture
	maxFields = 6       // fields of a line
	maxValue  = 60      // bytes of a value
	maxPath   = 160     // bytes of a path
	maxLine   = 4 << 10 // bytes of a line of fields, which may all differ in the steps of a group
	maxNamed  = 2       // of the segments that differ in a group
	maxPeriod = 4       // steps that repeat in turn
)

// group is steps that share a line of a picture.
type group struct {
	steps  []approvalapi.Step
	fields []string // the fields of the first step's body, in order
	at     int      // the only segment in which the URLs differ, or same
}

// drawSteps shows steps in few lines. Steps that follow each other share a line if they differ only in one segment of
// their path and in values of their headers and body. The line shows the different values; all other parts are equal.
// If up to maxPeriod steps repeat in turn, as in a loop, each of them gets one line.
//
// Threat: code chose the steps. Contract: the time is linear in their size.
func drawSteps(steps []approvalapi.Step) []string {
	var out []string
	more := len(steps)
	for i, g := range foldSteps(steps) {
		if i == maxLines {
			out = append(out, fmt.Sprintf(" and %d more steps", more))
			break
		}
		more -= len(g.steps)
		first := g.steps[0]
		line := fmt.Sprintf(" %-5s %s", g.listNumbers(), g.target())
		if len(g.steps) > 1 {
			line = fmt.Sprintf(" %-5s %d x %s", g.listNumbers(), len(g.steps), g.target())
		}
		if names := first.Tokens; len(names) > 0 {
			line += "  " + safetext.OneLine(strings.Join(names, ", "))
		}
		what := formatChanges(first.Changes)
		if what != "" {
			what = cutLine(strings.Join(append(g.listDifferentHeaders(), what), "; "))
		} else if what = cutLine(g.summary()); what != "" && len(line) <= maxPath/2 {
			line, what = line+"  "+what, ""
		}
		out = append(out, line)
		if what != "" {
			out = append(out, strings.Repeat(" ", 7)+what)
		}
	}
	return out
}

// cutLine bounds a line of fields. Fields that differ may be in the rest, so it says that the line is not whole.
func cutLine(text string) string {
	return safetext.CutText(text, maxLine, "... NOT ALL SHOWN: codeforge plan show has the rest")
}

// listNumbers returns the numbers of a group's steps.
func (g *group) listNumbers() string {
	first, last := g.steps[0].N, g.steps[len(g.steps)-1].N
	switch {
	case len(g.steps) == 1:
		return fmt.Sprint(first)
	case last-first == len(g.steps)-1:
		return fmt.Sprintf("%d-%d", first, last)
	case len(g.steps) == 2:
		return fmt.Sprintf("%d,%d", first, last)
	}
	return fmt.Sprintf("%d,%d,...%d", first, g.steps[1].N, last)
}

// foldSteps groups steps that can share a line.
func foldSteps(steps []approvalapi.Step) (out []*group) {
	fields := make([][]string, len(steps))
	for i, s := range steps {
		fields[i], _ = readBodyFields(s)
	}
	for len(steps) > 0 {
		groups := foldCycle(steps, fields)
		out = append(out, groups...)
		n := len(groups) * len(groups[0].steps)
		steps, fields = steps[n:], fields[n:]
	}
	return out
}

// foldCycle groups the first steps: those that repeat with the shortest period, or the first step alone. All groups
// have the same length. fields are the fields of the steps' bodies.
func foldCycle(steps []approvalapi.Step, fields [][]string) []*group {
	for period := 1; period <= min(maxPeriod, len(steps)/2); period++ {
		groups := make([]*group, period)
		for i, s := range steps {
			if i < period {
				groups[i] = &group{[]approvalapi.Step{s}, fields[i], noDifference}
			} else if !groups[i%period].add(s, fields[i]) {
				break
			}
		}
		// Leave the steps of an incomplete turn to the next groups.
		turns := len(groups[period-1].steps)
		for _, g := range groups {
			g.steps = g.steps[:turns]
		}
		if turns > 1 {
			return groups
		}
	}
	return []*group{{steps[:1], fields[0], noDifference}}
}

// add adds a step with these fields, if it fits into the group. It may differ from the other steps in one segment of
// the path, at the same place in all, and in values of its headers and of its body's fields.
func (g *group) add(s approvalapi.Step, fields []string) bool {
	a := g.steps[0]
	// Everything that the shared line does not show must be equal, or the approver would not see it.
	if a.Method != s.Method || a.Server != s.Server || a.Tool != s.Tool || a.Rule != s.Rule || !g.hasFields(s, fields) ||
		!sameHeaders(a, s) || !slices.Equal(a.Changes, s.Changes) || !slices.Equal(a.APIs, s.APIs) ||
		!slices.Equal(a.Tokens, s.Tokens) {
		return false
	}
	at := findDifference(a.URL, s.URL)
	if at == manyDifferences || at != noDifference && g.at != noDifference && at != g.at {
		return false
	}
	if g.steps = append(g.steps, s); at != noDifference {
		g.at = at
	}
	return true
}

// hasFields reports whether a step with these fields has the first step's body, or the same fields in the same order.
// The line of steps with changes shows only the changes, so the bodies of such steps must be the same.
func (g *group) hasFields(s approvalapi.Step, fields []string) bool {
	a := g.steps[0]
	if a.Body == s.Body {
		return true
	}
	if len(a.Changes) > 0 || len(s.Changes) > 0 {
		return false
	}
	return len(fields) > 0 && slices.Equal(g.fields, fields)
}

// sameHeaders reports whether two steps have the same headers, or differ only in values.
func sameHeaders(a, b approvalapi.Step) bool {
	return slices.EqualFunc(a.Headers, b.Headers, func(x, y string) bool {
		nameX, _, _ := strings.Cut(x, ": ")
		nameY, _, _ := strings.Cut(y, ": ")
		return nameX == nameY
	})
}

// The results of differs other than the number of a segment.
const (
	noDifference    = -1
	manyDifferences = -2
)

// findDifference returns the index of the only path segment in which two URLs differ, or same or many.
func findDifference(a, b string) int {
	pathA, queryA, _ := strings.Cut(a, "?")
	pathB, queryB, _ := strings.Cut(b, "?")
	as, bs := strings.Split(pathA, "/"), strings.Split(pathB, "/")
	if queryA != queryB || len(as) != len(bs) {
		return manyDifferences
	}
	at := noDifference
	for i := range as {
		switch {
		case as[i] == bs[i]:
		// Hosts and schemes never share a line.
		case at != noDifference || i < 3: // scheme and host
			return manyDifferences
		default:
			at = i
		}
	}
	return at
}

// target returns the destination of a group of steps.
func (g *group) target() string {
	s := g.steps[0]
	if s.Server != "" {
		return "CALL  " + cutText(safetext.OneLine(s.Server+"."+s.Tool), maxPath)
	}
	address := s.URL
	if g.at != noDifference {
		address = g.braces()
	}
	address = strings.TrimPrefix(address, "https://")
	return fmt.Sprintf("%-5s %s", safetext.OneLine(s.Method), cutText(safetext.OneLine(address), maxPath))
}

// braces returns the URL of a group, with the different values of one segment in braces.
func (g *group) braces() string {
	var values []string
	for _, s := range g.steps {
		path, _, _ := strings.Cut(s.URL, "?")
		values = append(values, strings.Split(path, "/")[g.at])
	}
	path, query, hasQuery := strings.Cut(g.steps[0].URL, "?")
	parts := strings.Split(path, "/")
	parts[g.at] = formatValues(values, func(segment string) string { return segment })
	out := strings.Join(parts, "/")
	if hasQuery {
		out += "?" + query
	}
	return out
}

// formatValues returns the common value of all steps, or their different values in braces.
func formatValues(all []string, show func(string) string) string {
	values := removeRepeats(all)
	if len(values) == 1 {
		return show(values[0])
	}
	var list []string
	for i, v := range values {
		if i == maxNamed && len(values) > maxNamed+1 {
			list = append(list, fmt.Sprintf("... %d more", len(values)-maxNamed))
			break
		}
		list = append(list, show(v))
	}
	return "{" + strings.Join(list, ",") + "}"
}

// removeRepeats returns each text once, in the order of its first occurrence.
func removeRepeats(list []string) (out []string) {
	seen := map[string]bool{}
	for _, text := range list {
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	return out
}

func formatChanges(list []approvalapi.Change) string {
	var out []string
	for i, c := range list {
		if i == maxFields {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		name := formatWord(c.Field)
		added, removed, are := diffLists(c.Before, c.After)
		switch {
		case are:
			for _, v := range added {
				name += " + " + formatValue(v)
			}
			for _, v := range removed {
				name += " - " + formatValue(v)
			}
			out = append(out, name)
		case c.Before == "":
			out = append(out, name+" + "+formatValue(c.After))
		case c.After == "":
			out = append(out, name+" - "+formatValue(c.Before))
		default:
			out = append(out, name+" "+formatValue(c.Before)+" -> "+formatValue(c.After))
		}
	}
	return strings.Join(out, "; ")
}

// diffLists returns the values that only one of two JSON lists has. It returns false for other values than lists of
// plain values, and if more happened than that some values were removed and others appended.
func diffLists(before, after string) (added, removed []string, are bool) {
	var a, b []json.RawMessage
	if json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(after), &b) != nil || a == nil || b == nil {
		return nil, nil, false
	}
	text := func(v json.RawMessage) string { return string(v) }
	as, bs := convert.Each(a, text), convert.Each(b, text)
	added, removed = listOnlyIn(bs, as), listOnlyIn(as, bs)
	few := len(added)+len(removed) <= maxFields && len(added)+len(removed) > 0
	// If elements moved, their number changed or some came before others, the lists are shown as a whole: in a list of
	// rules the first may decide.
	return added, removed, few && slices.Equal(slices.Concat(listOnlyIn(as, removed), added), bs)
}

// listOnlyIn returns the texts of a list that another list lacks.
func listOnlyIn(list, other []string) (out []string) {
	has := map[string]bool{}
	for _, text := range other {
		has[text] = true
	}
	for _, text := range list {
		if !has[text] {
			out = append(out, text)
		}
	}
	return out
}

// summary shows the different headers of a group's steps, and the bodies. For JSON objects and forms it lists the
// fields, the different ones first. For other bodies it shows the size.
func (g *group) summary() string {
	out := g.listDifferentHeaders()
	if g.steps[0].Body == "" {
		return strings.Join(out, ", ")
	}
	names := slices.Clone(g.fields)
	values := map[string][]string{}
	for _, s := range g.steps {
		_, fields := readBodyFields(s)
		for name, v := range fields {
			values[name] = append(values[name], v)
		}
	}
	isSame := func(name string) int {
		if slices.ContainsFunc(values[name], func(v string) bool { return v != values[name][0] }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(names, func(a, b string) int { return isSame(a) - isSame(b) })
	for i, name := range names {
		// Fields that differ are all shown: only equal ones may be left out.
		if i >= maxFields && isSame(name) == 1 {
			out = append(out, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		out = append(out, formatWord(name)+" "+formatValues(values[name], formatValue))
	}
	if len(names) == 0 {
		out = append(out, fmt.Sprintf("%d bytes", len(g.steps[0].Body)))
	}
	return strings.Join(out, ", ")
}

// listDifferentHeaders lists the headers whose values differ in a group.
func (g *group) listDifferentHeaders() (out []string) {
	for i, header := range g.steps[0].Headers {
		name, _, _ := strings.Cut(header, ": ")
		var values []string
		isSame := true
		for _, s := range g.steps {
			values = append(values, strings.TrimPrefix(s.Headers[i], name+": "))
			isSame = isSame && s.Headers[i] == header
		}
		if !isSame {
			out = append(out, safetext.OneLine(cutText(name, maxValue))+" "+formatValues(values, formatWord))
		}
	}
	return out
}

// readBodyFields returns the fields of a body that is a JSON object or a form: their names in order, and their values.
func readBodyFields(s approvalapi.Step) (names []string, fields map[string]string) {
	if o := readObject(objectBody(s)); o != nil {
		return convert.Each(policy.ParseStrictJSON([]byte(s.Body)).Members,
			func(m jsonread.Member) string { return m.Key }), o
	}
	form, bad := policy.ParseForm(s.Body)
	if bad != nil || bodyType(s) != formType {
		return nil, nil
	}
	values := map[string][]string{}
	for _, f := range form {
		names, values[f.Name] = append(names, f.Name), append(values[f.Name], f.Value)
	}
	fields = map[string]string{}
	for name, list := range values {
		fields[name] = toCompactJSON(strings.Join(list, ", "))
	}
	return removeRepeats(names), fields
}

const formType = "application/x-www-form-urlencoded"

// objectBody returns the body of a step, or nil if a server may read it as a form: in the JSON object {"a":"&b=1"}, a
// form has the field b. Some servers read a body of another type, or without a type, as a form. A call has JSON.
func objectBody(s approvalapi.Step) []byte {
	media := bodyType(s)
	mayBeForm := !strings.Contains(media, "json") && strings.ContainsAny(s.Body, "&;") || strings.Contains(media, "form")
	//defence:plan-type
	if s.Server == "" && mayBeForm {
		return nil
	}
	return []byte(s.Body)
}

// nameFields returns a JSON object with the names of a body's fields, as JSON and, by its type, as a form, whose nested
// fields it names without their indexes.
func nameFields(s approvalapi.Step) []byte {
	names := readObject([]byte(s.Body))
	if form, bad := policy.ParseForm(s.Body); bad == nil && bodyType(s) == formType {
		if names == nil {
			names = jsonObject{}
		}
		for _, field := range form {
			name, _, _ := strings.Cut(field.Name, "[")
			names[name] = ""
		}
	}
	text, _ := json.Marshal(names) // text can always be written
	return text
}

// bodyType returns the media type of a step's body in lower case. If the step has several, it returns all of them.
func bodyType(s approvalapi.Step) string {
	var all []string
	for _, header := range s.Headers {
		if name, value, _ := strings.Cut(header, ": "); strings.EqualFold(name, "Content-Type") {
			media, _, _ := strings.Cut(value, ";")
			all = append(all, strings.ToLower(strings.TrimSpace(media)))
		}
	}
	return strings.Join(all, ", ")
}

// formatWord returns a field's name, or a header's value, for a picture. It quotes a word with a blank or a sign of the
// picture, because code chooses the words: the name "amount 5, to" would look like another field with its value.
func formatWord(word string) string {
	word = cutText(word, maxValue)
	//defence:plan-words
	if word == "" || strings.ContainsAny(word, " \",;{}") {
		return safetext.QuoteText(word)
	}
	return safetext.OneLine(word)
}

// formatValue returns a JSON value for a picture.
func formatValue(text string) string { return safetext.OneLine(cutText(text, maxValue)) }

func cutText(text string, most int) string { return safetext.CutText(text, most, "...") }
