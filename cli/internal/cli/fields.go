package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// takeFields takes FIELDS out of --json=FIELDS and, where the command has no arguments of its own, of --json FIELDS.
func takeFields(args []string, alone bool) (rest, fields []string) {
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		if name == "--" {
			return append(rest, args[i:]...), fields
		}
		if name != "--json" && name != "-json" {
			rest = append(rest, args[i])
			continue
		}
		_, notBool := strconv.ParseBool(value)
		switch {
		case given && notBool != nil:
			fields = append(fields, list(value)...)
			rest = append(rest, name)
		case !given && alone && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			fields = append(fields, list(args[i+1])...)
			rest = append(rest, name)
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, fields
}

// onlyFields runs a command, and prints only these fields of the JSON that it prints.
func onlyFields(e *Env, fields []string, do func(*Env) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	inner := *e
	known := &fieldNames{names: map[string]bool{}}
	inner.Stdout = terminal.Open(w)
	inner.Stdout.Encoding = known.addType
	filtered := make(chan error, 1)
	go func() {
		err := filterFields(r, e.Stdout, fields, known)
		_, _ = io.Copy(io.Discard, r) // the command must not wait for a reader
		filtered <- err
	}()
	err = do(&inner)
	_ = w.Close()
	wrong := <-filtered
	_ = r.Close()
	var exit *exitError
	if wrong != nil && (err == nil || errors.As(err, &exit) && exit.err == nil) {
		return wrong
	}
	return err
}

// fieldNames collects the fields that objects can have: those of the type, even if a value omits some, and those of
// values. It is safe for concurrent use.
type fieldNames struct {
	mu    sync.Mutex
	names map[string]bool
}

func (f *fieldNames) add(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[name] = true
}

// addType adds the fields of a value's type, or of the type of its elements.
func (f *fieldNames) addType(v any) {
	t := reflect.TypeOf(v)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "-" && (name != "" || !field.Anonymous) {
			f.add(cmp.Or(name, field.Name))
		}
	}
}

// check returns an error that lists the known fields if one of fields is unknown.
func (f *fieldNames) check(fields []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := slices.Sorted(maps.Keys(f.names))
	for _, field := range fields {
		if f.names[field] || len(names) == 0 { // no object was printed
			continue
		}
		mean := "."
		if near := typo.Nearest(field, slips(field), names); near != "" {
			mean = "; did you mean " + near + "?"
		}
		return usageError("--json: there is no field %q%s The fields are %s", field, mean, strings.Join(names, ", "))
	}
	return nil
}

// filterFields copies JSON values with these fields only. A field that an object omits becomes null. A field that no
// object can have is an error.
func filterFields(r io.Reader, w io.Writer, fields []string, known *fieldNames) error {
	dec := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return fmt.Errorf("choosing fields: %w", err)
		}
		picked, err := pickFields(raw, fields, known)
		if err == nil {
			err = known.check(fields)
		}
		if err != nil {
			return err
		}
		show := printJSONLine
		if bytes.ContainsRune(raw, '\n') {
			show = printJSON
		}
		if err := show(w, picked); err != nil {
			return err
		}
	}
	return nil
}

// object is an object whose members keep their order.
type object struct {
	names  []string
	values map[string]json.RawMessage
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		if v, ok := o.values[name]; ok {
			b.Write(v)
		} else {
			b.WriteString("null")
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// pickFields is an object with these fields only, or a list of such objects.
func pickFields(raw json.RawMessage, fields []string, known *fieldNames) (any, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		out := make([]any, len(list))
		for i, one := range list {
			var err error
			if out[i], err = pickFields(one, fields, known); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	o := object{names: fields}
	if err := json.Unmarshal(raw, &o.values); err != nil {
		return nil, errors.New("--json FIELDS: this command prints no object that has fields")
	}
	for name := range o.values {
		known.add(name)
	}
	return o, nil
}
