package plan

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

const (
	maxLines  = 40  // groups of steps in a picture
	maxFields = 6   // fields of a line
	maxValue  = 60  // bytes of a value
	maxPath   = 160 // bytes of a path
	maxNamed  = 2   // of the segments that differ in a group
	maxPeriod = 4   // steps that repeat in turn
)

// picture shows steps in few lines. Steps that follow each other share a line if they differ only in one segment of
// their path and in values of their headers and body. The line shows the different values; all other parts are equal.
// If up to maxPeriod steps repeat in turn, as in a loop, each of them gets one line.
func picture(steps []planapi.Step) []string {
	var out []string
	more := len(steps)
	for i, g := range foldSteps(steps) {
		if i == maxLines {
			out = append(out, fmt.Sprintf(" and %d more steps", more))
			break
		}
		more -= len(g)
		line := fmt.Sprintf(" %-5s %s", listNumbers(g), target(g))
		if len(g) > 1 {
			line = fmt.Sprintf(" %-5s %d x %s", listNumbers(g), len(g), target(g))
		}
		if names := g[0].Tokens; len(names) > 0 {
			line += "  " + visible.Line(strings.Join(names, ", "))
		}
		what := changed(g[0].Changes)
		if what == "" {
			if what = summary(g); what != "" && len(line) <= maxPath/2 {
				line, what = line+"  "+what, ""
			}
		}
		out = append(out, line)
		if what != "" {
			out = append(out, strings.Repeat(" ", 7)+what)
		}
	}
	return out
}

// listNumbers returns the numbers of a group's steps.
func listNumbers(g []planapi.Step) string {
	first, last := g[0].N, g[len(g)-1].N
	switch {
	case len(g) == 1:
		return fmt.Sprint(first)
	case last-first == len(g)-1:
		return fmt.Sprintf("%d-%d", first, last)
	case len(g) == 2:
		return fmt.Sprintf("%d,%d", first, last)
	}
	return fmt.Sprintf("%d,%d,...%d", first, g[1].N, last)
}

// foldSteps groups steps that can share a line.
func foldSteps(steps []planapi.Step) (out [][]planapi.Step) {
	for len(steps) > 0 {
		groups := foldCycle(steps)
		out = append(out, groups...)
		steps = steps[len(groups)*len(groups[0]):]
	}
	return out
}

// foldCycle groups the first steps: those that repeat with the shortest period, or the first step alone. All groups
// have the same length.
func foldCycle(steps []planapi.Step) [][]planapi.Step {
	for period := 1; period <= min(maxPeriod, len(steps)/2); period++ {
		groups := make([][]planapi.Step, period)
		for i, s := range steps {
			g := &groups[i%period]
			if len(*g) > 0 && !alike(*g, s) {
				break
			}
			*g = append(*g, s)
		}
		// Leave the steps of an incomplete turn to the next groups.
		turns := len(groups[period-1])
		for i := range groups {
			groups[i] = groups[i][:turns]
		}
		if turns > 1 {
			return groups
		}
	}
	return [][]planapi.Step{steps[:1]}
}

// alike reports whether a step fits into a group. It may differ from the other steps in one segment of the path, at the
// same place in all, and in values of its body's fields.
func alike(group []planapi.Step, s planapi.Step) bool {
	a := group[0]
	// Everything that the shared line does not show must be equal, or the approver would not see it.
	if a.Method != s.Method || a.Server != s.Server || a.Tool != s.Tool || a.Rule != s.Rule || !sameFields(a, s) ||
		!sameHeaders(a, s) || !slices.Equal(a.Changes, s.Changes) || !slices.Equal(a.APIs, s.APIs) ||
		!slices.Equal(a.Tokens, s.Tokens) {
		return false
	}
	at := differs(a.URL, s.URL)
	if at == same || len(group) == 1 {
		return at != many
	}
	for _, other := range group[1:] {
		if was := differs(a.URL, other.URL); was != same && was != at {
			return false
		}
	}
	return at != many
}

// sameHeaders reports whether two steps have the same headers, or differ only in values. The line of steps with changes
// shows only the changes, so the values of such steps must be the same.
func sameHeaders(a, b planapi.Step) bool {
	return slices.EqualFunc(a.Headers, b.Headers, func(x, y string) bool {
		nameX, _, _ := strings.Cut(x, ": ")
		nameY, _, _ := strings.Cut(y, ": ")
		return x == y || nameX == nameY && len(a.Changes) == 0
	})
}

// sameFields reports whether two bodies are the same, or have the same fields in the same order. The line of steps with
// changes shows only the changes, so the bodies of such steps must be the same.
func sameFields(a, b planapi.Step) bool {
	if a.Body == b.Body {
		return true
	}
	if len(a.Changes) > 0 || len(b.Changes) > 0 {
		return false
	}
	names, _ := bodyFields(a)
	others, _ := bodyFields(b)
	return len(names) > 0 && slices.Equal(names, others)
}

// The results of differs other than the number of a segment.
const (
	same = -1
	many = -2
)

// differs returns the index of the only path segment in which two URLs differ, or same or many.
func differs(a, b string) int {
	pathA, queryA, _ := strings.Cut(a, "?")
	pathB, queryB, _ := strings.Cut(b, "?")
	as, bs := strings.Split(pathA, "/"), strings.Split(pathB, "/")
	if queryA != queryB || len(as) != len(bs) {
		return many
	}
	at := same
	for i := range as {
		switch {
		case as[i] == bs[i]:
		// Hosts and schemes never share a line.
		case at != same || i < 3: // scheme and host
			return many
		default:
			at = i
		}
	}
	return at
}

// target returns the destination of a group of steps.
func target(group []planapi.Step) string {
	s := group[0]
	if s.Server != "" {
		return "CALL  " + short(visible.Line(s.Server+"."+s.Tool), maxPath)
	}
	address := s.URL
	for _, other := range group[1:] {
		if at := differs(s.URL, other.URL); at > 0 {
			address = braces(group, at)
			break
		}
	}
	address = strings.TrimPrefix(address, "https://")
	return fmt.Sprintf("%-5s %s", visible.Line(s.Method), short(visible.Line(address), maxPath))
}

// braces returns the URL of a group, with the different values of one segment in braces.
func braces(group []planapi.Step, at int) string {
	var values []string
	for _, s := range group {
		path, _, _ := strings.Cut(s.URL, "?")
		values = append(values, strings.Split(path, "/")[at])
	}
	path, query, hasQuery := strings.Cut(group[0].URL, "?")
	parts := strings.Split(path, "/")
	parts[at] = oneOf(values, func(segment string) string { return segment })
	out := strings.Join(parts, "/")
	if hasQuery {
		out += "?" + query
	}
	return out
}

// oneOf returns the common value of all steps, or their different values in braces.
func oneOf(all []string, show func(string) string) string {
	var values []string
	for _, v := range all {
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
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

// changed lists the fields that change.
func changed(list []planapi.Change) string {
	var out []string
	for i, c := range list {
		if i == maxFields {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		name := visible.Line(short(c.Field, maxValue))
		added, removed, are := lists(c.Before, c.After)
		switch {
		case are:
			for _, v := range added {
				name += " + " + value(v)
			}
			for _, v := range removed {
				name += " - " + value(v)
			}
			out = append(out, name)
		case c.Before == "":
			out = append(out, name+" + "+value(c.After))
		case c.After == "":
			out = append(out, name+" - "+value(c.Before))
		default:
			out = append(out, name+" "+value(c.Before)+" -> "+value(c.After))
		}
	}
	return strings.Join(out, "; ")
}

// lists returns the values that only one of two JSON lists has. It returns false for other values than lists of plain
// values, and if only the order or the number of equal values changes.
func lists(before, after string) (added, removed []string, are bool) {
	var a, b []json.RawMessage
	if json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(after), &b) != nil || a == nil || b == nil {
		return nil, nil, false
	}
	text := func(list []json.RawMessage) (out []string) {
		for _, v := range list {
			out = append(out, string(v))
		}
		return out
	}
	as, bs := text(a), text(b)
	for _, v := range bs {
		if !slices.Contains(as, v) {
			added = append(added, v)
		}
	}
	for _, v := range as {
		if !slices.Contains(bs, v) {
			removed = append(removed, v)
		}
	}
	// If elements only moved, or occur more than once, the lists are shown as a whole.
	few := len(added)+len(removed) <= maxFields && len(added)+len(removed) > 0
	return added, removed, few && len(as)+len(added)-len(removed) == len(bs)
}

// summary shows the different headers of a group's steps, and the bodies. For JSON objects and forms it lists the
// fields, the different ones first. For other bodies it shows the size.
func summary(group []planapi.Step) string {
	out := differentHeaders(group)
	if group[0].Body == "" {
		return strings.Join(out, ", ")
	}
	names, _ := bodyFields(group[0])
	values := map[string][]string{}
	for _, s := range group {
		_, fields := bodyFields(s)
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
		out = append(out, visible.Line(short(name, maxValue))+" "+oneOf(values[name], value))
	}
	if len(names) == 0 {
		out = append(out, fmt.Sprintf("%d bytes", len(group[0].Body)))
	}
	return strings.Join(out, ", ")
}

// differentHeaders lists the headers whose values differ in a group.
func differentHeaders(group []planapi.Step) (out []string) {
	for i, header := range group[0].Headers {
		name, _, _ := strings.Cut(header, ": ")
		var values []string
		isSame := true
		for _, s := range group {
			values = append(values, strings.TrimPrefix(s.Headers[i], name+": "))
			isSame = isSame && s.Headers[i] == header
		}
		if !isSame {
			out = append(out, visible.Line(short(name, maxValue))+" "+oneOf(values, value))
		}
	}
	return out
}

// bodyFields returns the fields of a body that is a JSON object or a form: their names in order, and their values.
func bodyFields(s planapi.Step) (names []string, fields map[string]string) {
	// Prefer JSON: readObject is strict, so the fields are certain.
	if o := readObject([]byte(s.Body)); o != nil {
		return inOrder(s.Body), o
	}
	form, err := url.ParseQuery(s.Body)
	if err != nil || !isForm(s.Headers) {
		return nil, nil
	}
	fields = map[string]string{}
	for pair := range strings.SplitSeq(s.Body, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil && !slices.Contains(names, plain) {
			names = append(names, plain)
			fields[plain] = compact(strings.Join(form[plain], ", "))
		}
	}
	return names, fields
}

// inOrder returns the names of an object in the order of the text.
func inOrder(body string) (out []string) {
	for m, err := range jsonread.Spans(body) {
		if err == nil && !slices.Contains(out, m.Key) {
			out = append(out, m.Key)
		}
	}
	return out
}

func isForm(headers []string) bool {
	return slices.ContainsFunc(headers, func(h string) bool {
		return strings.HasPrefix(strings.ToLower(h), "content-type: application/x-www-form-urlencoded")
	})
}

// value returns a JSON value for a picture.
func value(text string) string { return visible.Line(short(text, maxValue)) }

// short cuts text and marks the cut with "...".
func short(text string, most int) string { return visible.Cut(text, most, "...") }
