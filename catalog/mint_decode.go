package catalog

import (
	"fmt"
	"maps"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// rawMint is a decoded kind of credential before validation: its fields by form.
type rawMint struct {
	kind    string
	ttl     Seconds // the life of a source's value
	has     map[string]bool
	text    map[string]string
	secret  map[string]source
	list    map[string][]string
	texts   map[string]map[string]string
	number  map[string]int
	boolean map[string]bool
}

// sources returns the secrets of the kind, by field.
func (m *rawMint) sources() map[string]source {
	if m == nil {
		return nil
	}
	return m.secret
}

// mint reads the object of a kind. The result is never nil, so that a value of the wrong type counts as present.
func (d *decoder) mint(path string, k mintKind, n *node) *rawMint {
	m := &rawMint{kind: k.name, has: map[string]bool{}, text: map[string]string{}, secret: map[string]source{},
		list: map[string][]string{}, texts: map[string]map[string]string{}, number: map[string]int{},
		boolean: map[string]bool{}}
	if n.Kind != jsonread.Object {
		d.Bad(path, n.Kind.String(), "an object, e.g. "+k.example())
		return m
	}
	has, misspelt := d.Object(path+".", n, k.names(), func(i int, field string, n *node) {
		d.mintField(m, field, k.fields[i], n)
	})
	maps.Copy(m.has, has)
	maps.Copy(m.has, misspelt) // so that a misspelt field is not also reported as missing
	for _, f := range k.fields {
		if f.required && !m.has[f.name] {
			d.Bad(path+"."+f.name, "missing", "one like "+f.example)
		}
	}
	return m
}

// example returns the kind's object with the required fields.
func (k mintKind) example() string {
	var parts []string
	for i, f := range k.fields {
		if f.required || i == 0 {
			parts = append(parts, fmt.Sprintf("%q: %s", f.name, f.example))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (d *decoder) mintField(m *rawMint, path string, f mintField, n *node) {
	switch f.form {
	case formText:
		var s string
		d.Str(path, n, &s)
		m.text[f.name] = s
	case formID:
		// An id, such as that of a GitHub App, may be written as a number.
		if n.Kind == jsonread.Number && strings.Trim(n.Text, "0123456789") == "" {
			m.text[f.name] = n.Text
			return
		}
		var s string
		d.Str(path, n, &s)
		m.text[f.name] = s
	case formSecret:
		if s, ok := d.secret(path, f.example, n); ok {
			m.secret[f.name] = s
		}
	case formList:
		m.list[f.name] = d.List(path, n, f.example)
	case formTexts:
		m.texts[f.name] = d.texts(path, n, f.example)
	case formNumber:
		var i int
		d.Whole(path, n, &i)
		m.number[f.name] = i
	case formBoolean:
		var on bool
		d.Boolean(path, n, &on)
		m.boolean[f.name] = on
	}
}

// secret reads a secret inside a kind: a string, or an object with its source. It returns false after a mistake.
func (d *decoder) secret(path, example string, n *node) (source, bool) {
	var s source
	before := d.Count
	switch n.Kind {
	case jsonread.String:
		s.value = d.source(path, n)
		return s, d.Count == before
	case jsonread.Object:
	default:
		d.Bad(path, n.Kind.String(), "a string, or an object, e.g. "+example)
		return s, false
	}
	sourceFields().decode(d, path+".", n, &s)
	if count := s.count(); count != 1 && d.Count == before {
		d.Bad(path, fmt.Sprintf(`%d of "value", "file" and "env"`, count), "exactly one of them")
	}
	return s, d.Count == before
}

// rawClientCert is the decoded "client_cert".
type rawClientCert struct {
	cert string
	key  source
}

// clientCert reads "client_cert". It returns nil after a mistake.
func (d *decoder) clientCert(n *node) *rawClientCert {
	const path, example = "client_cert", `{"cert": "client.pem", "key": {"file": "client.key"}}`
	if n.Kind != jsonread.Object {
		d.Bad(path, n.Kind.String(), "an object, e.g. "+example)
		return nil
	}
	out, before := &rawClientCert{}, d.Count
	has, _ := clientCertFields().decode(d, path+".", n, out)
	for _, name := range clientCertFields().names() {
		if !has[name] && d.Count == before {
			d.Bad(path+"."+name, "missing", "both cert and key, e.g. "+example)
		}
	}
	if d.Count != before {
		return nil
	}
	return out
}
