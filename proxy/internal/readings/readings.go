// Package readings compares how the proxy reads a request with how servers read what left it.
//
// Threat: two parsers, two meanings. A credential is swapped into the field that an API declares as the proxy reads the
// request; a server that reads it as another field publishes it, and one that finds a method where the proxy found none
// does what is restricted. The corpus holds requests as hostile code would send them, the peers are the parsers that
// servers use, and Judge holds that no peer sees more than the proxy allowed.
package readings

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Places in a request, as a peer names them.
const (
	InMethod   = "method"
	InPath     = "path"
	InQuery    = "query"
	InHeader   = "header"
	InAuth     = "auth" // user and password of Basic
	InBody     = "body"
	InFile     = "file"
	InFilename = "filename"
)

// Kinds of a Reading: what a peer took the part that it read for.
const (
	KindHead      = "head"
	KindQuery     = "query"
	KindForm      = "form"
	KindMultipart = "multipart"
	KindJSON      = "json"
	// KindUntyped is JSON in a body whose type says otherwise, for servers that ask no type.
	KindUntyped = "untyped"
)

// Field is one value that a peer found. Name joins the keys that lead to it by dots; arrays do not count.
type Field struct{ Place, Name, Value string }

// UnmarshalJSON reads [place, name, value].
func (f *Field) UnmarshalJSON(b []byte) error {
	var parts [3]string
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	*f = Field{parts[0], parts[1], parts[2]}
	return nil
}

func (f Field) String() string {
	return fmt.Sprintf("%s:%q = %q", f.Place, f.Name, f.Value)
}

// Reading is what one reader made of a request or a part of it.
type Reading struct {
	Reader string  `json:"reader"`
	Kind   string  `json:"kind"`
	Method string  `json:"method"`
	Fields []Field `json:"fields"`
	// Error is why it refused, or empty.
	Error string `json:"error"`
}

// Outcome is what the proxy did with a request.
type Outcome struct {
	// Left is what reached the upstream, byte by byte; nil when nothing did.
	Left []byte
	// Complete says that Left is a whole request. One that the proxy broke off is not.
	Complete bool
	// Status and Code are the answer's; Code is empty unless the proxy refused.
	Status int
	Code   string
	// Swapped says where names were swapped, as the receipt has it.
	Swapped []string
}

// Refused reports whether no whole request left.
func (o Outcome) Refused() bool { return !o.Complete }

// API is one declared surface of the corpus: a host with a credential of its own.
type API struct {
	Name    string // "body"
	Surface string // as config.json has it: "body:client_secret"
	Host    string
	Token   string
	Value   string
}

// Mark is part of every credential of the corpus: whatever holds it holds a credential.
const Mark = "51canary"

// Restricted are the methods that no request of the corpus may have.
var Restricted = []string{"DELETE", "PURGE"}

// surfaces are what the corpus declares, by API.
var surfaces = map[string]string{
	"body": "body:client_secret", "deep": "body:auth.token", "query": "query:key", "path": "path",
	"key": "header:X-Api-Key", "header": "header", "loose": "body",
}

// values are a credential as they mostly are, and one of all that has a meaning somewhere.
var values = map[string]string{
	"plain": "sk_live_" + Mark + "0123456789",
	"sharp": Mark + `"\'&=+%41;<b>{}[]/*?#,:|*/ --~$` + "`!@()0",
}

// APIs are the corpus's surfaces, each with either value.
func APIs() []API {
	var out []API
	for name, surface := range surfaces {
		for how, value := range values {
			out = append(out, API{
				Name: name, Surface: surface, Host: name + "-" + how + ".readings.test",
				Token: strings.ToUpper(name + "_" + how + "_NAME"), Value: value + "_" + name,
			})
		}
	}
	slices.SortFunc(out, func(a, b API) int { return strings.Compare(a.Host, b.Host) })
	return out
}

// Config is the API's config.json.
func (a API) Config() string {
	text, err := json.Marshal(map[string]any{
		"description": "readings", "domains": []string{a.Host}, "ca_file": "ca.pem", "allow_private": []string{"127.0.0.0/8"},
		"restricted_methods": Restricted,
		"credentials":        map[string]any{a.Token: map[string]any{"value": a.Value, "in": []string{a.Surface}}},
	})
	if err != nil {
		panic(err) // strings and lists of them
	}
	return string(text)
}
