package catalog

import "github.com/codeforge-mcp/codeforge/internal/convert"

// The fields of a credential that select how it is obtained.
const (
	kindOAuth2    = "oauth2"
	kindGitHubApp = "github_app"
	kindGoogle    = "google"
	kindAWS       = "aws"
	kindHMAC      = "hmac"
	kindFetch     = "fetch"
	kindCommand   = "command"
	kindFile      = "file"
)

// fieldForm is the form of a kind's field.
type fieldForm uint8

const (
	formText    fieldForm = iota // a string
	formID                       // a string or a number
	formSecret                   // a string, or an object with value, file or env
	formList                     // a list of strings
	formTexts                    // an object of strings
	formNumber                   // a whole number
	formBoolean                  // true or false
)

// mintField is one field of a kind.
type mintField struct {
	name, doc string
	form      fieldForm
	required  bool
	example   string   // a right value in JSON, for messages
	words     []string // the only allowed values; nil means any
	least     bool     // a list needs at least one entry
}

// mintKind is a kind of credential that the proxy mints or requests from a source.
type mintKind struct {
	name, doc string
	// build checks a decoded object of the kind.
	build  func(v *configValidator, path string, m *rawMint) Mint
	fields []mintField
}

func (k mintKind) fieldNames() []string {
	return convert.Each(k.fields, func(f mintField) string { return f.name })
}

// secretDoc is the end of the documentation of a secret.
const secretDoc = ": {\"file\": \"...\"}, {\"env\": \"...\"}, or the text itself." //nolint:gosec // a text for users

// mintKinds are the kinds that have fields, in the order of the documentation. Each kind has a file with its decoding,
// validation and identity.
func mintKinds() []mintKind {
	return []mintKind{oauth2Kind(), githubAppKind(), googleKind(), awsKind(), hmacKind(), fetchKind()}
}

func mintKindNames() []string {
	return convert.Each(mintKinds(), func(k mintKind) string { return k.name })
}

// fieldSchema returns the field for the JSON Schema.
func (f mintField) fieldSchema() jsonSchema {
	s := jsonSchema{Description: f.doc}
	switch f.form {
	case formText:
		s.Type, s.Enum = "string", f.words
	case formID:
		s.OneOf = []jsonSchema{textSchema(), {Type: "integer"}}
	case formSecret:
		s.OneOf = secretShape().OneOf
	case formList:
		s.Type, s.Items = "array", &jsonSchema{Type: "string"}
		if f.required || f.least {
			s.MinItems = 1
		}
	case formTexts:
		s.Type, s.PatternProperties, s.Closed = "object", map[string]jsonSchema{".": textSchema()}, true
	case formNumber:
		s.Type = "integer"
	case formBoolean:
		s.Type, s.Default = "boolean", false
	}
	return s
}

// secretShape returns the shape of a secret inside a kind.
func secretShape() jsonSchema {
	object := sourceFields().objectSchema()
	object.OneOf = sourceShapes()
	return jsonSchema{OneOf: []jsonSchema{{Type: "string", MinLength: 1}, object}}
}

func sourceShapes() []jsonSchema {
	return []jsonSchema{{Required: []string{"value"}}, {Required: []string{"file"}}, {Required: []string{"env"}}}
}

// kindSchema returns the kind for the JSON Schema.
func (k mintKind) kindSchema() jsonSchema {
	s := jsonSchema{Type: "object", Closed: true, Properties: map[string]jsonSchema{}}
	for _, f := range k.fields {
		s.Properties[f.name] = f.fieldSchema()
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func clientCertFields() fieldSpecs[rawClientCert] {
	return fieldSpecs[rawClientCert]{
		{"cert", "A PEM file: the certificate, and intermediates behind it.", jsonSchema{Type: "string", MinLength: 1},
			func(d *configDecoder, c *rawClientCert, f string, n *node) { d.ReadString(f, n, &c.cert) }},
		{"key", "The private key, PEM.", secretShape(), func(d *configDecoder, c *rawClientCert, f string, n *node) {
			c.key, _ = d.readMintSecret(f, `{"file": "client.key"}`, n)
		}},
	}
}

func clientCertShape() jsonSchema {
	s := clientCertFields().objectSchema()
	s.Required = clientCertFields().fieldNames()
	return s
}
