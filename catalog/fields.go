package catalog

import (
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// fieldSpec is one field of an object in config.json. apis/config.schema.json describes it for editors.
type fieldSpec[T any] struct {
	name string
	// read decodes the field and reports a wrong type. field is the name for messages. Validation reports all other
	// mistakes.
	read func(d *configDecoder, to *T, field string, n *node)
}

// fieldSpecs are the fields of an object, in the order of the documentation.
type fieldSpecs[T any] []fieldSpec[T]

func (s fieldSpecs[T]) fieldNames() []string {
	return convert.Each(s, func(f fieldSpec[T]) string { return f.name })
}

// decodeObject reads the object. See strictjson.Decoder.ReadObject.
func (s fieldSpecs[T]) decodeObject(d *configDecoder, path string, n *node, to *T) (has, misspelt map[string]bool) {
	return d.ReadObject(path, n, s.fieldNames(), func(i int, field string, n *node) { s[i].read(d, to, field, n) })
}

// stringField, boolField and listField return a field whose value is only stored. example is a valid list in JSON, for
// messages.
func stringField[T any](name string, at func(*T) *string) fieldSpec[T] {
	return fieldSpec[T]{name, func(d *configDecoder, to *T, f string, n *node) { d.ReadString(f, n, at(to)) }}
}

func boolField[T any](name string, at func(*T) *bool) fieldSpec[T] {
	return fieldSpec[T]{name, func(d *configDecoder, to *T, f string, n *node) { d.ReadBool(f, n, at(to)) }}
}

func listField[T any](name, example string, at func(*T) *[]string) fieldSpec[T] {
	return fieldSpec[T]{name, func(d *configDecoder, to *T, f string, n *node) { *at(to) = d.ReadStrings(f, n, example) }}
}

var topFields = sync.OnceValue(func() fieldSpecs[configFile] {
	return fieldSpecs[configFile]{
		stringField("$schema", func(*configFile) *string { return new(string) }),
		stringField("description", func(c *configFile) *string { return &c.description }),
		listField("domains", `["api.example.com"]`, func(c *configFile) *[]string { return &c.domains }),
		{"credentials", func(d *configDecoder, c *configFile, _ string, n *node) { c.credentials = d.readCredentials(n) }},
		stringField("reference", func(c *configFile) *string { return &c.reference }),
		listField("restricted_methods", `["POST", "DELETE"]`, func(c *configFile) *[]string { return &c.restricted }),
		listField("allowed_methods", `["GET", "HEAD"]`, func(c *configFile) *[]string { return &c.allowed }),
		{"rules", func(d *configDecoder, c *configFile, _ string, n *node) { c.rules = d.readRules(n) }},
		{"limits", func(d *configDecoder, c *configFile, _ string, n *node) { c.limits = d.readLimits(n) }},
		{"idempotency", func(d *configDecoder, c *configFile, _ string, n *node) { d.readIdempotency(c, n) }},
		{"allow_private", func(d *configDecoder, c *configFile, _ string, n *node) { d.readPrivateRanges(c, n) }},
		boolField("allow_http", func(c *configFile) *bool { return &c.allowHTTP }),
		boolField("compress", func(c *configFile) *bool { return &c.compress }),
		{"etag", func(d *configDecoder, c *configFile, f string, n *node) { d.readWord(f, n, &c.etag, etagKeep) }},
		{"framing", func(d *configDecoder, c *configFile, f string, n *node) {
			d.readWord(f, n, &c.framing, framingMessage)
		}},
		{"mcp", func(d *configDecoder, c *configFile, _ string, n *node) { c.server = d.readServer(n) }},
		{"operations", func(d *configDecoder, c *configFile, _ string, n *node) { c.operations = d.readOperations(n) }},
		{"client_cert", func(d *configDecoder, c *configFile, _ string, n *node) { c.clientCert = d.readClientCert(n) }},
		boolField("internal", func(c *configFile) *bool { return &c.internal }),
		stringField("ca_file", func(c *configFile) *string { return &c.caFile }),
		boolField("active", func(c *configFile) *bool { return &c.active }),
	}
})

// sourceFields are the fields that say where a secret is: of a credential, or of a secret inside one.
func sourceFields[T any](source func(*T) *secretSource) fieldSpecs[T] {
	at := func(name string, field func(*secretSource) **string) fieldSpec[T] {
		return fieldSpec[T]{name, func(d *configDecoder, to *T, f string, n *node) {
			*field(source(to)) = d.readSource(f, n)
		}}
	}
	return fieldSpecs[T]{
		at("value", func(s *secretSource) **string { return &s.value }),
		at("file", func(s *secretSource) **string { return &s.file }),
		at("env", func(s *secretSource) **string { return &s.env }),
		at("json", func(s *secretSource) **string { return &s.json }),
	}
}

// credentialFields are the fields of a credential that is written as an object.
var credentialFields = sync.OnceValue(func() fieldSpecs[rawCredential] {
	kinds := convert.Each(mintKinds(), func(k mintKind) fieldSpec[rawCredential] {
		return fieldSpec[rawCredential]{k.name, func(d *configDecoder, c *rawCredential, f string, n *node) {
			c.setMint(d.readMint(f, k, n))
		}}
	})
	return slices.Concat(sourceFields(func(c *rawCredential) *secretSource { return &c.secretSource }), kinds,
		fieldSpecs[rawCredential]{
			{kindCommand, func(d *configDecoder, c *rawCredential, f string, n *node) {
				c.setMint(&rawMint{kind: kindCommand, list: map[string][]string{
					"args": d.ReadStrings(f, n, `["op", "read", "op://Work/Stripe/key"]`)}})
			}},
			{"ttl", func(d *configDecoder, c *rawCredential, f string, n *node) {
				c.ttl = new(time.Duration)
				d.ReadDuration(f, n, c.ttl)
			}},
			listField("in", `["header"]`, func(c *rawCredential) *[]string { return &c.in }),
			{"placeholder", func(d *configDecoder, c *rawCredential, f string, n *node) { c.placeholder = d.readSource(f, n) }},
			{"variable", func(d *configDecoder, c *rawCredential, f string, n *node) { c.variable = d.readSource(f, n) }},
		})
})
