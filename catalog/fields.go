package catalog

import (
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// fieldSpec describes one field of an object in config.json. It serves loading, the JSON Schema and the test of the
// documentation.
type fieldSpec[T any] struct {
	name, doc string
	// shape is the field in the JSON Schema. doc becomes its description.
	shape jsonSchema
	// read decodes the field and reports a wrong type. field is the name for messages. Validation reports all other
	// mistakes.
	read func(d *configDecoder, to *T, field string, n *node)
}

// fieldSpecs are the fields of an object, in the order of the documentation.
type fieldSpecs[T any] []fieldSpec[T]

func (s fieldSpecs[T]) fieldNames() []string {
	return convert.Each(s, func(f fieldSpec[T]) string { return f.name })
}

// objectSchema returns the object for the JSON Schema.
func (s fieldSpecs[T]) objectSchema() jsonSchema {
	out := jsonSchema{Type: "object", Closed: true, Properties: map[string]jsonSchema{}}
	for _, f := range s {
		f.shape.Description = f.doc
		out.Properties[f.name] = f.shape
	}
	return out
}

// decodeObject reads the object. See strictjson.Decoder.ReadObject.
func (s fieldSpecs[T]) decodeObject(d *configDecoder, path string, n *node, to *T) (has, misspelt map[string]bool) {
	return d.ReadObject(path, n, s.fieldNames(), func(i int, field string, n *node) { s[i].read(d, to, field, n) })
}

// topFields are the fields of config.json.
var topFields = sync.OnceValue(func() fieldSpecs[configFile] {
	return fieldSpecs[configFile]{
		{"$schema", "The address of this schema, for editors. CodeForge ignores it.", textSchema(),
			func(d *configDecoder, _ *configFile, f string, n *node) { d.ReadString(f, n, new(string)) }},
		{"description", "One line that tells a model what the API is for.",
			jsonSchema{Type: "string", MaxLength: maxDescription},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadString(f, n, &c.description) }},
		{"domains", "The API's hosts: exact names, or \"*.\" and a suffix for exactly one label. A port may follow, as in " +
			"\"localhost:3000\"; without one it is 443 and 80. Required without mcp.",
			jsonSchema{Type: "array", Items: &jsonSchema{Type: "string", MinLength: 1}, MinItems: 1, UniqueItems: true},
			func(d *configDecoder, c *configFile, f string, n *node) {
				c.domains = d.ReadStrings(f, n, `["api.example.com"]`)
			}},
		{"credentials", "Token names and their credentials. A token name belongs to one API.", credentialsShape(),
			func(d *configDecoder, c *configFile, _ string, n *node) { c.credentials = d.readCredentials(n) }},
		{"reference", "The address of the API's documentation.",
			jsonSchema{Type: "string", Format: "uri", Pattern: "^https?://"},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadString(f, n, &c.reference) }},
		{"restricted_methods", "HTTP methods that are refused. Not together with allowed_methods.", methodsShape(0),
			func(d *configDecoder, c *configFile, f string, n *node) {
				c.restricted = d.ReadStrings(f, n, `["POST", "DELETE"]`)
			}},
		{"allowed_methods", "The only HTTP methods that pass. Not together with restricted_methods.", methodsShape(1),
			func(d *configDecoder, c *configFile, f string, n *node) {
				c.allowed = d.ReadStrings(f, n, `["GET", "HEAD"]`)
			}},
		{"rules", "Which requests may pass, by method, path, GraphQL operation and fields of the body. The first rule that " +
			"matches decides. A request without a matching rule is refused.", rulesShape(),
			func(d *configDecoder, c *configFile, _ string, n *node) { c.rules = d.readRules(n) }},
		{"limits", "How much all runs together may do with the API.", limitsFields().objectSchema(),
			func(d *configDecoder, c *configFile, _ string, n *node) { c.limits = d.readLimits(n) }},
		{"idempotency", "The header by which the API recognises a repeated request. If the outcome of a write is " +
			"unknown, CodeForge repeats it with the same key.",
			jsonSchema{Type: "string", Pattern: idempotencyPattern, MaxLength: maxIdempotency},
			func(d *configDecoder, c *configFile, _ string, n *node) { d.readIdempotency(c, n) }},
		{"allow_private",
			"The private address ranges that the hosts may resolve to. true: RFC 1918.",
			rangesShape(),
			func(d *configDecoder, c *configFile, _ string, n *node) { d.readPrivateRanges(c, n) }},
		{"allow_http", "Lets credentials go over plain HTTP.", jsonSchema{Type: "boolean", Default: false},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadBool(f, n, &c.allowHTTP) }},
		{"compress", "Lets the hosts compress their responses. Safe if no response shows a credential.",
			jsonSchema{Type: "boolean", Default: false},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadBool(f, n, &c.compress) }},
		{"etag", "keep: responses keep their ETag if a credential left with the request. Safe where no response shows a " +
			"credential.", jsonSchema{Enum: []string{etagKeep}},
			func(d *configDecoder, c *configFile, f string, n *node) { d.readWord(f, n, &c.etag, etagKeep) }},
		{"framing", "\"message\": each message of a stream (gRPC, Connect, JSON lines, elements of a JSON array) leaves " +
			"when it is complete. CodeForge then misses a credential that is split over two messages.",
			jsonSchema{Enum: []string{framingMessage}},
			func(d *configDecoder, c *configFile, f string, n *node) { d.readWord(f, n, &c.framing, framingMessage) }},
		{"mcp", "Makes the API an MCP server, whose tools code can call.", serverShape(),
			func(d *configDecoder, c *configFile, _ string, n *node) { c.server = d.readServer(n) }},
		{"operations", "The source of operations.jsonl, the list of the API's operations. codeforge api add writes it.",
			operationsFields().objectSchema(), func(d *configDecoder, c *configFile, _ string,
				n *node) {
				c.operations = d.readOperations(n)
			}},
		{"client_cert", "The certificate by which the proxy authenticates at the hosts.", clientCertShape(),
			func(d *configDecoder, c *configFile, _ string, n *node) { c.clientCert = d.readClientCert(n) }},
		{"internal", "Closes the hosts to code: only sources of other credentials use this API.",
			jsonSchema{Type: "boolean", Default: false},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadBool(f, n, &c.internal) }},
		{"ca_file",
			"A PEM file of further certificate authorities for the hosts, in the API's folder or with an absolute path.",
			jsonSchema{Type: "string", MinLength: 1},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadString(f, n, &c.caFile) }},
		{"active", "false switches the API off: its hosts are closed, its credentials still scrubbed from responses.",
			jsonSchema{Type: "boolean", Default: true},
			func(d *configDecoder, c *configFile, f string, n *node) { d.ReadBool(f, n, &c.active) }},
	}
})

// sourceFields describe the place of a secret, for a credential or for a secret inside one.
func sourceFields() fieldSpecs[secretSource] {
	at := func(field func(*secretSource) **string) func(*configDecoder, *secretSource, string, *node) {
		return func(d *configDecoder, s *secretSource, f string, n *node) { *field(s) = d.readSource(f, n) }
	}
	return fieldSpecs[secretSource]{
		{"value", "The credential itself.", jsonSchema{Type: "string", MinLength: 1},
			at(func(s *secretSource) **string { return &s.value })},
		{"file", "A file that holds only the credential, in the API's folder or with an absolute path.",
			jsonSchema{Type: "string", MinLength: 1}, at(func(s *secretSource) **string { return &s.file })},
		{"env", "An environment variable that holds the credential. Not in Docker.", jsonSchema{Type: "string", MinLength: 1},
			at(func(s *secretSource) **string { return &s.env })},
		{"json", "Where the credential stands in the file or variable, if that is JSON: a JSON pointer, e.g. /password.",
			jsonSchema{Type: "string", Pattern: pointerPattern}, at(func(s *secretSource) **string { return &s.json })},
	}
}

// credentialFields are the fields of a credential that is written as an object.
var credentialFields = sync.OnceValue(func() fieldSpecs[rawCredential] {
	var out fieldSpecs[rawCredential]
	for _, s := range sourceFields() {
		out = append(out, fieldSpec[rawCredential]{s.name, s.doc, s.shape,
			func(d *configDecoder, c *rawCredential, f string, n *node) { s.read(d, &c.secretSource, f, n) }})
	}
	for _, k := range mintKinds() {
		out = append(out, fieldSpec[rawCredential]{k.name, k.doc, k.kindSchema(),
			func(d *configDecoder, c *rawCredential, f string, n *node) { c.setMint(d.readMint(f, k, n)) }})
	}
	return append(out, fieldSpecs[rawCredential]{
		{"command", "A program and its arguments, run outside the proxy, that prints the credential.", listShape(1),
			func(d *configDecoder, c *rawCredential, f string, n *node) {
				c.setMint(&rawMint{kind: kindCommand, list: map[string][]string{
					"args": d.ReadStrings(f, n, `["op", "read", "op://Work/Stripe/key"]`)}})
			}},
		{"ttl", "How long a value of fetch, command or file stays valid, before CodeForge fetches it again.",
			jsonSchema{OneOf: durationShape(1).OneOf},
			func(d *configDecoder, c *rawCredential, f string, n *node) {
				c.ttl = new(time.Duration)
				d.ReadDuration(f, n, c.ttl)
			}},
		{"in", "The surfaces: where in a request the token name may be swapped. Default: [\"header\"].",
			jsonSchema{Type: "array", Items: &jsonSchema{Type: "string", Pattern: surfacePattern}, MinItems: 1,
				UniqueItems: true},
			func(d *configDecoder, c *rawCredential, f string, n *node) { c.in = d.ReadStrings(f, n, `["header"]`) }},
		{"placeholder",
			"A text with the token name in it that is swapped like the name, for programs that want a key of a certain form.",
			jsonSchema{Type: "string", MinLength: minName, MaxLength: maxPlaceholder},
			func(d *configDecoder, c *rawCredential, f string, n *node) { c.placeholder = d.readSource(f, n) }},
	}...)
})

func textSchema() jsonSchema { return jsonSchema{Type: "string"} }

// surfacePattern and namePattern express the checks of ParseSurface and nameProblem as far as a pattern can.
const (
	surfacePattern = `^(header|query|body)(:.+)?$|^path$`
	namePattern    = `^[A-Z][A-Z0-9_]{4,63}$`
	pointerPattern = `^(/([^~]|~[01])*)?$`
)

func rangesShape() jsonSchema {
	list := jsonSchema{Type: "array", Items: &jsonSchema{Type: "string", Pattern: "/[0-9]+$"}}
	return jsonSchema{OneOf: []jsonSchema{{Type: "boolean"}, list}, Default: false}
}

func methodsShape(least int) jsonSchema {
	other := jsonSchema{Type: "string", Pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}
	return jsonSchema{Type: "array", MinItems: least, UniqueItems: true,
		Items: &jsonSchema{AnyOf: []jsonSchema{{Enum: knownMethods()[:7]}, other}}}
}

func credentialsShape() jsonSchema {
	object := credentialFields().objectSchema()
	object.OneOf = sourceShapes()
	for _, name := range append(mintKindNames(), kindCommand) {
		object.OneOf = append(object.OneOf, jsonSchema{Required: []string{name}})
	}
	return jsonSchema{Type: "object", Closed: true, PatternProperties: map[string]jsonSchema{
		namePattern: {OneOf: []jsonSchema{{Type: "string", MinLength: minValue, MaxLength: maxValue}, object}},
	}}
}
