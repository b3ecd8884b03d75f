package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// printJSON prints indented JSON, or only the fields that --json names.
func printJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// printJSONLine prints JSON on one line, or only the fields that --json names.
func printJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	if s, ok := w.(*terminal.Stream); ok && len(s.Fields) > 0 {
		picked, err := pickFields(v, s.Fields)
		if err != nil {
			return err
		}
		v = picked
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// pickFields reduces a value, or each element of a list, to the given fields. A field that an object omits becomes
// null. A field that no object can have is an error.
func pickFields(v any, fields []string) (json.RawMessage, error) {
	var text bytes.Buffer
	if err := encodeJSON(&text, v, ""); err != nil {
		return nil, err
	}
	known := typeFields(v)
	picked, err := pickEach(text.Bytes(), fields, known)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(known))
	for _, field := range fields {
		if known[field] || len(names) == 0 { // no object was printed
			continue
		}
		mean := "."
		if near := typo.NearestOf(field, maxSlips(field), names); near != "" {
			mean = "; did you mean " + near + "?"
		}
		return nil, usageError("--json: there is no field %q%s The fields are %s", field, mean, strings.Join(names, ", "))
	}
	return picked, nil
}

// pickEach picks fields of an object, or of each object of a list. It adds the fields of all objects to known.
func pickEach(text json.RawMessage, fields []string, known map[string]bool) (json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) == nil && list != nil {
		elements := make([]string, len(list))
		for i, one := range list {
			picked, err := pickEach(one, fields, known)
			if err != nil {
				return nil, err
			}
			elements[i] = string(picked)
		}
		return json.RawMessage("[" + strings.Join(elements, ",") + "]"), nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, errors.New("--json FIELDS: this command prints no fields; want --json alone")
	}
	for name := range object {
		known[name] = true
	}
	members := make([]string, len(fields))
	for i, field := range fields {
		members[i] = strconv.Quote(field) + ":" + cmp.Or(string(object[field]), "null")
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}"), nil
}

// typeFields returns the fields that objects of a value's type, or of its elements' type, can have. The value may omit
// some of them.
func typeFields(v any) map[string]bool {
	known := map[string]bool{}
	t := reflect.TypeOf(v)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return known
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "-" && (name != "" || !field.Anonymous) {
			known[cmp.Or(name, field.Name)] = true
		}
	}
	return known
}
