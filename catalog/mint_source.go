package catalog

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func fetchKind() mintKind {
	return mintKind{kindFetch, (*configValidator).buildFetch, []mintField{
		{name: "url", required: true, example: `"https://vault.example.com/v1/secret/data/stripe"`},
		{name: "method"}, {name: "headers", form: formTexts, example: `{"X-Vault-Token": "VAULT_TOKEN"}`}, {name: "body"},
		{name: "json"}, {name: "base64", form: formBoolean},
	}}
}

// Fetch is "fetch": one HTTPS request, with other credentials swapped in. Its answer contains the credential.
type Fetch struct {
	URL, Method string
	Headers     map[string]string // values may contain token names of APIs with the URL's host
	Body        string            // may be empty
	Pointer     string            // a JSON pointer (RFC 6901) into the answer; empty means the whole body
	Base64      bool              // the text at Pointer is base64
	TTL         Seconds
	// Uses are the token names in Headers.
	Uses []string
}

// Kind implements Mint.
func (*Fetch) Kind() string { return kindFetch }

// Secrets implements Mint.
func (*Fetch) Secrets() []secret.Value { return nil }

func (f *Fetch) mintAddress() string { return f.URL }

func (f *Fetch) addIdentity(id *mintIdentity) {
	id.addField("request", f.Method, f.URL, f.Body, f.Pointer, strconv.FormatBool(f.Base64))
	id.addTable("headers", f.Headers)
}

// Command is "command": a program whose output is the credential. A feeder outside the proxy runs it.
type Command struct {
	Args []string
	TTL  Seconds
}

// Kind implements Mint.
func (*Command) Kind() string { return kindCommand }

// Secrets implements Mint.
func (*Command) Secrets() []secret.Value { return nil }

func (*Command) mintAddress() string { return "" }

func (c *Command) addIdentity(id *mintIdentity) {
	id.addField("args", c.Args...)
}

// File is "file" with "ttl": a file that is read again and again, because another program rewrites it.
type File struct {
	// Path is absolute, or relative to the API's folder. See Read.
	Path, API string
	Pointer   string // as Fetch.Pointer
	TTL       Seconds
}

// Kind implements Mint.
func (*File) Kind() string { return kindFile }

// Secrets implements Mint.
func (*File) Secrets() []secret.Value { return nil }

func (*File) mintAddress() string { return "" }

func (f *File) addIdentity(id *mintIdentity) {
	id.addField("file", f.Path, f.Pointer)
}

// readTTL returns the life of a source's value.
func (v *configValidator) readTTL(raw rawCredential) Seconds {
	ttl := defaultTTL
	if raw.ttl != nil {
		ttl = *raw.ttl
	}
	if raw.ttl != nil && ttl < minTTL {
		v.AddError(raw.fieldPath()+".ttl", "less than ten seconds", `at least 10, e.g. "5m"`)
	}
	return Seconds(ttl / time.Second)
}

func (v *configValidator) buildFetch(path string, m *rawMint) Mint {
	f := &Fetch{URL: m.text["url"], Method: v.readOption(path, "method", m, []string{"GET", "POST"}),
		Headers: map[string]string{},
		Body:    m.text["body"], Pointer: m.text["json"], Base64: m.boolean["base64"], TTL: m.ttl}
	if m.has["url"] {
		v.parseURL(path+".url", f.URL, `"https://vault.example.com/v1/secret/data/stripe"`)
	}
	if f.Method == "" {
		f.Method = "GET"
		if m.has["body"] && !m.has["method"] {
			f.Method = "POST"
		}
	}
	if f.Method == "GET" && f.Body != "" {
		v.AddError(path+".body", "a body for a GET", `"method": "POST", or no body`)
	}
	if jsonpointer.Check(f.Pointer) != nil {
		v.AddError(path+".json", "not a JSON pointer", `one like "/data/data/key"`)
	}
	for _, name := range slices.Sorted(maps.Keys(m.texts["headers"])) {
		value := m.texts["headers"][name]
		field := strictjson.FieldLabel(path+".headers.", name, isPlainKey(name))
		uses := tokenNames(value)
		switch {
		case !isToken(name) || len(name) > maxField || !httpguts.ValidHeaderFieldValue(value):
			v.AddError(field, "not a header", `a header, e.g. "X-Vault-Token": "VAULT_TOKEN"`)
		case slices.Contains([]string{"host", "connection", "transfer-encoding", "content-length", "upgrade", "te", "trailer",
			"accept-encoding", "range"}, FoldHeader(name)):
			v.AddError(field, "a header that CodeForge sets", "it left out")
		case isSecretName(name) && len(uses) == 0 && !isHarmless(value):
			v.AddError(field, "a value that is not a token name, under a name that suggests a credential",
				`the credential in the "credentials" of an API with the host, and its token name here`)
		default:
			f.Headers[name] = value
			f.Uses = append(f.Uses, uses...)
		}
	}
	slices.Sort(f.Uses)
	f.Uses = slices.Compact(f.Uses)
	return f
}

// tokenNames returns the words of a text that have the form of a token name.
func tokenNames(text string) []string {
	var out []string
	separator := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	for _, w := range strings.FieldsFunc(text, separator) {
		if ValidTokenName(w) {
			out = append(out, w)
		}
	}
	return out
}

func (v *configValidator) buildCommand(path string, m *rawMint) Mint {
	args := m.list["args"]
	if args != nil && len(args) == 0 {
		v.AddError(path, "an empty list", `a program and its arguments, e.g. ["op", "read", "op://Work/Stripe/key"]`)
	}
	if len(args) > 0 {
		switch name := args[0]; {
		case name == "" || strings.HasPrefix(name, "-"):
			v.AddError(path+"[0]", "not a program", "the name of a program, or its absolute path")
		case len(args) == 1 && strings.Contains(name, " "):
			v.AddError(path+"[0]", "a command line in one text, which no shell reads", "one entry for each argument")
		case strings.Contains(name, "/") && !strings.HasPrefix(name, "/"):
			v.AddError(path+"[0]", "a relative path", "the name of a program, or its absolute path")
		}
	}
	return &Command{Args: args, TTL: m.ttl}
}

// buildWatchedFile checks a file that is read again and again.
func (v *configValidator) buildWatchedFile(raw rawCredential) Mint {
	ttl := v.readTTL(raw)
	if raw.file == nil {
		v.AddError(raw.fieldPath()+".ttl", "a lifetime for a credential that never changes",
			"ttl with fetch, command or file only")
		return nil
	}
	f := &File{Path: *raw.file, API: v.API, TTL: ttl}
	if raw.json != nil {
		f.Pointer = *raw.json
	}
	// Read the file now, so that a mistake shows at the load and not at the first use.
	if text, ok := v.resolveSecret(raw.fieldPath(), raw.secretSource); ok {
		v.parseSecretText(raw.fieldPath(), raw.secretSource, text)
	}
	return f
}

// ReadCredential reads the credential from the file. dir is apis/. The error quotes no text of the file.
func (f *File) ReadCredential(dir string) (secret.Value, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return secret.Value{}, errors.New(describeReadError(err))
	}
	defer root.Close()
	// The same code as for a load, with a budget for one file.
	v := configValidator{root: root, budget: &readBudget{all: maxSecretFile, api: maxSecretFile}}
	v.API = f.API
	text, ok := v.resolveSecret("", secretSource{file: &f.Path, json: &f.Pointer})
	if ok {
		return ParseSourceText(text)
	}
	return secret.Value{}, errors.New(v.Problems[0].Found)
}

// ParseSourceText checks the text of a source by the rules for credentials in config.json. The error does not quote the
// text.
func ParseSourceText(text string) (secret.Value, error) {
	if found, _ := valueProblem(text); found != "" {
		return secret.Value{}, errors.New(found)
	}
	return secret.New(text), nil
}
