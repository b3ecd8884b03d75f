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
	secret  map[string]secretSource
	list    map[string][]string
	texts   map[string]map[string]string
	number  map[string]int
	boolean map[string]bool
}

// secretSources returns the secrets of the kind, by field.
func (m *rawMint) secretSources() map[string]secretSource {
	if m == nil {
		return nil
	}
	return m.secret
}

// readMint reads the object of a kind. The result is never nil, so that a value of the wrong type counts as present.
func (d *configDecoder) readMint(path string, k mintKind, n *node) *rawMint {
	m := &rawMint{kind: k.name, has: map[string]bool{}, text: map[string]string{}, secret: map[string]secretSource{},
		list: map[string][]string{}, texts: map[string]map[string]string{}, number: map[string]int{},
		boolean: map[string]bool{}}
	if n.Kind != jsonread.Object {
		d.AddError(path, n.Kind.String(), "an object, e.g. "+k.exampleObject())
		return m
	}
	has, misspelt := d.ReadObject(path+".", n, k.fieldNames(), func(i int, field string, n *node) {
		d.readMintField(m, field, k.fields[i], n)
	})
	maps.Copy(m.has, has)
	maps.Copy(m.has, misspelt) // so that a misspelt field is not also reported as missing
	for _, f := range k.fields {
		if f.required && !m.has[f.name] {
			d.AddError(path+"."+f.name, "missing", "one like "+f.example)
		}
	}
	return m
}

// exampleObject returns the kind's object with the required fields.
func (k mintKind) exampleObject() string {
	var parts []string
	for i, f := range k.fields {
		if f.required || i == 0 {
			parts = append(parts, fmt.Sprintf("%q: %s", f.name, f.example))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (d *configDecoder) readMintField(m *rawMint, path string, f mintField, n *node) {
	switch f.form {
	case formText:
		var s string
		d.ReadString(path, n, &s)
		m.text[f.name] = s
	case formID:
		// An id, such as that of a GitHub App, may be written as a number.
		if n.Kind == jsonread.Number && strings.Trim(n.Text, "0123456789") == "" {
			m.text[f.name] = n.Text
			return
		}
		var s string
		d.ReadString(path, n, &s)
		m.text[f.name] = s
	case formSecret:
		if s, ok := d.readMintSecret(path, f.example, n); ok {
			m.secret[f.name] = s
		}
	case formList:
		m.list[f.name] = d.ReadStrings(path, n, f.example)
	case formTexts:
		m.texts[f.name] = d.readTexts(path, n, f.example)
	case formNumber:
		var i int
		d.ReadInt(path, n, &i)
		m.number[f.name] = i
	case formBoolean:
		var on bool
		d.ReadBool(path, n, &on)
		m.boolean[f.name] = on
	}
}

// readMintSecret reads a secret inside a kind: a string, or an object with its source. It returns false after a
// mistake.
func (d *configDecoder) readMintSecret(path, example string, n *node) (secretSource, bool) {
	var s secretSource
	before := d.Count
	switch n.Kind {
	case jsonread.String:
		s.value = d.readSource(path, n)
		return s, d.Count == before
	case jsonread.Object:
	default:
		d.AddError(path, n.Kind.String(), "a string, or an object, e.g. "+example)
		return s, false
	}
	sourceFields(func(s *secretSource) *secretSource { return s }).decodeObject(d, path+".", n, &s)
	if count := s.countSources(); count != 1 && d.Count == before {
		d.AddError(path, fmt.Sprintf(`%d of "value", "file" and "env"`, count), "exactly one of them")
	}
	return s, d.Count == before
}

type rawClientCert struct {
	cert string
	key  secretSource
}

// readClientCert reads "client_cert". It returns nil after a mistake.
func (d *configDecoder) readClientCert(n *node) *rawClientCert {
	const path, example = "client_cert", `{"cert": "client.pem", "key": {"file": "client.key"}}`
	if n.Kind != jsonread.Object {
		d.AddError(path, n.Kind.String(), "an object, e.g. "+example)
		return nil
	}
	out, before := &rawClientCert{}, d.Count
	has, _ := clientCertFields().decodeObject(d, path+".", n, out)
	for _, name := range clientCertFields().fieldNames() {
		if !has[name] && d.Count == before {
			d.AddError(path+"."+name, "missing", "both cert and key, e.g. "+example)
		}
	}
	if d.Count != before {
		return nil
	}
	return out
}
