package typed

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// exampleList is the file with the names of the documents of the examples, without ".json".
const exampleList = "e2e/typed/testdata/examples.txt"

func exampleDir(root string) string { return filepath.Join(root, ".tools", "openapi-examples") }

// example are the documents of an example in apis/.
type example struct {
	documents []string
	// args are arguments of codeforge api add.
	args []string
	// unknown are domains, and paths of rules, that the documents lack.
	unknown []string
	// closed are paths that no rule permits to read.
	closed []string
	// canWriteByGET is set if operations with GET change data.
	canWriteByGET bool
}

// described are the examples of which the directory has a document. Its documents of GitLab and HubSpot describe
// another version of the API.
var described = map[string]example{
	"github":           {documents: []string{"github.com/api.github.com"}},
	"gmail":            {documents: []string{"googleapis.com/gmail"}},
	"google-workspace": {documents: []string{"googleapis.com/calendar", "googleapis.com/drive", "googleapis.com/sheets"}},
	"jira":             {documents: []string{"atlassian.com/jira"}, args: []string{"--scheme", "basicAuth"}},
	"microsoft-graph":  {documents: []string{"microsoft.com/graph"}},
	"notion-rest":      {documents: []string{"notion.com"}, unknown: []string{"/v1/search", "/v1/data_sources/*/query"}},
	"openai":           {documents: []string{"openai.com"}},
	"slack": {
		documents: []string{"slack.com"}, // it lacks the host of files
		unknown:   []string{"files.slack.com", "/files-pri/**", "/upload/v1/**"}, canWriteByGET: true,
	},
	"stripe": {documents: []string{"stripe.com"}},
	"twilio": {documents: []string{"twilio.com/api"}, closed: []string{"/healthcheck"}},
	"vercel": {documents: []string{"vercel.com"}},
}

// documented is an operation of a document with its host and its path, which has a value for each parameter.
type documented struct {
	operation.Line
	host, path string
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// TestExamples compares the examples with the documents of their APIs: hosts, places of credentials, methods, and the
// paths and fields of rules.
func TestExamples(t *testing.T) {
	world.RunInOneMode(t, "the catalog decides it")
	root, err := world.Root()
	testkit.Must(t, err)
	apis := loadExamples(t, root)
	for name, x := range described {
		t.Run(name, func(t *testing.T) {
			var operations []documented
			var places []string
			for _, file := range x.documents {
				path := filepath.Join(exampleDir(root), "api", file+".json")
				if _, err := os.Stat(path); err != nil {
					testkit.SkipBecause(t, "the documents could not be fetched from npm")
				}
				d := importedFile(t, name, path, x.args...)
				operations = append(operations, d.listDocumented(t)...)
				for _, a := range d.head.Auth {
					places = append(places, a.Place)
				}
			}
			a := apis.API(name)
			checkHosts(t, a, operations, x.unknown)
			checkPlaces(t, a, places)
			checkMethods(t, a, operations)
			checkRules(t, a, operations, x)
			checkLimits(t, a, operations)
		})
	}
}

// loadExamples loads each example of apis/ as config.json.
func loadExamples(t *testing.T, root string) *catalog.Catalog {
	t.Helper()
	dir := t.TempDir()
	for name := range described {
		text, err := os.ReadFile(filepath.Join(root, "apis", name, "config.json.example"))
		testkit.Must(t, err)
		testkit.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name, "config.json"), text, 0o600))
	}
	apis, problems := catalog.Load(dir, catalog.Options{})
	if len(problems.Errors()) > 0 {
		t.Fatal(problems.Errors())
	}
	return apis
}

// listDocumented lists the operations of a document.
func (d document) listDocumented(t *testing.T) []documented {
	t.Helper()
	var out []documented
	for _, l := range d.operations {
		server := d.head.Server
		if l.Server != "" {
			server = l.Server
		}
		u, err := url.Parse(server)
		testkit.Must(t, err)
		out = append(out, documented{Line: l, host: u.Host, path: parameter.ReplaceAllString(strings.TrimSuffix(u.Path, "/")+l.Path, "x1")})
	}
	return out
}

// checkHosts compares hosts. Documents and examples invent different names of a customer's host.
func checkHosts(t *testing.T, a *catalog.API, operations []documented, unknown []string) {
	t.Helper()
	general := func(host string) string {
		if first, rest, _ := strings.Cut(host, "."); strings.HasPrefix(first, "your-") || strings.HasPrefix(first, "my-") {
			return "*." + rest
		}
		return host
	}
	var have []string
	for _, o := range operations {
		if host := general(o.host); !slices.Contains(have, host) {
			have = append(have, host)
		}
	}
	for _, h := range a.Hosts {
		if slices.Contains(have, general(h.String())) == slices.Contains(unknown, h.String()) {
			t.Errorf("domains: %s; the document has %q", h, have)
		}
	}
}

// checkPlaces checks that a credential may be in each place of the document.
func checkPlaces(t *testing.T, a *catalog.API, places []string) {
	t.Helper()
	for _, place := range places {
		want, err := catalog.ParseSurface(place)
		testkit.Must(t, err)
		if !slices.ContainsFunc(a.Credentials, func(c catalog.Credential) bool {
			return slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
				return s == want || s.Kind == want.Kind && s.Field == ""
			})
		}) {
			t.Errorf("credentials: none is in %s", place)
		}
	}
}

// checkMethods checks that the document has operations of each method of the example.
func checkMethods(t *testing.T, a *catalog.API, operations []documented) {
	t.Helper()
	for _, m := range slices.Concat(a.Methods.Allowed, a.Methods.Restricted) {
		if m != http.MethodHead && !slices.ContainsFunc(operations, func(o documented) bool { return o.Method == m }) {
			t.Errorf("no operation has the method %s", m)
		}
	}
}

// checkRules checks that each rule matches an operation with its fields, that reads pass and that removals do not.
func checkRules(t *testing.T, a *catalog.API, operations []documented, x example) {
	t.Helper()
	if a.Rules == nil {
		return
	}
	for _, r := range a.Rules {
		request := r
		request.Body, request.GraphQL = nil, ""
		matched, fields := 0, len(r.Body) == 0
		for _, o := range operations {
			if rule, err := catalog.FindRule([]catalog.Rule{request}, o.Method, o.path, nil); err != nil || rule == nil {
				continue
			}
			matched++
			fields = fields || hasFields(o, r)
		}
		if (matched == 0 || !fields) != slices.Contains(x.unknown, r.Path) {
			t.Errorf("%s: matches %d operations, one with its fields: %v", r, matched, fields)
		}
	}
	for _, o := range operations {
		rule, _ := catalog.FindRule(a.Rules, o.Method, o.path, nil)
		isAllowed := rule != nil && rule.Then == catalog.ActionAllow
		switch {
		case o.Method == http.MethodDelete && rule != nil && rule.Then != catalog.ActionRefuse:
			t.Errorf("%s lets %s %s pass", rule, o.Method, o.path)
		case o.Method == http.MethodGet && !x.canWriteByGET && isAllowed == slices.Contains(x.closed, o.path):
			t.Errorf("%s %s: permitted: %v", o.Method, o.path, isAllowed)
		}
	}
}

// hasFields reports whether the body of an operation has the fields of a rule.
func hasFields(o documented, r catalog.Rule) bool {
	for _, f := range r.Body {
		name, _, _ := strings.Cut(f.Field, ".")
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\??:`).MatchString(o.Body) {
			return false
		}
	}
	return true
}

// checkLimits checks that the document has a write with the field of a limit on a sum.
func checkLimits(t *testing.T, a *catalog.API, operations []documented) {
	t.Helper()
	if a.Limits == nil || a.Limits.Sum == nil {
		return
	}
	sum := a.Limits.Sum
	if !slices.ContainsFunc(operations, func(o documented) bool {
		return o.Method == http.MethodPost && o.path == sum.Path && hasFields(o, catalog.Rule{Body: []catalog.FieldRule{{Field: sum.Field}}})
	}) {
		t.Errorf("limits: no operation writes %s at %s", sum.Field, sum.Path)
	}
}
