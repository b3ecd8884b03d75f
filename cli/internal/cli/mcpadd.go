package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpconfig"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// addServer writes a server from the command line.
func (o *mcpOptions) addServer(ctx context.Context, e *Env, name string, command []string) error {
	if err := apidir.CheckFree(o.apis, name); err != nil {
		return err
	}
	s, err := o.parseServer(name, command)
	if err != nil {
		return err
	}
	drafter := o.newDrafter(ctx, e)
	drafter.TakenAPI = func(string) bool { return false } // the user has chosen the name
	d := drafter.DraftServer(ctx, s)
	if d.Refused != "" {
		printEach(e.Stderr, "note: ", d.Notes)
		return fmt.Errorf("%s: %s", name, safetext.OneLine(d.Refused))
	}
	d.Entry.Name, d.Entry.Inactive = name, false
	if o.description != "" {
		d.Entry.Description = o.description
	}
	for _, host := range o.domains {
		if !slices.Contains(d.Entry.Domains, host) {
			d.Entry.Domains = append(d.Entry.Domains, host)
		}
	}
	// Check before asking for keys, so that no key is typed in vain.
	if err := apidir.CheckEntry(o.apis, d.Entry); err != nil {
		return err
	}
	printEach(e.Stderr, "note: ", d.Notes)
	if err := o.askCredentials(ctx, e, &d); err != nil {
		return err
	}
	path, warnings, err := apidir.AddAPI(o.apis, d.Entry)
	if err != nil {
		return err
	}
	printEach(e.Stderr, "warning: ", convert.Each(warnings, catalog.Problem.String))
	state := o.waitForLoad(ctx, e, name, true)
	if o.json {
		return printJSON(e.Stdout, map[string]any{"name": name, "file": path, "server": d.Entry.Server,
			"notes": listNotes(d)})
	}
	next := "test " + name + " tries it"
	if o.oauth {
		next = "login " + name + " logs in"
	}
	_, err = fmt.Fprintf(e.Stdout, "Wrote %s (mode 0600). %s; codeforge mcp %s.\n", safetext.OneLine(path), state, next)
	return err
}

// listNotes returns a draft's notes, never nil.
func listNotes(d mcpconfig.Draft) []string { return append([]string{}, d.Notes...) }

func (o *mcpOptions) parseServer(name string, command []string) (mcpconfig.Server, error) {
	s := mcpconfig.Server{
		Name: name, URL: o.url, Env: map[string]string{}, Headers: map[string]string{}, Inputs: map[string]bool{},
	}
	address := func(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") }
	if len(command) == 1 && o.url == "" && address(command[0]) {
		s.URL, command = command[0], nil
	}
	switch {
	case s.URL != "" && len(command) > 0:
		return s, usageError("mcp add: a command and an address; want one of them")
	case s.URL == "" && len(command) == 0:
		return s, usageError("mcp add: %s has no command; want -- and the command that starts it, or --url", name)
	case s.URL != "" && len(o.env) > 0:
		return s, usageError("mcp add: --env is for a server that is started here; want --header")
	case s.URL == "" && len(o.headers) > 0:
		return s, usageError("mcp add: --header is for a remote server; want --env")
	}
	for _, line := range o.headers {
		if name, _, _ := strings.Cut(line, ":"); o.oauth && strings.EqualFold(strings.TrimSpace(name), "Authorization") {
			return s, usageError("mcp add: --oauth gets the token of Authorization; want one of them")
		}
	}
	if o.oauth && s.URL == "" {
		return s, usageError("mcp add: --oauth is for a remote server; want --url")
	}
	s.Command, s.Login = command, o.oauth
	for _, pair := range o.env {
		key, value, given := strings.Cut(pair, "=")
		if key == "" {
			return s, usageError("mcp add: --env: want KEY=VALUE")
		}
		if !given {
			value = "${input:" + key + "}"
			s.Inputs[key] = true
		}
		s.Env[key] = value
	}
	for _, line := range o.headers {
		key, value, given := strings.Cut(line, ":")
		if !given || strings.TrimSpace(key) == "" {
			return s, usageError("mcp add: --header: want 'KEY: VALUE'")
		}
		s.Headers[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return s, nil
}

// askCredentials asks for the credentials that the command line lacks.
func (o *mcpOptions) askCredentials(ctx context.Context, e *Env, d *mcpconfig.Draft) error {
	in := newPrompter(e)
	for i := range d.Entry.Credentials {
		c := &d.Entry.Credentials[i]
		if !mcpconfig.NeedsTyping(*c) {
			continue
		}
		value, err := in.askSecret(ctx, fmt.Sprintf("Credential for %s, which the server gets as %s (not shown): ",
			safetext.OneLine(c.Name), safetext.OneLine(d.Where[c.Name])))
		if err != nil {
			return err
		}
		// A pasted header value begins with "Bearer", which the entry already has.
		c.Value = secret.New(strings.TrimPrefix(value.Reveal(), "Bearer "))
	}
	return nil
}

// findOwnUV returns uv for the folder of codeforge, or "" if another user could have planted it.
func findOwnUV(e *Env, bin string) string {
	if findForeignFile(e, filepath.Dir(bin), ".tools") != "" || findForeignFile(e, bin, "uv") != "" {
		return ""
	}
	return embedded.FindUV(bin)
}

// newDrafter returns a drafter for this folder of APIs.
func (o *mcpOptions) newDrafter(ctx context.Context, e *Env) *mcpconfig.Drafter {
	_, cat := inspectConfig(e, o.apis)
	npm := sync.OnceValue(func() mcpconfig.Registry {
		registry, _ := mcpconfig.FromNPM(ctx, e.Environ) // without npm there is no registry
		return registry
	})
	d := &mcpconfig.Drafter{
		Examples: mcpconfig.ListExamples(o.apis), Lookup: e.lookupVariable,
		TakenAPI: func(name string) bool { return apidir.CheckFree(o.apis, name) != nil },
		TakenToken: func(token string) bool {
			return slices.ContainsFunc(cat.APIs(), func(a *catalog.API) bool {
				return slices.ContainsFunc(a.Credentials, func(c catalog.Credential) bool { return c.Name == token })
			})
		},
		Registry: npm,
	}
	registry := npm
	if w, err := readVariables(e); err == nil && w.getenv("PACKAGE_REGISTRY") != "" {
		d.Registry = nil
		registry = func() mcpconfig.Registry { return mcpconfig.Registry(w.getenv("PACKAGE_REGISTRY")) }
	}
	d.Index = sync.OnceValue(func() mcpconfig.Index {
		index, _ := findUserIndex(ctx, e) // empty after an error: DraftServer reports it
		return index
	})
	d.Version = func(ctx context.Context, pkg, wanted string) (string, error) {
		return registry().ResolveVersion(ctx, pkg, wanted)
	}
	return d
}

// findUserIndex returns the package index that the user's pip or uv uses.
func findUserIndex(ctx context.Context, e *Env) (mcpconfig.Index, error) {
	self, _ := os.Executable()
	address, err := mcpconfig.FindIndex(ctx, e.Environ, findOwnUV(e, filepath.Dir(self)))
	return mcpconfig.Index{URL: address}, err
}
