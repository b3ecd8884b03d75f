// Package operation is the format of apis/<name>/operations.jsonl: what `codeforge api add --openapi` keeps of a
// document, so that no daemon has to read documents. A head comes first, then a line of JSON for every operation and
// every type.
package operation

const (
	// FileName is the file's name in an API's folder.
	FileName = "operations.jsonl"
	// MaxFile and MaxLine bound the file and one of its lines, in bytes.
	MaxFile = 32 << 20
	MaxLine = 256 << 10
	// Format is the version of the format that this package reads and writes.
	Format = 1
)

// Head is the first line.
type Head struct {
	Format  int    `json:"format"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version,omitempty"` // the document's, e.g. "2024-06-20"
	// Server is the URL that paths follow on, without a slash at its end, e.g. https://api.stripe.com.
	Server string `json:"server"`
	Auth   []Auth `json:"auth,omitempty"`
	// Common is TypeScript of query parameters that nearly every operation takes, e.g. { pretty?: boolean }. No line
	// repeats them.
	Common string `json:"common,omitempty"`
	// GraphQL means that operations are the root fields of a schema, all of them requests of one path: ID is the kind and
	// the field ("query issue"), Query its arguments and Answer its type, and types are definitions, all in the language
	// of GraphQL and not in TypeScript.
	GraphQL bool `json:"graphql,omitempty"`
	// Operations and Types count the lines that follow.
	Operations int `json:"operations"`
	Types      int `json:"types"`
}

// Auth says how a request carries one of the API's tokens.
type Auth struct {
	Token string `json:"token"` // its name, e.g. STRIPE_TOKEN
	Place string `json:"place"` // as in config.json, e.g. header:Authorization
	Value string `json:"value"` // what code writes there, e.g. "Bearer STRIPE_TOKEN"
}

// Line is one line after the head: an operation if Method is set, else a type. All text is of the document's author,
// made safe to show: one line each, no control or bidirectional characters, no markup, bounded. TypeScript is on one
// line.
type Line struct {
	Method string `json:"m,omitempty"`
	// Path is a template, e.g. /repos/{owner}/{repo}/issues. {path+} is several segments. A query in it is what tells
	// operations of one path apart: /?Action=CreateUser.
	Path    string   `json:"p,omitempty"`
	ID      string   `json:"id,omitempty"` // operationId; not unique, and often missing
	Summary string   `json:"s,omitempty"`  // or the description's first sentence
	Tags    []string `json:"t,omitempty"`  // the groups that it belongs to
	Params  string   `json:"pp,omitempty"` // TypeScript of the path's parameters, where they are not all strings
	Query   string   `json:"q,omitempty"`  // TypeScript, e.g. { per_page?: number; page?: number }
	// Styles says how parameters of the query, and fields of a form, are written whose values are lists or objects. Unless
	// it names another way, a list is repeated (a=1&a=2), and the fields of an object are parameters of their own; in a
	// form they have brackets (a[b]=1).
	Styles       map[string]string `json:"qs,omitempty"`
	Headers      string            `json:"h,omitempty"`  // TypeScript of its headers, without the credential's
	Body         string            `json:"b,omitempty"`  // TypeScript of the body
	BodyMedia    string            `json:"bm,omitempty"` // its media type; empty is application/json
	BodyOptional bool              `json:"bo,omitempty"` // requests without a body are fine too
	Answer       string            `json:"a,omitempty"`  // TypeScript of the body of a 2xx answer; empty: none
	Deprecated   bool              `json:"d,omitempty"`
	// Words are what the document says beyond the summary, in words for search that nobody is shown.
	Words  string `json:"w,omitempty"`
	Server string `json:"srv,omitempty"` // where it differs from the head's

	Type string `json:"type,omitempty"` // a type's name, an identifier of TypeScript
	TS   string `json:"ts,omitempty"`   // what it stands for: the right side of `type Name = ...`
}
