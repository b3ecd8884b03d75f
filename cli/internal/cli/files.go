package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// printRunFiles prints the files of a run, and saves them if the user names a folder.
func (o *runsOptions) printRunFiles(ctx context.Context, e *Env, rec operatorapi.Client, ids []string) error {
	d, err := findRun(ctx, rec, ids[0])
	if err != nil {
		return err
	}
	if o.json {
		err = printJSON(e.Stdout, d.Files)
	}
	for _, f := range d.Files {
		if !o.json {
			fmt.Fprintf(e.Stdout, "%10d  %-24s %s\n", f.Size, safetext.OneLine(f.Type), safetext.OneLine(f.Name))
		}
		if o.out == "" || err != nil {
			continue
		}
		var data []byte
		if data, err = rec.FetchRunFile(ctx, d.ID, f.Name); err == nil {
			err = saveRunFile(o.out, f.Name, data)
		}
	}
	return err
}

// saveRunFiles saves the files that a result links to in a folder.
func saveRunFiles(ctx context.Context, e *Env, s *mcpclient.Session, r mcpclient.Result, dir string) error {
	for _, f := range r.Files {
		data, err := s.FetchRunFile(ctx, f)
		if err == nil {
			err = saveRunFile(dir, f.Name, data)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stderr, "saved %s, %d bytes\n", filepath.Join(dir, f.Name), len(data))
	}
	return nil
}

// saveRunFile creates the folder and writes a run's file to it. Code chose the name. It never replaces an existing
// file.
func saveRunFile(dir, name string, data []byte) error {
	//defence:saved-names
	if !sandboxapi.IsFileName(name) || !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not a name for a file", name)
	}
	if err := atomicfile.Create(filepath.Join(dir, name), data, 0o644); err != nil {
		return fmt.Errorf("saving a file of the run: %w", err)
	}
	return nil
}
