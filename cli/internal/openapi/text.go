package openapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// number matches numbers that are valid in JSON and in TypeScript.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?$`)

// writeEnum writes the values that a schema allows.
func writeEnum(values []jsonread.Member, kinds []string, null bool) tsType {
	var out []string
	seen := map[string]bool{}
	for _, v := range values {
		text := writeLiteral(v.Node, kinds).text
		if text == unknown {
			return tsType{text: unknown}
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	if null && !seen["null"] {
		out = append(out, "null")
	}
	// A type makes its single values redundant, so those are left out.
	for _, kind := range []string{"string", "number"} {
		if seen[kind] {
			out = slices.DeleteFunc(out, func(s string) bool {
				return kind == "string" && s[0] == '"' || kind == "number" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9')
			})
		}
	}
	if len(out) == 1 {
		return tsType{text: out[0]}
	}
	return tsType{strings.Join(out, " | "), union}
}

func writeLiteral(v *jsonread.Node, kinds []string) tsType {
	is := func(names ...string) bool {
		return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(names, k) })
	}
	if v == nil {
		return tsType{text: "null"}
	}
	switch v.Kind {
	case jsonread.Null:
		return tsType{text: "null"}
	case jsonread.Bool:
		if is("boolean") {
			return tsType{text: v.Text}
		}
	case jsonread.Number:
		if is("integer", "number") {
			if number.MatchString(v.Text) {
				return tsType{text: v.Text}
			}
			return tsType{text: "number"}
		}
	case jsonread.String:
		if is("string") {
			break
		}
		if is("integer", "number") && number.MatchString(v.Text) || is("boolean") && (v.Text == "true" || v.Text == "false") {
			return tsType{text: v.Text}
		}
	default:
		return tsType{text: unknown}
	}
	const long = 300
	if len(v.Text) > long {
		return tsType{text: "string"}
	}
	return tsType{text: quoteString(v.Text)}
}

// quoteString returns a TypeScript string on one line. It escapes every character that is invisible or has a special
// meaning.
func quoteString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '<': // a viewer could render it as markup
			b.WriteString(`\u003c`)
		case r < utf8.RuneSelf && r >= ' ' && r != 0x7f, safetext.IsPlain(string(r)):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// propertyName returns a property's name, quoted unless it is an identifier.
func propertyName(s string) string {
	if s != "" && s == makeIdentifier(s) {
		return s
	}
	const long = 200
	if len(s) > long {
		s = strings.ToValidUTF8(s[:long], "")
	}
	return quoteString(s)
}

// makeIdentifier makes an identifier from a text: characters other than ASCII letters, digits, _ and $ become _.
func makeIdentifier(s string) string {
	const long = 100
	// RFC 6901, section 3: in a reference, ~1 stands for a slash.
	s = strings.ReplaceAll(s, "~1", "_")
	if len(s) > long {
		s = s[:long]
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '$':
			b.WriteByte(c)
		case '0' <= c && c <= '9':
			if i == 0 {
				b.WriteByte('_')
			}
			b.WriteByte(c)
		// A character gets one _, although it may have several bytes.
		case c < utf8.RuneSelf || utf8.RuneStart(c):
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 {
		return "_"
	}
	return b.String()
}

// reserved are type names that would hide a type of TypeScript or the runtime, and words of the language.
const reserved = `
any unknown never void null undefined string number boolean bigint symbol object this true false
break case catch class const continue debugger default delete do else enum export extends finally for function if import
in instanceof new return super switch throw try typeof var while with implements interface let package private protected
public static yield async await of as is asserts infer keyof readonly unique declare module namespace abstract type
global require intrinsic using accessor satisfies out override
Array ReadonlyArray Record Partial Required Readonly Pick Omit Exclude Extract NonNullable Parameters ReturnType Awaited
InstanceType ConstructorParameters ThisType Uppercase Lowercase Capitalize Uncapitalize NoInfer ThisParameterType
Object Function Boolean Symbol Number BigInt String RegExp Date Math JSON Promise PromiseLike Map Set WeakMap WeakSet
WeakRef Error EvalError RangeError ReferenceError SyntaxError TypeError URIError AggregateError SuppressedError Proxy
Reflect Iterator Iterable IterableIterator AsyncIterator AsyncIterable AsyncIterableIterator Generator AsyncGenerator
ArrayBuffer SharedArrayBuffer DataView Atomics Intl Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array
Float32Array Float64Array BigInt64Array BigUint64Array Uint8ClampedArray ArrayLike PropertyKey PropertyDescriptor
Blob File FormData Headers Request Response RequestInit ResponseInit BodyInit HeadersInit URL URLSearchParams
AbortSignal AbortController ReadableStream WritableStream TransformStream TextEncoder TextDecoder Event EventTarget
WebSocket Deno console globalThis Crypto Performance Worker Storage Temporal`
