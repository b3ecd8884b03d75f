package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpconfig"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// importResult is the result for one server of the file.
type importResult struct {
	From string `json:"from"`
	// Name is the API's name, or empty if there is no API.
	Name    string   `json:"name,omitempty"`
	File    string   `json:"file,omitempty"`
	Status  string   `json:"status"` // new, there, ours, refused
	Why     string   `json:"why,omitempty"`
	Notes   []string `json:"notes"`
	Tokens  []string `json:"credentials"`
	Untyped []string `json:"untyped"`
	Config  string   `json:"-"`

	draft mcpconfig.Draft
}

// importFile shows the servers of another program's file as APIs, and writes them.
func (o *mcpOptions) importFile(ctx context.Context, e *Env, name string) error {
	path := name
	if client, known := clients.FindClient(name); known {
		var err error
		if path, err = findConfigFile(e, client); err != nil {
			return err
		}
	}
	text, err := clients.ReadConfig(path)
	if err == nil && text == nil {
		err = fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		return err
	}
	servers, err := mcpconfig.ParseConfig(path, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	list, err := o.draftServers(ctx, e, servers)
	if err != nil {
		return err
	}
	fresh := slices.ContainsFunc(list, func(i importResult) bool { return i.Status == "new" })
	if !o.json {
		printImport(e, path, list)
	}
	written, backup := false, ""
	if (fresh || o.clients) && (o.write || !o.json) {
		if err := requireWrite(ctx, e, o.write); err != nil {
			return err
		}
		if backup, err = o.writeImport(ctx, e, path, text, list); err != nil {
			return err
		}
		written = true
	}
	if o.json {
		return printJSON(e.Stdout, map[string]any{"file": path, "servers": list, "written": written, "backup": backup})
	}
	if written {
		printImported(e, path, backup, list)
	}
	return nil
}

func (o *mcpOptions) draftServers(ctx context.Context, e *Env, servers []mcpconfig.Server) ([]importResult, error) {
	_, cat := inspectConfig(e, o.apis)
	c, err := o.target.newConfig(e)
	if err != nil {
		return nil, err
	}
	endpoints := []string{c.Fallback}
	if a, err := readAccess(ctx, e, c); err == nil {
		endpoints = append(endpoints, a.url)
	}
	drafter := o.newDrafter(ctx, e)
	var list []importResult
	for _, s := range servers {
		if len(o.only) > 0 && !slices.Contains(o.only, s.Name) {
			continue
		}
		i := importResult{From: s.Name, Notes: []string{}, Tokens: []string{}, Untyped: []string{}}
		// CodeForge behind CodeForge would call itself.
		if s.IsCodeForge(endpoints) {
			i.Status, i.Why = "ours", "it is CodeForge itself"
			list = append(list, i)
			continue
		}
		o.fillResult(&i, drafter.DraftServer(ctx, s), cat)
		list = append(list, i)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("--only: the file does not have %s", safetext.OneLine(strings.Join(o.only, ", ")))
	}
	return list, nil
}

func (o *mcpOptions) fillResult(i *importResult, d mcpconfig.Draft, cat *catalog.Catalog) {
	i.draft, i.Notes = d, listNotes(d)
	if d.Refused != "" {
		i.Status, i.Why = "refused", d.Refused
		return
	}
	for _, a := range cat.APIs() {
		if isSameServer(a.Server, d.Entry.Server) {
			i.Status, i.Name, i.Why = "there", a.Name, "apis/"+a.Name+" is that server"
			return
		}
	}
	var invalid *apidir.InvalidError
	if err := apidir.CheckEntry(o.apis, d.Entry); errors.As(err, &invalid) {
		i.Status, i.Why = "refused", "as an API it has mistakes: "+strings.ReplaceAll(invalid.Error(), "\n", "; ")
		return
	} else if err != nil {
		i.Status, i.Why = "refused", err.Error()
		return
	}
	i.Status, i.Name = "new", d.Entry.Name
	for _, c := range d.Entry.Credentials {
		i.Tokens = append(i.Tokens, c.Name)
		if mcpconfig.NeedsTyping(c) {
			i.Untyped = append(i.Untyped, c.Name)
		}
	}
	i.Config, _ = d.Entry.ShowConfig(func(c apidir.EntryCredential) string { // Check has just rendered it
		if mcpconfig.NeedsTyping(c) {
			return "(to be typed)"
		}
		return "(from " + d.Where[c.Name] + ")"
	})
}

func isSameServer(have *mcpserver.Settings, drafted *apidir.Server) bool {
	if have == nil {
		return false
	}
	name := func(pkg string) string { return pkg[:max(strings.LastIndex(pkg, "@"), 0)] }
	switch {
	case drafted.URL != "":
		return have.URL == drafted.URL
	case drafted.Package != "":
		return name(have.Package) == name(drafted.Package)
	}
	return slices.Equal(have.Command, drafted.Command)
}

// printImport shows the files to be written, without credentials.
func printImport(e *Env, path string, list []importResult) {
	paint := newPainter(e, e.Stdout)
	fmt.Fprintf(e.Stdout, "%s: %s\n", safetext.OneLine(path), countNoun(len(list), "server"))
	for _, i := range list {
		switch i.Status {
		case "new":
			fmt.Fprintf(e.Stdout, "\n%s becomes apis/%s/config.json\n", safetext.OneLine(i.From), i.Name)
			for line := range strings.Lines(i.Config) {
				fmt.Fprintf(e.Stdout, "  %s\n", paint(terminal.Green, "+"+safetext.OneLine(strings.TrimRight(line, "\n"))))
			}
		case "refused":
			fmt.Fprintf(e.Stdout, "\n%s is left out: %s\n", safetext.OneLine(i.From),
				paint(terminal.Red, safetext.OneLine(i.Why)))
		default:
			fmt.Fprintf(e.Stdout, "\n%s is left out: %s\n", safetext.OneLine(i.From), safetext.OneLine(i.Why))
		}
		printEach(e.Stdout, "  note: ", i.Notes)
	}
	fmt.Fprintln(e.Stdout)
}

// writeImport writes the APIs, then the client's file. It keeps a copy of the client's file in the folder of APIs,
// readable only for its owner, because it can contain credentials.
func (o *mcpOptions) writeImport(
	ctx context.Context, e *Env, path string, text []byte, list []importResult,
) (backup string, err error) {
	var after []byte
	if o.clients { // fail before any file is written
		c, err := o.target.newConfig(e)
		if err != nil {
			return "", err
		}
		a, err := readAccess(ctx, e, c)
		if err != nil {
			return "", err
		}
		var program []string
		access := a.clientAccess(e)
		if access.Token || strings.Contains(filepath.Base(path), "claude_desktop_config") {
			program = access.Command
		}
		if after, err = mcpconfig.KeepOnlyCodeForge(path, text, access.URL, program); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	for n := range list {
		i := &list[n]
		if i.Status != "new" {
			continue
		}
		if i.File, _, err = apidir.AddAPI(o.apis, i.draft.Entry); err != nil {
			return "", err
		}
	}
	if !o.clients {
		return "", nil
	}
	// The copy comes before the change: the file may hold keys that exist nowhere else.
	if backup, err = keepCopy(o.apis, path, text, time.Now()); err != nil {
		return "", err
	}
	_, err = clients.ReplaceConfig(path, text, after, time.Time{})
	return backup, err
}

// keepCopy stores a copy of a file that contains keys.
func keepCopy(apis, path string, text []byte, now time.Time) (string, error) {
	folder := filepath.Join(apis, ".backup")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("keeping a copy: %w", err)
	}
	// MkdirAll does not change the mode of an existing folder.
	if err := os.Chmod(folder, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return "", fmt.Errorf("keeping a copy: %w", err)
	}
	name := strings.TrimLeft(filepath.Base(path), ".") + "." + now.Format("20060102-150405") + ".bak"
	backup := filepath.Join(folder, name)
	if err := atomicfile.Create(backup, text, 0o600); err != nil {
		return "", fmt.Errorf("keeping a copy: %w", err)
	}
	return backup, nil
}

func printImported(e *Env, path, backup string, list []importResult) {
	n := 0
	for _, i := range list {
		if i.Status != "new" {
			continue
		}
		n++
		fmt.Fprintf(e.Stdout, "Wrote %s.\n", safetext.OneLine(i.File))
		for _, token := range i.Untyped {
			fmt.Fprintf(e.Stdout, "  type the credential %s there: codeforge api edit %s\n", token, i.Name)
		}
	}
	if n > 0 {
		fmt.Fprintln(e.Stdout, "They are switched off: read them, then codeforge mcp enable NAME and "+
			"codeforge mcp test NAME.")
	}
	if backup != "" {
		fmt.Fprintf(e.Stdout, "%s now has only CodeForge. The old file, keys included, is %s, which only you "+
			"can read: remove it when everything works.\n", safetext.OneLine(path), safetext.OneLine(backup))
	} else if n > 0 {
		fmt.Fprintf(e.Stdout, "%s still has the keys in plain text: --clients takes them out.\n", safetext.OneLine(path))
	}
}
