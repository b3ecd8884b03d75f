package catalog

import "time"

// fieldSpec describes one field of config.json, for loading, for the JSON Schema and for the test of the documentation.
type fieldSpec struct {
	name string
	doc  string
	// shape is the field in the JSON Schema, where doc becomes its description.
	shape schema
	// read decodes the field and reports a wrong type. Validation reports all other mistakes.
	read func(d *decoder, c *config, n *node)
}

// topFields are the fields of config.json, in the order of the documentation.
func topFields() []fieldSpec {
	return []fieldSpec{
		{"$schema", "Where this schema is, for editors. Ignored.", text(),
			func(d *decoder, _ *config, n *node) { d.str("$schema", n, new(string)) }},
		{"description", "One line that tells a model what the API is for.", schema{Type: "string", MaxLength: maxDescription},
			func(d *decoder, c *config, n *node) { d.str("description", n, &c.description) }},
		{"domains", "The API's hosts: exact names, or \"*.\" and a suffix for exactly one label. A port may follow, as in " +
			"\"localhost:3000\"; without one it is 443 and 80. Required without mcp.",
			schema{Type: "array", Items: &schema{Type: "string", MinLength: 1}, MinItems: 1, UniqueItems: true},
			func(d *decoder, c *config, n *node) { c.domains = d.list("domains", n, `["api.example.com"]`) }},
		{"credentials", "Token names and their credentials. A token name belongs to one API.", credentialsShape(),
			func(d *decoder, c *config, n *node) { c.credentials = d.credentials(n) }},
		{"reference", "The address of the API's documentation.", schema{Type: "string", Format: "uri", Pattern: "^https?://"},
			func(d *decoder, c *config, n *node) { d.str("reference", n, &c.reference) }},
		{"restricted_methods", "HTTP methods that are refused. Not together with allowed_methods.", methodsShape(0),
			func(d *decoder, c *config, n *node) {
				c.restricted = d.list("restricted_methods", n, `["POST", "DELETE"]`)
			}},
		{"allowed_methods", "The only HTTP methods that pass. Not together with restricted_methods.", methodsShape(1),
			func(d *decoder, c *config, n *node) { c.allowed = d.list("allowed_methods", n, `["GET", "HEAD"]`) }},
		{"rules", "Which requests may pass, by method, path, GraphQL operation and fields of the body: the first rule that " +
			"matches decides, and a request that none matches is refused.", rulesShape(),
			func(d *decoder, c *config, n *node) { c.rules = d.rules(n) }},
		{"limits", "How much all runs together may do with the API.", limitsShape(),
			func(d *decoder, c *config, n *node) { c.limits = d.limits(n) }},
		{"idempotency", "The header by which the API knows a repeated request: a write whose outcome nobody knows is " +
			"repeated with the same key.", schema{Type: "string", Pattern: idempotencyPattern, MaxLength: maxIdempotency},
			func(d *decoder, c *config, n *node) { d.idempotency(c, n) }},
		{"allow_private",
			"The private address ranges that the hosts may resolve to. true: RFC 1918 and unique local addresses.",
			rangesShape(),
			func(d *decoder, c *config, n *node) { d.private(c, n) }},
		{"allow_http", "Lets credentials go over plain HTTP.", schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, n *node) { d.boolean("allow_http", n, &c.allowHTTP) }},
		{"compress", "Lets the hosts compress their responses. Safe where no response shows a credential.",
			schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, n *node) { d.boolean("compress", n, &c.compress) }},
		{"mcp", "Makes the API an MCP server, whose tools code can call.", serverShape(),
			func(d *decoder, c *config, n *node) { c.server = d.server(n) }},
		{"operations", "Where operations.jsonl comes from, the list of the API's operations. codeforge api add writes it.",
			operationsShape(), func(d *decoder, c *config, n *node) { c.operations = d.operations(n) }},
		{"client_cert", "The certificate by which the proxy authenticates at the hosts.", clientCertShape(),
			func(d *decoder, c *config, n *node) { c.clientCert = d.clientCert(n) }},
		{"internal", "Closes the hosts to code: only sources of other credentials use this API.",
			schema{Type: "boolean", Default: false},
			func(d *decoder, c *config, n *node) { d.boolean("internal", n, &c.internal) }},
		{"ca_file",
			"A PEM file of further certificate authorities for the hosts, in the API's folder or with an absolute path.",
			schema{Type: "string", MinLength: 1},
			func(d *decoder, c *config, n *node) { d.str("ca_file", n, &c.caFile) }},
		{"active", "false switches the API off: its hosts are closed, its credentials still scrubbed from responses.",
			schema{Type: "boolean", Default: true},
			func(d *decoder, c *config, n *node) { d.boolean("active", n, &c.active) }},
	}
}

// credentialSpec is one field of a credential that is written as an object.
type credentialSpec struct {
	name, doc string
	shape     schema
	read      func(d *decoder, c *rawCredential, field string, n *node)
}

// sourceField is one field of a secret that is written as an object, be it a credential or inside one.
type sourceField struct {
	name, doc string
	shape     schema
	at        func(s *source) **string
}

// sourceFields say where a secret stands.
func sourceFields() []sourceField {
	return []sourceField{
		{"value", "The credential itself.", schema{Type: "string", MinLength: 1},
			func(s *source) **string { return &s.value }},
		{"file", "A file that holds the credential and nothing else, in the API's folder or with an absolute path.",
			schema{Type: "string", MinLength: 1}, func(s *source) **string { return &s.file }},
		{"env", "An environment variable that holds the credential. Not in Docker.", schema{Type: "string", MinLength: 1},
			func(s *source) **string { return &s.env }},
		{"json", "Where the credential stands in the file or variable, if that is JSON: a JSON pointer, e.g. /password.",
			schema{Type: "string", Pattern: pointerPattern}, func(s *source) **string { return &s.json }},
	}
}

// credentialFields are the fields of a credential that is written as an object.
func credentialFields() []credentialSpec {
	var out []credentialSpec
	for _, s := range sourceFields() {
		out = append(out, credentialSpec{s.name, s.doc, s.shape,
			func(d *decoder, c *rawCredential, f string, n *node) { *s.at(&c.source) = d.source(f, n) }})
	}
	for _, k := range mintKinds() {
		out = append(out, credentialSpec{k.name, k.doc, k.shape(),
			func(d *decoder, c *rawCredential, f string, n *node) { c.minted(d.mint(f, k, n)) }})
	}
	return append(out,
		credentialSpec{"command", "A program and its arguments, run outside the proxy, that prints the credential.",
			listShape(1),
			func(d *decoder, c *rawCredential, f string, n *node) {
				c.minted(&rawMint{kind: kindCommand, list: map[string][]string{
					"args": d.list(f, n, `["op", "read", "op://Work/Stripe/key"]`)}})
			}},
		credentialSpec{"ttl", "How long what fetch, command or file gave is good for, before it is asked for again.",
			schema{OneOf: durationShape(1).OneOf},
			func(d *decoder, c *rawCredential, f string, n *node) {
				c.ttl = new(time.Duration)
				d.duration(f, n, c.ttl)
			}},
		credentialSpec{"in", "The surfaces: where in a request the token name may be swapped. Default: [\"header\"].",
			schema{Type: "array", Items: &schema{Type: "string", Pattern: surfacePattern}, MinItems: 1, UniqueItems: true},
			func(d *decoder, c *rawCredential, f string, n *node) { c.in = d.list(f, n, `["header"]`) }},
		credentialSpec{"placeholder",
			"A text with the token name in it that is swapped like the name, for programs that want a key of a certain form.",
			schema{Type: "string", MinLength: minName, MaxLength: maxPlaceholder},
			func(d *decoder, c *rawCredential, f string, n *node) { c.placeholder = d.source(f, n) }},
	)
}

func text() schema { return schema{Type: "string"} }

// surfacePattern and namePattern are what ParseSurface and nameProblem check, as far as a pattern can express it.
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
	object := schema{Type: "object", Properties: map[string]schema{}, Closed: true, OneOf: sourceShapes()}
	for _, name := range append(mintKindNames(), kindCommand) {
		object.OneOf = append(object.OneOf, schema{Required: []string{name}})
	}
	for _, f := range credentialFields() {
		f.shape.Description = f.doc
		object.Properties[f.name] = f.shape
	}
	return schema{Type: "object", Closed: true, PatternProperties: map[string]schema{
		namePattern: {OneOf: []schema{{Type: "string", MinLength: minValue, MaxLength: maxValue}, object}},
	}}
}
