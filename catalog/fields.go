package catalog

import (
	"sync"
	"time"
)

// spec describes one field of an object in config.json. It serves loading, the JSON Schema and the test of the
// documentation.
type spec[T any] struct {
	name, doc string
	// shape is the field in the JSON Schema. doc becomes its description.
	shape schema
	// read decodes the field and reports a wrong type. field is the name for messages. Validation reports all other
	// mistakes.
	read func(d *decoder, to *T, field string, n *node)
}

// specs are the fields of an object, in the order of the documentation.
type specs[T any] []spec[T]

func (s specs[T]) names() []string {
	var out []string
	for _, f := range s {
		out = append(out, f.name)
	}
	return out
}

// object returns the object for the JSON Schema.
func (s specs[T]) object() schema {
	out := schema{Type: "object", Closed: true, Properties: map[string]schema{}}
	for _, f := range s {
		f.shape.Description = f.doc
		out.Properties[f.name] = f.shape
	}
	return out
}

// decode reads the object. See strictjson.Decoder.Object.
func (s specs[T]) decode(d *decoder, path string, n *node, to *T) (has, misspelt map[string]bool) {
	return d.Object(path, n, s.names(), func(i int, field string, n *node) { s[i].read(d, to, field, n) })
}

// topFields are the fields of config.json.
var topFields = sync.OnceValue(func() specs[config] {
	return specs[config]{
		{"$schema", "Where this schema is, for editors. Ignored.", text(),
			func(d *decoder, _ *config, f string, n *node) { d.Str(f, n, new(string)) }},
		{"description", "One line that tells a model what the API is for.", schema{Type: "string", MaxLength: maxDescription},
			func(d *decoder, c *config, f string, n *node) { d.Str(f, n, &c.description) }},
		{"domains", "The API's hosts: exact names, or \"*.\" and a suffix for exactly one label. A port may follow, as in " +
			"\"localhost:3000\"; without one it is 443 and 80. Required without mcp.",
			schema{Type: "array", Items: &schema{Type: "string", MinLength: 1}, MinItems: 1, UniqueItems: true},
			func(d *decoder, c *config, f string, n *node) { c.domains = d.List(f, n, `["api.example.com"]`) }},
		{"credentials", "Token names and their credentials. A token name belongs to one API.", credentialsShape(),
			func(d *decoder, c *config, _ string, n *node) { c.credentials = d.credentials(n) }},
		{"reference", "The address of the API's documentation.", schema{Type: "string", Format: "uri", Pattern: "^https?://"},
			func(d *decoder, c *config, f string, n *node) { d.Str(f, n, &c.reference) }},
		{"restricted_methods", "HTTP methods that are refused. Not together with allowed_methods.", methodsShape(0),
			func(d *decoder, c *config, f string, n *node) {
				c.restricted = d.List(f, n, `["POST", "DELETE"]`)
			}},
		{"allowed_methods", "The only HTTP methods that pass. Not together with restricted_methods.", methodsShape(1),
			func(d *decoder, c *config, f string, n *node) { c.allowed = d.List(f, n, `["GET", "HEAD"]`) }},
		{"rules", "Which requests may pass, by method, path, GraphQL operation and fields of the body. The first rule that " +
			"matches decides. A request without a matching rule is refused.", rulesShape(),
			func(d *decoder, c *config, _ string, n *node) { c.rules = d.rules(n) }},
		{"limits", "How much all runs together may do with the API.", limitsFields().object(),
			func(d *decoder, c *config, _ string, n *node) { c.limits = d.limits(n) }},
		{"idempotency", "The header by which the API recognises a repeated request. If the outcome of a write is " +
			"unknown, CodeForge repeats it with the same key.",
			schema{Type: "string", Pattern: idempotencyPattern, MaxLength: maxIdempotency},
			func(d *decoder, c *config, _ string, n *node) { d.idempotency(c, n) }},
		{"allow_private",
			"The private address ranges that the hosts may resolve to. true: RFC 1918.",
			rangesShape(),
			func(d *decoder, c *config, _ string, n *node) { d.private(c, n) }},
		{"allow_http", "Lets credentials go over plain HTTP.", schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, f string, n *node) { d.Boolean(f, n, &c.allowHTTP) }},
		{"compress", "Lets the hosts compress their responses. Safe if no response shows a credential.",
			schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, f string, n *node) { d.Boolean(f, n, &c.compress) }},
		{"etag", "keep: responses keep their ETag if a credential left with the request. Safe where no response shows a " +
			"credential.", schema{Enum: []string{etagKeep}},
			func(d *decoder, c *config, f string, n *node) { d.readWord(f, n, &c.etag, etagKeep) }},
		{"framing", "\"message\": each message of a stream (gRPC, Connect, JSON lines, elements of a JSON array) leaves " +
			"when it is complete. CodeForge then misses a credential that is split over two messages.",
			schema{Enum: []string{framingMessage}},
			func(d *decoder, c *config, f string, n *node) { d.readWord(f, n, &c.framing, framingMessage) }},
		{"mcp", "Makes the API an MCP server, whose tools code can call.", serverShape(),
			func(d *decoder, c *config, _ string, n *node) { c.server = d.server(n) }},
		{"operations", "The source of operations.jsonl, the list of the API's operations. codeforge api add writes it.",
			operationsFields().object(), func(d *decoder, c *config, _ string, n *node) { c.operations = d.operations(n) }},
		{"client_cert", "The certificate by which the proxy authenticates at the hosts.", clientCertShape(),
			func(d *decoder, c *config, _ string, n *node) { c.clientCert = d.clientCert(n) }},
		{"internal", "Closes the hosts to code: only sources of other credentials use this API.",
			schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, f string, n *node) { d.Boolean(f, n, &c.internal) }},
		{"ca_file",
			"A PEM file of further certificate authorities for the hosts, in the API's folder or with an absolute path.",
			schema{Type: "string", MinLength: 1},
			func(d *decoder, c *config, f string, n *node) { d.Str(f, n, &c.caFile) }},
		{"active", "false switches the API off: its hosts are closed, its credentials still scrubbed from responses.",
			schema{Type: "boolean", Default: true},
			func(d *decoder, c *config, f string, n *node) { d.Boolean(f, n, &c.active) }},
	}
})

// sourceFields describe the place of a secret, for a credential or for a secret inside one.
func sourceFields() specs[source] {
	at := func(field func(*source) **string) func(*decoder, *source, string, *node) {
		return func(d *decoder, s *source, f string, n *node) { *field(s) = d.source(f, n) }
	}
	return specs[source]{
		{"value", "The credential itself.", schema{Type: "string", MinLength: 1},
			at(func(s *source) **string { return &s.value })},
		{"file", "A file that holds only the credential, in the API's folder or with an absolute path.",
			schema{Type: "string", MinLength: 1}, at(func(s *source) **string { return &s.file })},
		{"env", "An environment variable that holds the credential. Not in Docker.", schema{Type: "string", MinLength: 1},
			at(func(s *source) **string { return &s.env })},
		{"json", "Where the credential stands in the file or variable, if that is JSON: a JSON pointer, e.g. /password.",
			schema{Type: "string", Pattern: pointerPattern}, at(func(s *source) **string { return &s.json })},
	}
}

// credentialFields are the fields of a credential that is written as an object.
var credentialFields = sync.OnceValue(func() specs[rawCredential] {
	var out specs[rawCredential]
	for _, s := range sourceFields() {
		out = append(out, spec[rawCredential]{s.name, s.doc, s.shape,
			func(d *decoder, c *rawCredential, f string, n *node) { s.read(d, &c.source, f, n) }})
	}
	for _, k := range mintKinds() {
		out = append(out, spec[rawCredential]{k.name, k.doc, k.shape(),
			func(d *decoder, c *rawCredential, f string, n *node) { c.minted(d.mint(f, k, n)) }})
	}
	return append(out, specs[rawCredential]{
		{"command", "A program and its arguments, run outside the proxy, that prints the credential.", listShape(1),
			func(d *decoder, c *rawCredential, f string, n *node) {
				c.minted(&rawMint{kind: kindCommand, list: map[string][]string{
					"args": d.List(f, n, `["op", "read", "op://Work/Stripe/key"]`)}})
			}},
		{"ttl", "How long a value of fetch, command or file stays valid, before CodeForge fetches it again.",
			schema{OneOf: durationShape(1).OneOf},
			func(d *decoder, c *rawCredential, f string, n *node) {
				c.ttl = new(time.Duration)
				d.Duration(f, n, c.ttl)
			}},
		{"in", "The surfaces: where in a request the token name may be swapped. Default: [\"header\"].",
			schema{Type: "array", Items: &schema{Type: "string", Pattern: surfacePattern}, MinItems: 1, UniqueItems: true},
			func(d *decoder, c *rawCredential, f string, n *node) { c.in = d.List(f, n, `["header"]`) }},
		{"placeholder",
			"A text with the token name in it that is swapped like the name, for programs that want a key of a certain form.",
			schema{Type: "string", MinLength: minName, MaxLength: maxPlaceholder},
			func(d *decoder, c *rawCredential, f string, n *node) { c.placeholder = d.source(f, n) }},
	}...)
})

func text() schema { return schema{Type: "string"} }

// surfacePattern and namePattern express the checks of ParseSurface and nameProblem as far as a pattern can.
const (
	surfacePattern = `^(header|query|body)(:.+)?$|^path$`
	namePattern    = `^[A-Z][A-Z0-9_]{4,63}$`
	pointerPattern = `^(/([^~]|~[01])*)?$`
)

func rangesShape() schema {
	list := schema{Type: "array", Items: &schema{Type: "string", Pattern: "/[0-9]+$"}}
	return schema{OneOf: []schema{{Type: "boolean"}, list}, Default: false}
}

func methodsShape(least int) schema {
	other := schema{Type: "string", Pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}
	return schema{Type: "array", MinItems: least, UniqueItems: true,
		Items: &schema{AnyOf: []schema{{Enum: knownMethods()[:7]}, other}}}
}

func credentialsShape() schema {
	object := credentialFields().object()
	object.OneOf = sourceShapes()
	for _, name := range append(mintKindNames(), kindCommand) {
		object.OneOf = append(object.OneOf, schema{Required: []string{name}})
	}
	return schema{Type: "object", Closed: true, PatternProperties: map[string]schema{
		namePattern: {OneOf: []schema{{Type: "string", MinLength: minValue, MaxLength: maxValue}, object}},
	}}
}
