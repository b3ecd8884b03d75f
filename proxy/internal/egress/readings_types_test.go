package egress_test

// The tests of readings compare how the proxy and servers read the same request.
//
// Threat: parser differentials. The proxy swaps a credential into the declared field. A server that reads it as another
// field may publish it. A server that finds a method override where the proxy found none carries out a restricted
// method.
//
// The corpus has requests as hostile code would send them, and the peers are the parsers of real servers. Judge checks
// that no peer sees more than the proxy allowed.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The places in a request, as peers name them.
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

// The kinds of a Reading: the syntax in which a peer read the part.
const (
	KindHead      = "head"
	KindQuery     = "query"
	KindForm      = "form"
	KindMultipart = "multipart"
	KindJSON      = "json"
	// KindUntyped is JSON in a body with another type, for servers that ignore the type.
	KindUntyped = "untyped"
)

// Field is one value that a peer found. Name joins the keys on the way to the value by dots; arrays do not count.
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

// Reading is the result of one reader for a request or a part.
type Reading struct {
	Reader string  `json:"reader"`
	Kind   string  `json:"kind"`
	Method string  `json:"method"`
	Fields []Field `json:"fields"`
	// Error is the reason why the reader rejected the request, or "".
	Error string `json:"error"`
}

// Outcome is the proxy's treatment of a request.
type Outcome struct {
	// Left are the bytes that reached the upstream, or nil.
	Left []byte
	// Complete means that Left is a whole request. A request that the proxy aborted is not complete.
	Complete bool
	// Status and Code belong to the answer. Code is empty unless the proxy refused.
	Status int
	Code   string
	// Swapped lists the places of swaps, in the receipt's words.
	Swapped []string
}

// Refused reports whether no whole request left.
func (o Outcome) Refused() bool { return !o.Complete }

// API is one declared surface of the corpus: a host with its own credential.
type API struct {
	Name    string // "body"
	Surface string // as in config.json: "body:client_secret"
	Host    string
	Token   string
	Value   string
	Free    bool // without restricted methods, so that the proxy reads less of the requests
}

// Mark is part of every credential of the corpus. A text with Mark contains a credential.
const Mark = "51canary"

// Restricted are the methods that no request of the corpus may have.
var Restricted = []string{"DELETE", "PURGE"}

// surfaces are the declared surfaces of the corpus, by API.
var surfaces = map[string]string{
	"body": "body:client_secret", "deep": "body:auth.token", "query": "query:key", "path": "path",
	"key": "header:X-Api-Key", "header": "header", "loose": "body",
}

// values are a typical credential, and one with all characters that have a meaning in some syntax.
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
