package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// checkFinding is one mistake or warning.
type checkFinding = proxyapi.InspectedProblem

func checkCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "look for mistakes in apis/ and .env, without starting CodeForge",
	}
	apis, asJSON := apisFlag(c.Flags()), jsonFlag(c.Flags())
	c.RunE = func(*cobra.Command, []string) error {
		found, cat := inspectConfig(e, *apis)
		return showFindings(e, found, cat, *asJSON)
	}
	return c
}

// inspectConfig reads .env and the APIs, and returns all mistakes and warnings.
func inspectConfig(e *Env, apis string) ([]checkFinding, *catalog.Catalog) {
	var found []checkFinding
	w, err := readVariables(e)
	if err != nil {
		found = append(found, checkFinding{Severity: "error", File: dotenvFile, Text: err.Error()})
		// The checks below still run, with the defaults.
		w.values = map[string]string{}
	}
	var mistakes settings.Error
	if _, err := settings.Parse(w.getenv); errors.As(err, &mistakes) {
		for _, m := range mistakes {
			found = append(found, settingFinding("error", m, "want "+m.Want))
		}
	}
	found = append(found, findMisspelt(e)...)
	if !e.isInContainer() { // a container has other paths
		found = append(found, findMissing(w)...)
	}
	// In a container only the proxy sees the folder.
	if _, err := os.Stat(apis); errors.Is(err, os.ErrNotExist) {
		if e.isInContainer() {
			more, cat := inspectProxy(e)
			return append(append(found, more...), inspectTenants(w, cat)...), cat
		}
		text := fmt.Sprintf("%s: there is no such folder; codeforge init creates it", apis)
		return append(found, checkFinding{Severity: "error", File: apis, Text: text}), nil
	}
	cat, problems := catalog.Load(apis, catalog.Options{Getenv: credentialEnvironment(e, w)})
	return slices.Concat(found, convert.Each(problems, problemFinding), inspectTenants(w, cat)), cat
}

func problemFinding(p catalog.Problem) checkFinding {
	return checkFinding{
		Severity: p.Severity.String(), File: p.File, API: p.API, Field: p.Field, Found: p.Found, Want: p.Want,
		Text: p.String(),
	}
}

// settingFinding returns a mistake in a setting as a finding. Its text ends with advice.
func settingFinding(severity string, m settings.Mistake, advice string) checkFinding {
	return checkFinding{
		Severity: severity, File: dotenvFile, Field: m.Name, Found: m.Found, Want: m.Want,
		Text: fmt.Sprintf("%s: %s: %s; %s", dotenvFile, m.Name, m.Found, advice),
	}
}

// credentialEnvironment returns the function that looks up a credential in the environment. It is nil if CodeForge runs
// in Docker: the proxy there accepts no such credential.
func credentialEnvironment(e *Env, w envVariables) func(string) string {
	if name, _ := docker.FindContainer(context.Background(), e.homeDir(), w.getenv("COMPOSE_PROJECT_NAME")); name != "" {
		return nil
	}
	return w.getenv
}

// inspectTenants reads MCP_TOKENS_FILE. It also compares the tokens with the operator's (MCP_AUTH_TOKEN) and the names
// with the APIs of cat, which may be nil.
func inspectTenants(w envVariables, cat *catalog.Catalog) []checkFinding {
	path := w.getenv("MCP_TOKENS_FILE")
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // the user's own setting
	if err != nil {
		return []checkFinding{{Severity: "error", File: path, Text: "MCP_TOKENS_FILE: " + err.Error()}}
	}
	list, problems := tokenfile.Parse(data, path)
	own := sha256.Sum256([]byte(w.getenv("MCP_AUTH_TOKEN")))
	known := convert.Each(cat.APIs(), func(a *catalog.API) string { return a.Name })
	for _, t := range list {
		at := "tenants." + t.Name
		// A tenant with this token would have the operator's rights.
		if t.HasToken(own) {
			problems = append(problems, catalog.Problem{File: path, Field: at + ".tokens", Found: "the value of MCP_AUTH_TOKEN",
				Want: "another token: that one is the operator's"})
		}
		for _, name := range t.APIs {
			if cat == nil || cat.API(name) != nil {
				continue
			}
			p := catalog.Problem{File: path, Field: at + ".apis", Found: fmt.Sprintf("%q, which is not an API", name),
				Severity: catalog.Warning}
			if near := typo.NearestOf(name, len(name)/2, known); near != "" {
				p.Want = fmt.Sprintf("did you mean %q?", near)
			}
			problems = append(problems, p)
		}
	}
	return convert.Each(problems, problemFinding)
}

// findMisspelt warns of variables in .env that look like misspelt settings.
func findMisspelt(e *Env) []checkFinding {
	file, _ := settings.ReadFile(e.inHome(dotenvFile)) // inspect has reported its errors
	return convert.Each(settings.ListMisspelt(file), func(m settings.Mistake) checkFinding {
		return settingFinding("warning", m, "did you mean "+m.Want+"?")
	})
}

// findMissing reports files and folders that settings name but that do not exist.
func findMissing(w envVariables) []checkFinding {
	var found []checkFinding
	for _, s := range []struct {
		name   string
		folder bool
		want   string
	}{
		{"UPSTREAM_CA_FILE", false, "the path of a PEM file"},
		{"SANDBOX_PROGRAMS", true, "the path of a folder"},
		{"DATABASE_CA_FILE", false, "the path of a PEM file"},
		{"OIDC_CA_FILE", false, "the path of a PEM file"},
		{"OIDC_INTROSPECTION_SECRET_FILE", false, "the path of a file with a secret"},
	} {
		path := w.getenv(s.name)
		if path == "" {
			continue
		}
		what := ""
		switch info, err := os.Stat(path); {
		case errors.Is(err, os.ErrNotExist):
			what = "no such file or folder"
		case err != nil:
			what = "not readable by this user"
		case info.IsDir() && !s.folder:
			what = "a folder"
		case !info.IsDir() && s.folder:
			what = "a file"
		default:
			continue
		}
		found = append(found, checkFinding{
			Severity: "error", File: dotenvFile, Field: s.name, Found: what, Want: s.want,
			Text: fmt.Sprintf("%s: %s: %q: %s; want %s", dotenvFile, s.name, path, what, s.want),
		})
	}
	return found
}

// inspectProxy asks the proxy, the only container that sees apis/, for the loaded APIs and their problems.
func inspectProxy(e *Env) ([]checkFinding, *catalog.Catalog) {
	ctx, cancel := context.WithTimeout(context.Background(), inspectTime)
	defer cancel()
	failed := func(err error) ([]checkFinding, *catalog.Catalog) {
		return []checkFinding{{Severity: "error", File: "apis", Text: err.Error()}}, nil
	}
	c := mcpclient.Config{Socket: operatorapi.ContainerSocket}
	op, _, _, err := mcpclient.ConnectOperator(ctx, c)
	if err != nil {
		return failed(err)
	}
	got, err := op.Inspection(ctx)
	if err != nil {
		return failed(err)
	}
	var apis []*catalog.API
	for _, a := range got.APIs {
		api, err := rebuildAPI(a)
		if err != nil {
			return failed(err)
		}
		apis = append(apis, api)
	}
	return got.Problems, catalog.NewNamesOnly(apis)
}

// inspectTime limits the proxy's time to answer.
const inspectTime = 10 * time.Second

// rebuildAPI returns an API without the values of its credentials.
func rebuildAPI(a proxyapi.InspectedAPI) (*catalog.API, error) {
	out := &catalog.API{
		Name: a.Name, Description: a.Description, Reference: a.Reference, Active: a.Active, AllowHTTP: a.AllowHTTP,
		Methods: catalog.Methods{Restricted: a.RestrictedMethods, Allowed: a.AllowedMethods},
	}
	for _, d := range a.Domains {
		h, err := catalog.ParseHostPattern(d)
		if err != nil {
			return nil, fmt.Errorf("reading the proxy's answer: %w", err)
		}
		out.Hosts = append(out.Hosts, h)
	}
	for _, t := range a.Credentials {
		c := catalog.Credential{Name: t.Name}
		for _, in := range t.In {
			s, err := catalog.ParseSurface(in)
			if err != nil {
				return nil, fmt.Errorf("reading the proxy's answer: %w", err)
			}
			c.Surfaces = append(c.Surfaces, s)
		}
		out.Credentials = append(out.Credentials, c)
	}
	return out, nil
}

func showFindings(e *Env, found []checkFinding, cat *catalog.Catalog, asJSON bool) error {
	ok := !slices.ContainsFunc(found, func(f checkFinding) bool { return f.Severity == "error" })
	return printValue(e, asJSON, map[string]any{"ok": ok, "findings": append([]checkFinding{}, found...)}, ok, func() {
		printFindings(e, found, cat)
	})
}

func printFindings(e *Env, found []checkFinding, cat *catalog.Catalog) {
	p := newPainter(e, e.Stdout)
	errs, broken := 0, map[string]bool{}
	for _, f := range found {
		colour := terminal.Yellow
		if f.Severity == "error" {
			colour = terminal.Red
			errs++
			if f.API != "" && cat.API(f.API) == nil {
				broken[f.API] = true
			}
		}
		fmt.Fprintf(e.Stdout, "%s %s\n", p(colour, f.Severity+":"), safetext.OneLine(f.Text))
	}
	active, inactive := 0, 0
	for _, a := range cat.APIs() {
		if a.Active {
			active++
		} else {
			inactive++
		}
	}
	fmt.Fprintf(e.Stdout, "%s, %d broken, %d inactive, %s, %s.\n", countNoun(active, "active API"), len(broken), inactive,
		countNoun(errs, "mistake"), countNoun(len(found)-errs, "warning"))
}
