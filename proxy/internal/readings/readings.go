// Package readings compares how the proxy reads a request with how servers read what leaves it.
//
// Threat: parser differentials. A credential is swapped into what the proxy reads as the declared field; a server that
// reads it as another field may publish it, and one that finds a method where the proxy found none does what is
// restricted. The corpus holds requests as hostile code would send them, the peers are the parsers that servers use,
// and Judge checks that no peer sees more than the proxy allowed.
package readings

import (
	"encoding/json"
	"fmt"
	"maps"
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

// Kinds of a Reading: what a peer read the part as.
const (
	KindHead      = "head"
	KindQuery     = "query"
	KindForm      = "form"
	KindMultipart = "multipart"
	KindJSON      = "json"
	// KindUntyped is JSON in a body with another type, for servers that ignore the type.
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

// Reading is how one reader read a request or a part of it.
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
	// Left holds the bytes that reached the upstream; nil if none did.
	Left []byte
	// Complete means that Left is a whole request. One that the proxy aborted is not.
	Complete bool
	// Status and Code are the answer's; Code is empty unless the proxy refused.
	Status int
	Code   string
	// Swapped says where names were swapped, in the receipt's words.
	Swapped []string
}

// Refused reports whether no whole request left.
func (o Outcome) Refused() bool { return !o.Complete }

// API is one declared surface of the corpus: a host with its own credential.
type API struct {
	Name    string // "body"
	Surface string // as config.json has it: "body:client_secret"
	Host    string
	Token   string
	Value   string
	Free    bool // it restricts no methods, so that the proxy reads less of its requests
}

// Mark is part of every credential of the corpus: what contains it contains a credential.
const Mark = "51canary"

// Restricted are the methods that no request of the corpus may have.
var Restricted = []string{"DELETE", "PURGE"}

// surfaces are what the corpus declares, by API.
var surfaces = map[string]string{
	"body": "body:client_secret", "deep": "body:auth.token", "query": "query:key", "path": "path",
	"key": "header:X-Api-Key", "header": "header", "loose": "body",
}

// values are a typical credential, and one of all characters that have a meaning somewhere.
var values = map[string]string{
	"plain": "sk_live_" + Mark + "0123456789",
	"sharp": Mark + `"\'&=+%41;<b>{}[]/*?#,:|*/ --~$` + "`!@()0",
}

// APIs returns the corpus's surfaces, each with either value, and once without restricted methods.
func APIs() []API {
	var out []API
	add := func(name, how, value string, free bool) {
		out = append(out, API{
			Name: name, Surface: surfaces[name], Host: name + "-" + how + ".readings.test",
			Token: strings.ToUpper(name + "_" + how + "_NAME"), Value: value + "_" + name, Free: free,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(surfaces)) {
		for _, how := range slices.Sorted(maps.Keys(values)) {
			add(name, how, values[how], false)
		}
		add(name, "free", values["sharp"]+"f", true)
	}
	return out
}

// Config returns the API's config.json.
func (a API) Config() string {
	config := map[string]any{
		"description": "readings", "domains": []string{a.Host}, "ca_file": "ca.pem", "allow_private": []string{"127.0.0.0/8"},
		"credentials": map[string]any{a.Token: map[string]any{"value": a.Value, "in": []string{a.Surface}}},
	}
	if !a.Free {
		config["restricted_methods"] = Restricted
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // strings and lists of them
	}
	return string(text)
}
