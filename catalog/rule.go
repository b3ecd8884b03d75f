package catalog

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/toolname"
)

// Action is what a rule does with the requests that it matches. The zero Action refuses.
type Action uint8

// The actions, from the strictest to the mildest.
const (
	ActionRefuse  Action = iota
	ActionApprove        // a person decides
	ActionAllow
)

// String is the action as config.json has it.
func (a Action) String() string {
	switch a {
	case ActionAllow:
		return "allow"
	case ActionApprove:
		return "approve"
	}
	return "refuse"
}

// Rule is one entry of "rules". It matches a request if all of its conditions hold; the first rule of an API that
// matches decides, and a request that none matches is refused.
type Rule struct {
	Then Action
	// Tools are globs over the aliases of an MCP server's tools, see package toolname: the rule is about calls of those
	// tools, and Body about their arguments. Nil: it is about requests.
	Tools []string
	// Methods are in upper case. Nil: any.
	Methods []string
	// Path is a path whose segments may be "*", which stands for one segment, or end with "**", for any number of them.
	// Empty: any.
	Path string
	// GraphQL is "query", "mutation" or "subscription": what all operations of the request's document are. Empty: the
	// request need not be one of GraphQL.
	GraphQL string
	// Body are conditions on fields of a JSON object or a form, sorted by field.
	Body []FieldRule
	// ByAny, for ActionApprove: the user of the MCP client and whoever is signed in to the console may decide too, and not
	// only the operator.
	ByAny bool

	segments, folds []string // of Path, as they are and folded
}

// FieldRule is a condition on one field. Exactly one of the bounds, which may come together, and OneOf is set.
type FieldRule struct {
	// Field is the field's name; a dot leads to a field of an object in it.
	Field    string
	Min, Max *big.Rat // of a number. Nil: none
	OneOf    []FieldValue
}

// FieldValue is a value of a field: a string, a number, true or false.
type FieldValue struct {
	Text string
	Kind FieldKind
}

// FieldKind says what a FieldValue is.
type FieldKind uint8

// The kinds. That of a form's value is up to the server.
const (
	KindAny FieldKind = iota
	KindText
	KindNumber
	KindBool
)

// String is the rule in a few words, for people and models: "allow POST /v1/refunds if amount <= 5000".
func (r Rule) String() string {
	words := []string{r.Then.String()}
	if r.ByAny {
		words[0] += " by any"
	}
	if r.GraphQL != "" {
		words = append(words, "GraphQL", r.GraphQL)
	}
	if len(r.Methods) > 0 {
		words = append(words, strings.Join(r.Methods, "|"))
	} else if r.GraphQL == "" && r.Path == "" && r.Tools == nil {
		words = append(words, "everything")
	}
	if r.Path != "" {
		words = append(words, r.Path)
	}
	if r.Tools != nil {
		words = append(words, "calls of", strings.Join(r.Tools, "|"))
	}
	for i, f := range r.Body {
		words = append(words, []string{"if", "and"}[min(i, 1)], f.String())
	}
	return strings.Join(words, " ")
}

// String is the condition in a few words.
func (f FieldRule) String() string {
	var out []string
	if f.Min != nil {
		out = append(out, f.Field+" >= "+decimal(f.Min))
	}
	if f.Max != nil {
		out = append(out, f.Field+" <= "+decimal(f.Max))
	}
	if f.OneOf != nil {
		values := make([]string, len(f.OneOf))
		for i, v := range f.OneOf {
			values[i] = v.Text
		}
		out = append(out, f.Field+" is "+strings.Join(values, " or "))
	}
	return strings.Join(out, " and ")
}

// decimal writes a number that was written with a few digits.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(maxDecimals), "0")
}

const (
	maxRules      = 200
	maxRulePath   = 1000 // bytes
	maxRuleFields = 20   // of one rule
	maxRuleValues = 100  // of one field
	maxDecimals   = 12
	maxNumber     = 40 // characters
)

// Decimal reads a number in plain decimal notation, as "5000" and "-0.25". Others, which servers may read in different
// ways, are none.
func Decimal(s string) (*big.Rat, bool) {
	digits := strings.TrimPrefix(s, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	number := func(part string) bool { return part != "" && strings.Trim(part, "0123456789") == "" }
	if len(s) > maxNumber || len(fraction) > maxDecimals || !number(whole) || dotted && !number(fraction) ||
		len(whole) > 1 && whole[0] == '0' {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// ruleFields are the fields of a rule.
func ruleFields() []string {
	return []string{"methods", "path", "tools", "graphql", "body", "then", "by"}
}

// fieldRuleFields are the fields of a condition.
func fieldRuleFields() []string { return []string{"min", "max", "is"} }

func rulesShape() schema {
	value := schema{OneOf: []schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
	number := schema{Type: "number"}
	condition := schema{Type: "object", Closed: true, Properties: map[string]schema{
		"min": number, "max": number,
		"is": {Description: "The value, or a list of values.", OneOf: append(slices.Clone(value.OneOf),
			schema{Type: "array", MinItems: 1, Items: &value})},
	}}
	condition.Properties["min"] = described(number, "The least that the number may be.")
	condition.Properties["max"] = described(number, "The most that the number may be.")
	return schema{Type: "array", MinItems: 1, Items: &schema{Type: "object", Closed: true, Required: []string{"then"},
		Properties: map[string]schema{
			"methods": described(methodsShape(1), "The methods that the rule is for. Default: all."),
			"path": {Type: "string", Pattern: "^/", MaxLength: maxRulePath,
				Description: `The path. "*" stands for one segment, "**" at the end for any number of them.`},
			"tools": {Type: "array", Items: &schema{Type: "string"}, MinItems: 1,
				Description: `Tools of this MCP server, in which "*" stands for any characters and "?" for one: the rule ` +
					"is about calls of them, and body about their arguments."},
			"graphql": {Enum: []string{"query", "mutation", "subscription"},
				Description: "What all operations of a GraphQL document must be. Only with path."},
			"body": {Type: "object", Description: "Conditions on fields of a JSON object or a form; a dot leads into an object.",
				PatternProperties: map[string]schema{".+": condition}},
			"then": {Enum: []string{"allow", "approve", "refuse"},
				Description: "What happens to a request that matches. approve: it waits until a person decides."},
			"by": {Enum: []string{"operator", "any"},
				Description: "Who decides, with approve. any: also the user in the MCP client, and the console. " +
					"Default: operator."},
		}}}
}

func described(s schema, doc string) schema {
	s.Description = doc
	return s
}

// rules reads "rules". It is nil if that is no list.
func (d *decoder) rules(n *node) []Rule {
	const example = `[{"methods": ["GET"], "then": "allow"}]`
	if n.kind != kindList {
		d.bad("rules", string(n.kind), "a list of rules, e.g. "+example)
		return nil
	}
	out := []Rule{}
	for i, item := range n.items {
		field := fmt.Sprintf("rules[%d]", i)
		switch {
		case i == maxRules:
			d.bad("rules", fmt.Sprintf("%d rules", len(n.items)), fmt.Sprintf("at most %d", maxRules))
			return out
		case item.kind != kindObject:
			d.bad(field, string(item.kind), `an object, e.g. {"methods": ["GET"], "then": "allow"}`)
		default:
			out = append(out, d.rule(field, item))
		}
	}
	return out
}

func (d *decoder) rule(field string, n *node) Rule {
	var r Rule
	var then, by string
	for _, m := range d.uniqueOf(field+".", n, plainKey) {
		at := field + "." + m.key
		switch m.key {
		case "methods":
			r.Methods = d.list(at, m.value, `["GET", "HEAD"]`)
		case "path":
			d.str(at, m.value, &r.Path)
			if m.value.kind == kindString && r.Path == "" {
				d.bad(at, "an empty path", `one that starts with /, e.g. "/v1/refunds/*"`)
			}
		case "tools":
			r.Tools = d.list(at, m.value, `["delete_*"]`)
		case "graphql":
			d.str(at, m.value, &r.GraphQL)
			if !slices.Contains([]string{"query", "mutation", "subscription"}, r.GraphQL) {
				d.bad(at, "something else", `"query", "mutation" or "subscription"`)
			}
		case "body":
			r.Body = d.fieldRules(at, m.value)
		case "then":
			d.str(at, m.value, &then)
		case "by":
			if d.str(at, m.value, &by); by != "any" && by != "operator" {
				d.bad(at, "something else", `"operator" or "any"`)
			}
		default:
			d.unknown(field+".", m, ruleFields())
		}
	}
	switch then {
	case "allow":
		r.Then = ActionAllow
	case "approve":
		r.Then = ActionApprove
	case "refuse":
	default:
		d.bad(field+".then", "missing or something else", `"allow", "approve" or "refuse"`)
	}
	if by != "" && then != "approve" {
		d.bad(field+".by", "a rule that asks nobody", `"then": "approve", or no "by"`)
	}
	r.ByAny = by == "any"
	return r
}

func (d *decoder) fieldRules(field string, n *node) []FieldRule {
	const example = `an object, e.g. {"amount": {"max": 5000}}`
	if n.kind != kindObject || len(n.members) == 0 {
		d.bad(field, string(n.kind), example)
		return nil
	}
	if len(n.members) > maxRuleFields {
		d.bad(field, fmt.Sprintf("%d fields", len(n.members)), fmt.Sprintf("at most %d", maxRuleFields))
		return nil
	}
	var out []FieldRule
	for _, m := range d.uniqueOf(field+".", n, plainKey) {
		at := field + "." + printable(m.key)
		if m.key == "" || strings.Contains("."+m.key+".", "..") || strings.ContainsAny(m.key, "[]") {
			d.bad(at, "not a field's name", `a name like "amount", or "payment.amount" for a field of an object`)
			continue
		}
		if m.value.kind != kindObject || len(m.value.members) == 0 {
			d.bad(at, string(m.value.kind), `an object, e.g. {"max": 5000}`)
			continue
		}
		out = append(out, d.fieldRule(at, m))
	}
	slices.SortFunc(out, func(a, b FieldRule) int { return strings.Compare(a.Field, b.Field) })
	return out
}

func (d *decoder) fieldRule(at string, m member) FieldRule {
	f := FieldRule{Field: m.key}
	for _, c := range d.uniqueOf(at+".", m.value, plainKey) {
		switch c.key {
		case "min":
			f.Min = d.number(at+".min", c.value)
		case "max":
			f.Max = d.number(at+".max", c.value)
		case "is":
			f.OneOf = d.values(at+".is", c.value)
		default:
			d.unknown(at+".", c, fieldRuleFields())
		}
	}
	if f.OneOf != nil && (f.Min != nil || f.Max != nil) {
		d.bad(at, "both is and a bound", "one of them")
	}
	return f
}

func (d *decoder) number(field string, n *node) *big.Rat {
	if n.kind == kindNumber {
		if r, ok := Decimal(n.text); ok {
			return r
		}
	}
	d.bad(field, string(n.kind), "a number in plain decimal notation, e.g. 5000 or 0.5")
	return nil
}

// values reads the value, or the values, that a field may have.
func (d *decoder) values(field string, n *node) []FieldValue {
	list := []*node{n}
	if n.kind == kindList {
		list = n.items
	}
	out := []FieldValue{}
	for _, v := range list {
		switch v.kind {
		case kindString:
			out = append(out, FieldValue{v.text, KindText})
		case kindNumber:
			out = append(out, FieldValue{v.text, KindNumber})
		case kindBool:
			out = append(out, FieldValue{fmt.Sprint(v.on), KindBool})
		}
	}
	if len(out) != len(list) || len(list) == 0 || len(list) > maxRuleValues {
		d.bad(field, string(n.kind), fmt.Sprintf("a value, or a list of at most %d", maxRuleValues))
	}
	return out
}

// compile prepares the path.
func (r *Rule) compile() {
	r.segments = strings.Split(r.Path[1:], "/")
	r.folds = make([]string, len(r.segments))
	for i, s := range r.segments {
		r.folds[i] = folded(s)
	}
}

// rules checks "rules", and parts those about requests from those about calls of tools.
func (v *validator) rules(rules []Rule, server bool) (requests, calls []Rule) {
	if rules != nil && len(rules) == 0 {
		v.bad("rules", "an empty list, which would refuse everything", `a rule that allows something, or "active": false`)
	}
	for i := range rules {
		r, field := &rules[i], fmt.Sprintf("rules[%d]", i)
		if r.Tools != nil {
			v.toolRule(field, r, server)
			calls = append(calls, *r)
			continue
		}
		for j, m := range r.Methods {
			method, err := parseMethod(m)
			if err != nil {
				v.bad(fmt.Sprintf("%s.methods[%d]", field, j), fmt.Sprintf("%q is %v", cut(m), err), "a method like GET")
				continue
			}
			if near := nearMethod(method); near != "" && !slices.Contains(knownMethods(), method) {
				v.warn(fmt.Sprintf("%s.methods[%d]", field, j), fmt.Sprintf("%q", method), fmt.Sprintf("did you mean %q?", near))
			}
			r.Methods[j] = method
		}
		if why := pathProblem(r.Path); why != "" {
			v.bad(field+".path", why, `a path as in a URL before it is escaped, e.g. "/v1/refunds/*" or "/v1/admin/**"`)
		}
		if r.Path != "" {
			r.compile()
		}
		if r.GraphQL != "" && (r.Path == "" || strings.Contains(r.Path, "*")) {
			v.bad(field+".path", "missing or with a *", `the path of the GraphQL endpoint, e.g. "/graphql"`)
		}
		if r.GraphQL != "" && r.Body != nil {
			v.bad(field+".body", "together with graphql", "one of them")
		}
		requests = append(requests, *r)
	}
	return requests, calls
}

// toolRule checks a rule about calls of tools.
func (v *validator) toolRule(field string, r *Rule, server bool) {
	switch {
	case !server:
		v.bad(field+".tools", "a rule about tools in an API that is no MCP server", `"mcp", or "path"`)
	case r.Methods != nil || r.Path != "" || r.GraphQL != "":
		v.bad(field+".tools", "together with methods, path or graphql", "a rule about calls, or one about requests")
	case len(r.Tools) == 0:
		v.bad(field+".tools", "an empty list", `at least one name, e.g. ["delete_*"]`)
	}
	v.globs(field+".tools", r.Tools)
	for i, glob := range r.Tools {
		r.Tools[i] = toolname.AliasGlob(glob)
	}
}

// pathProblem says why a rule's path is none, or is empty.
func pathProblem(path string) string {
	if path == "" {
		return ""
	}
	if !strings.HasPrefix(path, "/") || len(path) > maxRulePath {
		return fmt.Sprintf("not a path of at most %d bytes that starts with /", maxRulePath)
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "**" && !last:
			return "** before the end"
		case s != "*" && s != "**" && strings.Contains(s, "*"):
			return "* as a part of a segment"
		case s == "" && !last, s == "." || s == "..":
			return "an empty segment, or one of dots"
		case strings.ContainsAny(s, "?#%\\;"):
			return "one of ? # % \\ ;"
		}
	}
	return ""
}
