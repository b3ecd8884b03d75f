package plan

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

// object is a JSON object, each value as compact JSON with sorted names: two equal values have one text.
type object map[string]string

// readObject reads a body. It is nil for one that is no JSON object, or in which a name stands twice: servers differ in
// what such a one says, so that nothing of it is shown as if it were certain.
func readObject(body []byte) object {
	v, ok := policy.StrictJSON(body)
	raw, is := v.(map[string]any)
	if !ok || !is {
		return nil
	}
	out := object{}
	for name, v := range raw {
		out[name] = compact(v)
	}
	return out
}

// compact is a value as JSON that a person reads: without escapes for HTML.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // it was read as JSON, or is text
	return strings.TrimSpace(b.String())
}

// changes are the fields that a step changes of what there was, by name, and the fields that it is about: those are
// compared again before it is sent. PATCH changes the fields that it names, PUT and DELETE all of them, and POST those
// that it names if there is one of them.
func changes(method string, before object, body []byte) (list []planapi.Change, about []string) {
	after := readObject(body)
	whole := method == http.MethodPut || method == http.MethodDelete
	shares := func() bool {
		for name := range after {
			if _, both := before[name]; both {
				return true
			}
		}
		return false
	}
	switch {
	case method == http.MethodPost && !shares():
		return nil, nil
	case after == nil && !whole:
		return nil, slices.Sorted(maps.Keys(before))
	}
	for name := range after {
		about = append(about, name)
	}
	if whole {
		for name := range before {
			if _, both := after[name]; !both {
				about = append(about, name)
			}
		}
	}
	slices.Sort(about)
	if method == http.MethodDelete {
		return nil, about
	}
	for _, name := range about {
		if before[name] != after[name] {
			list = append(list, planapi.Change{Field: name, Before: before[name], After: after[name]})
		}
	}
	return list, about
}

// merge is what there is after a step, or nil if that is not known.
func merge(method string, before object, body []byte) object {
	after := readObject(body)
	switch method {
	case http.MethodPatch:
		if after == nil {
			return nil
		}
		out := maps.Clone(before)
		maps.Copy(out, after)
		return out
	case http.MethodPut:
		return after
	}
	return nil
}

// drift names a field that is not as it was when the run read it, or is empty.
func drift(before, now object, about []string) string {
	if now == nil {
		return "it cannot be read any more"
	}
	for _, name := range about {
		if before[name] != now[name] {
			return strconv.Quote(name) + " is another one now"
		}
	}
	return ""
}
