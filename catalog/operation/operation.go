// Package operation is the format of apis/<name>/operations.jsonl: the extract of a document that `codeforge api add
// --openapi` stores, so that daemons need not read documents. The first line is a head. Then each operation and each
// type has a line of JSON.
package operation

const (
	// FileName is the name of the file in an API's folder.
	FileName = "operations.jsonl"
	// MaxFile and MaxLine bound the file and one line, in bytes.
	MaxFile = 32 << 20
	MaxLine = 256 << 10
	// Format is the version of the format that this package reads and writes.
	Format = 1
)

// Head is the first line.
type Head struct {
	Format  int    `json:"format"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version,omitempty"` // of the document, for example "2024-06-20"
	// Server is the URL in front of paths, without a slash at its end, for example https://api.stripe.com.
	Server string `json:"server"`
	Auth   []Auth `json:"auth,omitempty"`
	// Common is the TypeScript type of query parameters that nearly every operation takes, for example { pretty?: boolean
	// }. The lines do not repeat them.
	Common string `json:"common,omitempty"`
	// GraphQL means that the operations are the root fields of a schema, and all use one path. ID is the kind and
	// the field ("query issue"), Query the arguments, and Answer the type. Types are definitions. All are in the GraphQL
	// language, not in TypeScript.
	GraphQL bool `json:"graphql,omitempty"`
	// Operations and Types are the numbers of the following lines.
	Operations int `json:"operations"`
	Types      int `json:"types"`
}

// Auth describes how a request carries one of the API's tokens.
type Auth struct {
	Token string `json:"token"` // its name, e.g. STRIPE_TOKEN
	Place string `json:"place"` // as in config.json, e.g. header:Authorization
	Value string `json:"value"` // the text that code writes there, for example "Bearer STRIPE_TOKEN"
}

// Line is one line after the head: an operation if Method is set, or else a type. All text comes from the document's
// author and is safe to show. Each text has one line and a bounded length, without control or bidirectional characters
// or markup. TypeScript is on one line.
type Line struct {
	Method string `json:"m,omitempty"`
	// Path is a template, for example /repos/{owner}/{repo}/issues. {path+} stands for several segments. A query in Path
	// distinguishes operations with the same path: /?Action=CreateUser.
	Path    string   `json:"p,omitempty"`
	ID      string   `json:"id,omitempty"` // operationId; not unique, and often missing
	Summary string   `json:"s,omitempty"`  // or the first sentence of the description
	Tags    []string `json:"t,omitempty"`  // the groups of the operation
	Params  string   `json:"pp,omitempty"` // TypeScript of the path's parameters, if any is not a string
	Query   string   `json:"q,omitempty"`  // TypeScript, e.g. { per_page?: number; page?: number }
	// Styles describes how query parameters and form fields are written if their values are lists or objects. By default a
	// list is repeated (a=1&a=2), and the fields of an object are separate parameters. In a form such fields have brackets
	// (a[b]=1).
	Styles       map[string]string `json:"qs,omitempty"`
	Headers      string            `json:"h,omitempty"`  // TypeScript of the headers, without the credential's header
	Body         string            `json:"b,omitempty"`  // TypeScript of the body
	BodyMedia    string            `json:"bm,omitempty"` // the body's media type; empty means application/json
	BodyOptional bool              `json:"bo,omitempty"` // requests without a body are valid, too
	Answer       string            `json:"a,omitempty"`  // TypeScript of the body of a 2xx answer, or empty
	Deprecated   bool              `json:"d,omitempty"`
	// Words are further words of the document for the search. They are never shown.
	Words  string `json:"w,omitempty"`
	Server string `json:"srv,omitempty"` // if it differs from the head's server

	Type string `json:"type,omitempty"` // the name of a type, an identifier of TypeScript
	TS   string `json:"ts,omitempty"`   // the definition: the right side of `type Name = ...`
}
