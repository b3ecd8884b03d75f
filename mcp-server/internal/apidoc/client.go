package apidoc

import (
	_ "embed" // client.d.ts
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

const (
	// maxCalled bounds the operations of one client, and maxDeclared its declarations, in bytes. Types that do not fit
	// become any.
	maxCalled   = 500
	maxDeclared = 512 << 10
)

// ClientName returns the name under which code imports an API's client: the API's name as an identifier.
func ClientName(api string) string {
	name := strings.ReplaceAll(api, "-", "_")
	if name == "" || '0' <= name[0] && name[0] <= '9' || !runner.IsIdentifier(name) {
		name = "_" + name
	}
	return name
}

// ClientTable returns the client's table of the operations with these keys, and its TypeScript declarations. It omits
// operations that the API does not have. tokens are the names of the API's tokens.
func (d *Document) ClientTable(keys map[string]bool, tokens []string) (t runner.Table, types string) {
	t = runner.Table{Name: d.Name, Call: ClientName(d.Name), Server: d.Head.Server, Auth: d.tokenPlaces(tokens)}
	if d.Head.GraphQL {
		t.Note = d.Name + " is an API of GraphQL: send its queries with fetch"
		return t, ""
	}
	c := declarationWriter{doc: d, call: t.Call}
	// Counted first, because the table has each key once.
	variants := map[string]int{}
	for i := range d.OperationCount() {
		if key := d.OperationKey(i); keys[key] {
			variants[key]++
		}
	}
	seen := map[string]bool{}
	for i := range d.OperationCount() {
		key := d.OperationKey(i)
		if !keys[key] || seen[key] || len(t.Operations) == maxCalled {
			continue
		}
		seen[key] = true
		l := d.Operation(i)
		o := runner.Operation{Key: key, Media: l.BodyMedia, Server: l.Server}
		for _, name := range slices.Sorted(maps.Keys(l.Styles)) {
			o.Styles = append(o.Styles, [2]string{name, l.Styles[name]})
		}
		o.Query = append(fieldNames(l.Query), fieldNames(d.Head.Common)...)
		o.Fields = fieldNames(d.resolveType(l.Body))
		o.List = d.findList(l)
		t.Operations = append(t.Operations, o)
		if variants[key] > 1 { // one method and path for several operations, which differ by the body
			// Without knowing the body, the types of one variant would reject the others.
			c.declareOpen(key)
			continue
		}
		c.declareOperation(l, key)
	}
	return t, c.renderText()
}

// basic matches a user name and a password in a head's value.
var basic = regexp.MustCompile(`^Basic \$\{btoa\("([A-Za-z0-9_]+):([A-Za-z0-9_]*)"\)\}$`)

// tokenPlaces returns how requests carry the tokens that the API has.
func (d *Document) tokenPlaces(tokens []string) []runner.Auth {
	out := []runner.Auth{}
	for _, a := range d.Head.Auth {
		kind, name, _ := strings.Cut(a.Place, ":")
		r := runner.Auth{Value: a.Value}
		// The user name and password go as two parts, so that the client encodes them itself.
		if m := basic.FindStringSubmatch(a.Value); m != nil {
			r = runner.Auth{Basic: m[1:]}
		}
		switch {
		// A token that the API does not have would be sent as its name.
		case !slices.Contains(tokens, a.Token) || name == "":
			continue
		case kind == "header":
			r.Header = name
		case kind == "query":
			r.Query = name
		case kind == "cookie":
			r = runner.Auth{Header: "Cookie", Value: name + "=" + a.Value}
			isCookie := func(other runner.Auth) bool { return other.Header == r.Header }
			if i := slices.IndexFunc(out, isCookie); i >= 0 { // all cookies are in one header
				out[i].Value += "; " + r.Value
				continue
			}
		default:
			continue
		}
		out = append(out, r)
	}
	return out
}

// resolveType returns the type that a type's name stands for, or the type itself.
func (d *Document) resolveType(ts string) string {
	// Bounded, because a hostile document may have types that name each other in a circle.
	const chain = 5
	for range chain {
		t, ok := d.Type(ts)
		if !ok {
			break
		}
		ts = t.TS
	}
	return ts
}

// fieldNames returns the names of an object's properties.
func fieldNames(ts string) []string {
	out := []string{}
	list, _ := objectMembers(ts)
	for _, m := range list {
		if name, _, ok := splitMember(m); ok {
			out = append(out, name)
		}
	}
	return out
}

// findList returns the property of an operation's answer that holds its list, or "". Of several arrays this is the only
// one with objects that are not links, or else the one that the path names.
func (d *Document) findList(l operation.Line) string {
	all, _ := objectMembers(d.resolveType(l.Answer))
	var arrays, objects []string
	for _, m := range all {
		name, ts, ok := splitMember(m)
		item, isArray := strings.CutSuffix(d.resolveType(ts), "[]")
		switch {
		case !ok || !isArray || slices.Contains(besideLists, strings.ToLower(name)):
		case isPlain(d.resolveType(item)):
			arrays = append(arrays, name)
		default:
			arrays, objects = append(arrays, name), append(objects, name)
		}
	}
	// The only array of objects is the list, whatever its name.
	if len(objects) == 1 {
		return objects[0]
	}
	for _, name := range arrays {
		if strings.EqualFold(name, findLastWord(l.Path)) {
			return name
		}
	}
	if len(arrays) == 1 {
		return arrays[0]
	}
	return ""
}

// besideLists are arrays beside the list of an answer, in lower case. client.js has the same names.
var besideLists = []string{"links", "_links", "errors", "warnings"}

// isPlain reports whether a type consists of texts, numbers and booleans.
func isPlain(ts string) bool {
	return ts == "string" || ts == "number" || ts == "boolean" || strings.HasPrefix(ts, `"`) || strings.HasPrefix(ts, `("`)
}

// findLastWord returns the last segment of a path that is not a parameter, without a file extension.
func findLastWord(path string) string {
	for _, s := range slices.Backward(strings.Split(path, "/")) {
		if s != "" && !strings.Contains(s, "{") {
			word, _, _ := strings.Cut(s, ".")
			return word
		}
	}
	return ""
}

// splitMember splits a member of an object into its name and its type. ok is false for an index signature.
func splitMember(member string) (name, ts string, ok bool) {
	if strings.HasPrefix(member, "[") {
		return "", "", false
	}
	at := strings.Index(member, ": ")
	// A quoted name may contain ": " itself.
	if strings.HasPrefix(member, `"`) {
		end := 1
		for end < len(member) && member[end] != '"' {
			if member[end] == '\\' {
				end++
			}
			end++
		}
		if end+1 >= len(member) {
			return "", "", false
		}
		if at = strings.Index(member[end:], ": "); at >= 0 {
			at += end
		}
	}
	if at < 0 {
		return "", "", false
	}
	name = strings.TrimSuffix(member[:at], "?")
	if strings.HasPrefix(name, `"`) {
		var err error
		if name, err = strconv.Unquote(braced.ReplaceAllStringFunc(name, padEscape)); err != nil {
			return "", "", false
		}
	}
	return name, member[at+2:], true
}

// braced matches an escaped character in a TypeScript string. Go writes it with eight digits.
var braced = regexp.MustCompile(`\\u\{[0-9a-f]{1,6}\}`)

func padEscape(s string) string { return fmt.Sprintf(`\U%08s`, s[3:len(s)-1]) }

// declared is the start of the names of generated declarations. A document that uses such a name only spoils the check
// of its client.
const declared = "codeforge$"

var inPath = regexp.MustCompile(`\{([^{}]+)\}`)

// clientTypes declare the client. Its properties for lists are the same as in client.js.
//
//go:embed client.d.ts
var clientTypes string
