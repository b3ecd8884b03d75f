package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

func skillsCommand(e *Env) *cobra.Command {
	c := groupCommand("skills", "list, show, delete or export the skills that models saved")
	t := targetFlags(c.PersistentFlags())
	connected := func(run func(context.Context, *mcpclient.Session, []string) error) func(*cobra.Command, []string) error {
		return useConnection(e, t.openSession, run)
	}
	list := &cobra.Command{
		Use: "list", Short: "list the skills of the running CodeForge",
	}
	asJSON := jsonFlag(list.Flags())
	list.RunE = connected(func(ctx context.Context, s *mcpclient.Session, _ []string) error {
		return skillsList(ctx, e, s, *asJSON)
	})
	show := &cobra.Command{
		Use: "show NAME", Short: "print the source of a skill, in TypeScript or Python",
		Args: cobra.ExactArgs(1),
		RunE: connected(func(ctx context.Context, s *mcpclient.Session, names []string) error {
			text, err := s.ReadSource(ctx, names[0])
			if err == nil {
				_, err = io.WriteString(e.Stdout, text)
			}
			return err
		}),
	}
	remove := &cobra.Command{
		Use: "rm NAME...", Short: "delete skills, once you confirm",
		Args: cobra.MinimumNArgs(1),
	}
	yes := remove.Flags().Bool("yes", false, "delete without confirmation")
	remove.RunE = func(c *cobra.Command, names []string) error {
		if !*yes {
			if err := confirmRemoval(c.Context(), e, "Delete "+strings.Join(names, ", ")+"?"); err != nil {
				return err
			}
		}
		return connected(func(ctx context.Context, s *mcpclient.Session, names []string) error {
			return skillsRemove(ctx, e, s, names)
		})(c, names)
	}
	export := &cobra.Command{
		Use: "export DIR", Short: "copy every skill to a file in DIR",
		Args: cobra.ExactArgs(1),
	}
	force := export.Flags().Bool("force", false, "overwrite existing files")
	export.RunE = connected(func(ctx context.Context, s *mcpclient.Session, args []string) error {
		return skillsExport(ctx, e, s, args[0], *force)
	})
	c.AddCommand(list, show, remove, export)
	return c
}

func skillsList(ctx context.Context, e *Env, s *mcpclient.Session, asJSON bool) error {
	all, err := s.ListSkills(ctx)
	if err != nil {
		return err
	}
	return printList(e, asJSON, append([]mcpclient.Skill{}, all...), "There are no skills yet.", func(k mcpclient.Skill) {
		fmt.Fprintf(e.Stdout, "%-24s %s\n", safetext.OneLine(k.Name), safetext.OneLine(k.Description))
	})
}

func skillsRemove(ctx context.Context, e *Env, s *mcpclient.Session, names []string) error {
	var errs []error
	for _, n := range names {
		err := s.DeleteSkill(ctx, n)
		if err == nil {
			fmt.Fprintf(e.Stdout, "deleted %s\n", safetext.OneLine(n))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// skillsExport copies every skill to a folder. It writes through an os.Root, because a model chose the names.
func skillsExport(ctx context.Context, e *Env, s *mcpclient.Session, dir string, force bool) error {
	all, err := s.ListSkills(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user's folder
		return err
	}
	// The server chooses the names of skills, and such a name must not lead out of the folder.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	var errs []error
	for _, k := range all {
		text, err := s.ReadSource(ctx, k.Name)
		if err == nil {
			err = writeIn(root, k.FileName(), text, flags)
		}
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s already exists in %s: --force overwrites it", k.FileName(), dir)
		}
		if err == nil {
			fmt.Fprintf(e.Stdout, "wrote %s\n", safetext.OneLine(k.FileName()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func writeIn(root *os.Root, name, text string, flags int) error {
	f, err := root.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
