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
)

// drawSteps shows steps in few lines. Steps that follow each other share a line if they differ only in one segment of
// their path and in values of their body. The line shows the different values; all other parts are equal.
func drawSteps(steps []planapi.Step) []string {
	var out []string
	groups := groupSteps(steps)
	for i, g := range groups {
		if i == maxLines {
			out = append(out, fmt.Sprintf(" and %d more steps", len(steps)-g[0].N+1))
			break
		}
		label := fmt.Sprint(g[0].N)
		if len(g) > 1 {
			label = fmt.Sprintf("%d-%d", g[0].N, g[len(g)-1].N)
		}
		line := fmt.Sprintf(" %-5s %s", label, formatTarget(g))
		if len(g) > 1 {
			line = fmt.Sprintf(" %-5s %d x %s", label, len(g), formatTarget(g))
		}
		if names := g[0].Tokens; len(names) > 0 {
			line += "  " + visible.OneLine(strings.Join(names, ", "))
		}
		what := formatChanges(g[0].Changes)
		if what == "" {
			if what = summarizeBodies(g); what != "" && len(line) <= maxPath/2 {
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

// groupSteps groups steps that can share a line.
func groupSteps(steps []planapi.Step) [][]planapi.Step {
	var out [][]planapi.Step
	for _, s := range steps {
		if n := len(out); n > 0 && canShareLine(out[n-1], s) {
			out[n-1] = append(out[n-1], s)
			continue
		}
		out = append(out, []planapi.Step{s})
	}
	return out
}

// canShareLine reports whether a step fits into a group. It may differ from the other steps in one segment of the path,
// at the same place in all, and in values of its body's fields.
func canShareLine(group []planapi.Step, s planapi.Step) bool {
	a := group[0]
	// Everything that the shared line does not show must be equal, or the approver would not see it.
	if a.Method != s.Method || a.Server != s.Server || a.Tool != s.Tool || a.Rule != s.Rule || !sameFields(a, s) ||
		!slices.Equal(a.Headers, s.Headers) || !slices.Equal(a.Changes, s.Changes) || !slices.Equal(a.APIs, s.APIs) ||
		!slices.Equal(a.Tokens, s.Tokens) {
		return false
	}
	at := findDifference(a.URL, s.URL)
	if at == noDifference || len(group) == 1 {
		return at != manyDifferences
	}
	for _, other := range group[1:] {
		if was := findDifference(a.URL, other.URL); was != noDifference && was != at {
			return false
		}
	}
	return at != manyDifferences
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
	names, _ := readBodyFields(a)
	others, _ := readBodyFields(b)
	return len(names) > 0 && slices.Equal(names, others)
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

// formatTarget returns the destination of a group of steps.
func formatTarget(group []planapi.Step) string {
	s := group[0]
	if s.Server != "" {
		return "CALL  " + cutText(visible.OneLine(s.Server+"."+s.Tool), maxPath)
	}
	address := s.URL
	for _, other := range group[1:] {
		if at := findDifference(s.URL, other.URL); at > 0 {
			address = formatBraces(group, at)
			break
		}
	}
	address = strings.TrimPrefix(address, "https://")
	return fmt.Sprintf("%-5s %s", visible.OneLine(s.Method), cutText(visible.OneLine(address), maxPath))
}

// formatBraces returns the URL of a group, with the different values of one segment in braces.
func formatBraces(group []planapi.Step, at int) string {
	var values []string
	for _, s := range group {
		path, _, _ := strings.Cut(s.URL, "?")
		values = append(values, strings.Split(path, "/")[at])
	}
	path, query, hasQuery := strings.Cut(group[0].URL, "?")
	parts := strings.Split(path, "/")
	parts[at] = formatValues(values, func(segment string) string { return segment })
	out := strings.Join(parts, "/")
	if hasQuery {
		out += "?" + query
	}
	return out
}

// formatValues returns the common value of all steps, or their different values in braces.
func formatValues(all []string, show func(string) string) string {
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

// formatChanges lists the fields that change.
func formatChanges(list []planapi.Change) string {
	var out []string
	for i, c := range list {
		if i == maxFields {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		name := visible.OneLine(cutText(c.Field, maxValue))
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
// plain values, and if only the order or the number of equal values changes.
func diffLists(before, after string) (added, removed []string, are bool) {
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

// summarizeBodies shows the bodies of a group's steps. For JSON objects and forms it lists the fields, the different
// ones first. For other bodies it shows the size.
func summarizeBodies(group []planapi.Step) string {
	if group[0].Body == "" {
		return ""
	}
	names, _ := readBodyFields(group[0])
	values := map[string][]string{}
	for _, s := range group {
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
	var out []string
	for i, name := range names {
		// Fields that differ are all shown: only equal ones may be left out.
		if i >= maxFields && isSame(name) == 1 {
			out = append(out, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		out = append(out, visible.OneLine(cutText(name, maxValue))+" "+formatValues(values[name], formatValue))
	}
	if len(out) == 0 {
		return fmt.Sprintf("%d bytes", len(group[0].Body))
	}
	return strings.Join(out, ", ")
}

// readBodyFields returns the fields of a body that is a JSON object or a form: their names in order, and their values.
func readBodyFields(s planapi.Step) (names []string, fields map[string]string) {
	// Prefer JSON: readObject is strict, so the fields are certain.
	if o := readObject([]byte(s.Body)); o != nil {
		return listNames(s.Body), o
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
			fields[plain] = toCompactJSON(strings.Join(form[plain], ", "))
		}
	}
	return names, fields
}

// listNames returns the names of an object in the order of the text.
func listNames(body string) (out []string) {
	for m, err := range jsonread.ListSpans(body) {
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

// formatValue returns a JSON value for a picture.
func formatValue(text string) string { return visible.OneLine(cutText(text, maxValue)) }

// cutText cuts text and marks the cut with "...".
func cutText(text string, most int) string { return visible.CutText(text, most, "...") }
