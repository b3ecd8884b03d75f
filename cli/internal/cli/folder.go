package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/hostfolder"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

func folderCommand(e *Env) *cobra.Command {
	c := groupCommand("folder", "choose folders of this machine that code may see")
	apis := apisFlag(c.PersistentFlags())
	add := &cobra.Command{
		Use: "add NAME PATH", Short: "let code read a folder as /files/NAME",
		Args: cobra.ExactArgs(2),
	}
	write := add.Flags().Bool("write", false, "let code change the folder")
	add.RunE = func(_ *cobra.Command, args []string) error {
		p, err := e.newFolderPlace(*apis)
		if err != nil {
			return err
		}
		f, err := hostfolder.Add(p.file, hostfolder.Folder{Name: args[0], Path: args[1], Write: *write}, p.own)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "Code sees %s as /files/%s, %s.\n", safetext.OneLine(f.Path), f.Name, accessText(f))
		warnUnreadable(e, f)
		return p.finish(e)
	}
	list := &cobra.Command{
		Use: "list", Short: "list the folders, and the reasons why code does not see some",
	}
	asJSON := jsonFlag(list.Flags())
	list.RunE = func(*cobra.Command, []string) error {
		p, err := e.newFolderPlace(*apis)
		if err != nil {
			return err
		}
		found, refused := hostfolder.List(p.file, p.own)
		if *asJSON {
			return errors.Join(append(refused, printJSON(e.Stdout, append([]hostfolder.Folder{}, found...)))...)
		}
		for _, f := range found {
			fmt.Fprintf(e.Stdout, "/files/%-16s %-9s %s\n", f.Name, accessText(f), safetext.OneLine(f.Path))
		}
		return errors.Join(refused...)
	}
	remove := &cobra.Command{
		Use: "rm NAME", Short: "hide a folder from code, and keep its files",
		Args: cobra.ExactArgs(1),
	}
	remove.RunE = func(_ *cobra.Command, args []string) error {
		p, err := e.newFolderPlace(*apis)
		if err == nil {
			err = hostfolder.Remove(p.file, args[0])
		}
		if err != nil {
			return err
		}
		return p.finish(e)
	}
	c.AddCommand(add, list, remove)
	return c
}

func accessText(f hostfolder.Folder) string {
	if f.Write {
		return "writable"
	}
	return "read-only"
}

// folderPlace is the place of folders.json, with the paths that no folder may overlap.
type folderPlace struct {
	file string
	own  []string
}

func (e *Env) newFolderPlace(apis string) (folderPlace, error) {
	switch {
	case e.isInContainer():
		return folderPlace{}, errors.New("folders are on the host: run codeforge folder there")
	case runtime.GOOS == "windows":
		return folderPlace{}, errors.New("on Windows, add the volume to docker-compose.override.yml: docs/guides/files.md")
	}
	apis, err := filepath.Abs(apis)
	if err != nil {
		return folderPlace{}, err
	}
	state, err := filepath.Abs(e.inHome(statedir.Default))
	if err != nil {
		return folderPlace{}, err
	}
	vars, err := readVariables(e)
	if err != nil {
		return folderPlace{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return folderPlace{}, err
	}
	own := hostfolder.OwnPaths(vars.getenv, apis, state, filepath.Dir(self))
	return folderPlace{hostfolder.FilePath(apis), own}, nil
}

// finish writes the file for Docker, and prints the next step.
func (p folderPlace) finish(e *Env) error {
	list, err := hostfolder.ReadFile(p.file)
	if err != nil {
		return err
	}
	err = hostfolder.WriteOverride(filepath.Dir(p.file), list)
	if foreign := (*hostfolder.ForeignError)(nil); errors.As(err, &foreign) {
		fmt.Fprintf(e.Stderr, "note: %v", foreign)
		err = nil
	}
	if err == nil {
		fmt.Fprintln(e.Stdout, "Restart CodeForge: make down up")
	}
	return err
}

// warnUnreadable warns if only the owner of a folder can use it. In Docker and under root, code has its own users.
func warnUnreadable(e *Env, f hostfolder.Folder) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return
	}
	want, letter := os.FileMode(0o005), "rX"
	if f.Write {
		want, letter = 0o007, "rwX"
	}
	if info.Mode().Perm()&want != want {
		fmt.Fprintf(e.Stderr, "note: in Docker, and if root starts CodeForge, code is not the owner of the folder. To open "+
			"the folder for code: chmod -R o+%s %q\n", letter, safetext.OneLine(f.Path))
	}
}
