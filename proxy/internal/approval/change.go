package approval

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// jsonObject is a JSON object, with each value as compact JSON with sorted names, so that equal values have equal
// texts.
type jsonObject map[string]string

// readObject parses a body. It returns nil if the body is not a JSON object, or has a name twice. Servers read such a
// body in different ways, so no field may look certain to a person.
func readObject(body []byte) jsonObject {
	if !policy.ParseStrictJSON(body).Is(jsonread.Object) {
		return nil
	}
	var raw map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // a float64 would round
	_ = d.Decode(&raw)
	out := jsonObject{}
	for name, v := range raw {
		out[name] = toCompactJSON(v)
	}
	return out
}

// toCompactJSON returns a value as JSON for a person, without escapes for HTML.
func toCompactJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the value came from JSON, or is text
	return strings.TrimSpace(b.String())
}

// listChanges returns the fields of before that a step changes, by name. about lists the fields that the step concerns,
// which are compared again before the step is sent. PATCH changes the fields that it names. PUT and DELETE change all
// fields. POST changes the fields that it names if it shares a field with before.
func listChanges(method string, before jsonObject, body []byte) (list []approvalapi.Change, about []string) {
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
	// A body that cannot be read may change any field, and PUT would seem to remove all of them.
	case after == nil && method != http.MethodDelete:
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
			list = append(list, approvalapi.Change{Field: name, Before: before[name], After: after[name]})
		}
	}
	return list, about
}

// applyChanges returns the object after a step, or nil if it is unknown.
func applyChanges(method string, before jsonObject, body []byte) jsonObject {
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
	// After POST or DELETE the object is unknown.
	return nil
}

// describeDrift describes a field that has changed since the run read it, or returns "".
func describeDrift(before, now jsonObject, about []string) string {
	if now == nil {
		return "it can no longer be read"
	}
	for _, name := range about {
		if before[name] != now[name] {
			return strconv.Quote(name) + " is now another object"
		}
	}
	return ""
}
