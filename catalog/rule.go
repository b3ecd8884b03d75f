package catalog

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// Action is the treatment of the requests that a rule matches. The zero Action refuses.
type Action uint8

// The actions, from the strictest to the mildest.
const (
	ActionRefuse  Action = iota
	ActionApprove        // a person decides
	ActionAllow
)

// String returns the action as in config.json.
func (a Action) String() string {
	switch a {
	case ActionAllow:
		return "allow"
	case ActionApprove:
		return "approve"
	}
	return "refuse"
}

// Rule is one entry of "rules". It matches a request if all of its conditions hold. The first rule of an API that
// matches decides; if no rule matches, the request is refused.
type Rule struct {
	Then Action
	// Tools are globs over the aliases of an MCP server's tools; see package mcpserver. The rule is then about calls of
	// those tools, and Body about their arguments. Nil means that the rule is about requests.
	Tools []string
	// Methods are in upper case. Nil means any method.
	Methods []string
	// Path is a path. Its segments may be "*", which stands for one segment. It may end with "**", which stands for any
	// number of segments. Empty means any path.
	Path string
	// GraphQL is "query", "mutation" or "subscription": the required kind of all operations in the request's document. If
	// it is empty, the request need not be GraphQL.
	GraphQL string
	// Body are conditions on fields of a JSON object or a form, sorted by field.
	Body []FieldRule
	// ByAny, for ActionApprove, lets the user of the MCP client and any user of the console decide, and not only the
	// operator.
	ByAny bool

	segments, folds []string // the segments of Path: unchanged, and folded and untrailed
}

// FieldRule is a condition on one field. Either OneOf is set, or at least one bound.
type FieldRule struct {
	// Field is the name of the field. A dot leads to a field of an inner object.
	Field    string
	Min, Max *big.Rat // bounds of a number; nil means no bound
	OneOf    []FieldValue
}

// FieldValue is a value of a field: a string, a number, true or false.
type FieldValue struct {
	Text string
	Kind FieldKind
}

// FieldKind is the type of a FieldValue.
type FieldKind uint8

// The kinds. The server decides the kind of a form's value.
const (
	KindAny FieldKind = iota
	KindText
	KindNumber
	KindBool
)

// String returns the rule in a few words, for people and models: "allow POST /v1/refunds if amount <= 5000".
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

// String returns the condition in a few words.
func (f FieldRule) String() string {
	var out []string
	if f.Min != nil {
		out = append(out, f.Field+" >= "+formatDecimal(f.Min))
	}
	if f.Max != nil {
		out = append(out, f.Field+" <= "+formatDecimal(f.Max))
	}
	if f.OneOf != nil {
		values := convert.Each(f.OneOf, func(v FieldValue) string { return v.Text })
		out = append(out, f.Field+" is "+strings.Join(values, " or "))
	}
	return strings.Join(out, " and ")
}

// formatDecimal writes a number with few digits.
func formatDecimal(r *big.Rat) string {
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

// ParseDecimal reads a number in plain decimal notation, such as "5000" and "-0.25". It rejects other notations, which
// servers may read differently.
func ParseDecimal(s string) (*big.Rat, bool) {
	digits := strings.TrimPrefix(s, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	number := func(part string) bool { return part != "" && strings.Trim(part, "0123456789") == "" }
	// The bounds keep exact arithmetic cheap.
	if len(s) > maxNumber || len(fraction) > maxDecimals || !number(whole) || dotted && !number(fraction) ||
		len(whole) > 1 && whole[0] == '0' {
		return nil, false
	}
	// Most numbers are whole, and ParseInt takes a third of the time.
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return new(big.Rat).SetInt64(n), true
	}
	return new(big.Rat).SetString(s)
}

// rawRule is a decoded rule before validation.
type rawRule struct {
	Rule
	then, by string
}

func ruleFields() fieldSpecs[rawRule] {
	return fieldSpecs[rawRule]{
		listField("methods", `["GET", "HEAD"]`, func(r *rawRule) *[]string { return &r.Methods }),
		{"path", func(d *configDecoder, r *rawRule, f string, n *node) {
			d.ReadString(f, n, &r.Path)
			if n.Kind == jsonread.String && r.Path == "" {
				d.AddError(f, "an empty path", `one that starts with /, e.g. "/v1/refunds/*"`)
			}
		}},
		listField("tools", `["delete_*"]`, func(r *rawRule) *[]string { return &r.Tools }),
		{"graphql", func(d *configDecoder, r *rawRule, f string, n *node) {
			if d.ReadString(f, n, &r.GraphQL); !slices.Contains([]string{"query", "mutation", "subscription"}, r.GraphQL) {
				d.AddError(f, quoteChoice(r.GraphQL), `"query", "mutation" or "subscription"`)
			}
		}},
		{"body", func(d *configDecoder, r *rawRule, f string, n *node) { r.Body = d.readFieldRules(f, n) }},
		stringField("then", func(r *rawRule) *string { return &r.then }),
		{"by", func(d *configDecoder, r *rawRule, f string, n *node) {
			if d.ReadString(f, n, &r.by); r.by != "any" && r.by != "operator" {
				d.AddError(f, quoteChoice(r.by), `"operator" or "any"`)
			}
		}},
	}
}

func conditionFields() fieldSpecs[FieldRule] {
	return fieldSpecs[FieldRule]{
		{"min", func(d *configDecoder, r *FieldRule, f string, n *node) { r.Min = d.readNumber(f, n) }},
		{"max", func(d *configDecoder, r *FieldRule, f string, n *node) { r.Max = d.readNumber(f, n) }},
		{"is", func(d *configDecoder, r *FieldRule, f string, n *node) { r.OneOf = d.readFieldValues(f, n) }},
	}
}

// readRules reads "rules". It returns nil if the value is not a list.
func (d *configDecoder) readRules(n *node) []Rule {
	const example = `[{"methods": ["GET"], "then": "allow"}]`
	if n.Kind != jsonread.List {
		d.AddError("rules", n.Kind.String(), "a list of rules, e.g. "+example)
		return nil
	}
	out := []Rule{}
	for i, m := range n.ListItems() {
		item, field := m.Node, fmt.Sprintf("rules[%d]", i)
		switch {
		case i == maxRules:
			d.AddError("rules", fmt.Sprintf("%d rules", len(n.ListItems())), fmt.Sprintf("at most %d", maxRules))
			return out
		case item.Kind != jsonread.Object:
			d.AddError(field, item.Kind.String(), `an object, e.g. {"methods": ["GET"], "then": "allow"}`)
		default:
			out = append(out, d.readRule(field, item))
		}
	}
	return out
}

func (d *configDecoder) readRule(field string, n *node) Rule {
	var r rawRule
	ruleFields().decodeObject(d, field+".", n, &r)
	switch r.then {
	case "allow":
		r.Then = ActionAllow
	case "approve":
		r.Then = ActionApprove
	case "refuse":
	default:
		d.AddError(field+".then", quoteChoice(r.then), `"allow", "approve" or "refuse"`)
	}
	if r.by != "" && r.then != "approve" {
		d.AddError(field+".by", "a rule that does not ask for approval", `"then": "approve", or no "by"`)
	}
	r.ByAny = r.by == "any"
	return r.Rule
}

func (d *configDecoder) readFieldRules(field string, n *node) []FieldRule {
	const example = `an object, e.g. {"amount": {"max": 5000}}`
	if n.Kind != jsonread.Object || len(n.Members) == 0 {
		d.AddError(field, n.Kind.String(), example)
		return nil
	}
	if len(n.Members) > maxRuleFields {
		d.AddError(field, fmt.Sprintf("%d fields", len(n.Members)), fmt.Sprintf("at most %d", maxRuleFields))
		return nil
	}
	var out []FieldRule
	for _, m := range d.ReadMembers(field+".", n, isPlainKey) {
		at := field + "." + strictjson.QuoteKey(m.Key)
		if m.Key == "" || strings.Contains("."+m.Key+".", "..") || strings.ContainsAny(m.Key, "[]") {
			d.AddError(at, "not a field's name", `a name like "amount", or "payment.amount" for a field of an object`)
			continue
		}
		if m.Node.Kind != jsonread.Object || len(m.Node.Members) == 0 {
			d.AddError(at, m.Node.Kind.String(), `an object, e.g. {"max": 5000}`)
			continue
		}
		out = append(out, d.readFieldRule(at, m))
	}
	slices.SortFunc(out, func(a, b FieldRule) int { return strings.Compare(a.Field, b.Field) })
	return out
}

func (d *configDecoder) readFieldRule(at string, m jsonread.Member) FieldRule {
	f := FieldRule{Field: m.Key}
	conditionFields().decodeObject(d, at+".", m.Node, &f)
	if f.OneOf != nil && (f.Min != nil || f.Max != nil) {
		d.AddError(at, "both is and a bound", "one of them")
	}
	return f
}

func (d *configDecoder) readNumber(field string, n *node) *big.Rat {
	if n.Kind == jsonread.Number {
		if r, ok := ParseDecimal(n.Text); ok {
			return r
		}
	}
	d.AddError(field, n.Kind.String(), "a number in plain decimal notation, e.g. 5000 or 0.5")
	return nil
}

// readFieldValues reads one allowed value of a field, or a list of values.
func (d *configDecoder) readFieldValues(field string, n *node) []FieldValue {
	list := []jsonread.Member{{Node: n}}
	if n.Kind == jsonread.List {
		list = n.ListItems()
	}
	out := []FieldValue{}
	for _, m := range list {
		switch v := m.Node; v.Kind {
		case jsonread.String:
			out = append(out, FieldValue{v.Text, KindText})
		case jsonread.Number:
			d.readNumber(field, v)
			out = append(out, FieldValue{v.Text, KindNumber})
		case jsonread.Bool:
			out = append(out, FieldValue{fmt.Sprint(v.Text == "true"), KindBool})
		}
	}
	if len(out) != len(list) || len(list) == 0 || len(list) > maxRuleValues {
		d.AddError(field, n.Kind.String(), fmt.Sprintf("a value, or a list of at most %d", maxRuleValues))
	}
	return out
}

// compilePath prepares the path for matching.
func (r *Rule) compilePath() {
	r.segments = strings.Split(r.Path[1:], "/")
	r.folds = make([]string, len(r.segments))
	for i, s := range r.segments {
		r.folds[i] = foldText(s)
	}
	// Many servers ignore a slash at the end.
	r.folds = trimLastEmpty(r.folds)
}

// splitRules checks "rules", and separates rules about requests from rules about calls of tools.
func (v *configValidator) splitRules(rules []Rule, server bool) (requests, calls []Rule) {
	// A request that matches no rule is refused.
	if rules != nil && len(rules) == 0 {
		v.AddError("rules", "an empty list, which would refuse everything",
			`a rule that allows something, or "active": false`)
	}
	for i := range rules {
		r, field := &rules[i], fmt.Sprintf("rules[%d]", i)
		if r.Tools != nil {
			v.checkToolRule(field, r, server)
			calls = append(calls, *r)
			continue
		}
		for j, m := range r.Methods {
			method, err := parseMethod(m)
			if err != nil {
				v.AddError(fmt.Sprintf("%s.methods[%d]", field, j), fmt.Sprintf("%q is %v", strictjson.CutQuote(m), err),
					"a method like GET")
				continue
			}
			if near := nearMethod(method); near != "" && !slices.Contains(knownMethods(), method) {
				v.AddWarning(fmt.Sprintf("%s.methods[%d]", field, j), fmt.Sprintf("%q", method),
					fmt.Sprintf("did you mean %q?", near))
			}
			r.Methods[j] = method
		}
		if why := pathProblem(r.Path); why != "" {
			v.AddError(field+".path", why, `a path as in a URL before it is escaped, e.g. "/v1/refunds/*" or "/v1/admin/**"`)
		}
		if r.Path != "" {
			r.compilePath()
		}
		if r.GraphQL != "" && (r.Path == "" || strings.Contains(r.Path, "*")) {
			v.AddError(field+".path", "missing or with a *", `the path of the GraphQL endpoint, e.g. "/graphql"`)
		}
		if r.GraphQL != "" && r.Body != nil {
			v.AddError(field+".body", "together with graphql", "one of them")
		}
		requests = append(requests, *r)
	}
	return requests, calls
}

// checkToolRule checks a rule about calls of tools.
func (v *configValidator) checkToolRule(field string, r *Rule, server bool) {
	switch {
	case !server:
		v.AddError(field+".tools", "a rule about tools in an API that is not an MCP server", `"mcp", or "path"`)
	case r.Methods != nil || r.Path != "" || r.GraphQL != "":
		v.AddError(field+".tools", "together with methods, path or graphql", "a rule about calls, or one about requests")
	case len(r.Tools) == 0:
		v.AddError(field+".tools", "an empty list", `at least one name, e.g. ["delete_*"]`)
	}
	v.checkGlobs(field+".tools", r.Tools)
	for i, glob := range r.Tools {
		r.Tools[i] = mcpserver.AliasGlob(glob)
	}
}

// pathProblem returns why a text is not a path of a rule, or "".
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
		// Servers split or decode a path at these characters.
		case strings.ContainsAny(s, "?#%\\;"):
			return "one of ? # % \\ ;"
		}
	}
	return ""
}
