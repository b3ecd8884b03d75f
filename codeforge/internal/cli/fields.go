package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
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
	inner.Stdout = terminal.Open(w)
	filtered := make(chan error, 1)
	go func() {
		err := filterFields(r, e.Stdout, fields)
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

// filterFields copies JSON values with these fields only. A field that an object does not have is null; one that no
// object has, and that looks like a misspelt one, is an error.
func filterFields(r io.Reader, w io.Writer, fields []string) error {
	dec := json.NewDecoder(r)
	known := map[string]bool{}
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
			err = unknownField(fields, known)
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

// unknownField is the error for a field that no object so far has, and that is like one that is there.
func unknownField(fields []string, known map[string]bool) error {
	names := slices.Sorted(maps.Keys(known))
	for _, f := range fields {
		if near := typo.Nearest(f, slips(f), names); !known[f] && near != "" {
			return usageError("--json: there is no field %q; did you mean %s? There are %s", f, near,
				strings.Join(names, ", "))
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
func pickFields(raw json.RawMessage, fields []string, known map[string]bool) (any, error) {
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
		known[name] = true
	}
	return o, nil
}
