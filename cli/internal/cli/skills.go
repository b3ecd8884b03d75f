package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/server"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

func skillsCommand() command {
	return command{
		name: "skills", usage: "skills list|show|rm|export [NAME...]",
		summary: "list, show, delete or export the skills that models saved",
		details: `
  skills list              lists the skills of the running CodeForge
  skills show NAME         prints the source of a skill, in TypeScript or Python
  skills rm NAME...        deletes skills, once you confirm
  skills export DIR        copies every skill to a file in DIR; existing files are kept unless --force is given

Models write skills: read one before you run it elsewhere.

Exit codes: 0 done; 1 there is no such skill, or no server; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) action {
			t, asJSON, force := targetFlags(fs), jsonFlag(fs), fs.Bool("force", false, "export: overwrite existing files")
			yes := fs.Bool("yes", false, "rm: delete without confirmation")
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) == 0 {
					return usageError("skills: list, show, rm or export?")
				}
				verb, names := args[0], args[1:]
				if err := skillsUsage(verb, names); err != nil {
					return err
				}
				if verb == "rm" && !*yes {
					if err := confirm(ctx, e, "Delete "+strings.Join(names, ", ")+"?"); err != nil {
						return err
					}
				}
				s, err := t.connect(ctx, e)
				if err != nil {
					return err
				}
				defer s.Close()
				switch verb {
				case "list":
					return skillsList(ctx, e, s, *asJSON)
				case "show":
					text, err := s.Source(ctx, names[0])
					if err == nil {
						_, err = io.WriteString(e.Stdout, text)
					}
					return err
				case "rm":
					return skillsRemove(ctx, e, s, names)
				}
				return skillsExport(ctx, e, s, names[0], *force)
			}
		},
	}
}

func skillsUsage(verb string, names []string) error {
	switch {
	case verb == "list" && len(names) == 0, verb == "rm" && len(names) > 0:
		return nil
	case (verb == "show" || verb == "export") && len(names) == 1:
		return nil
	}
	got := strings.Join(append([]string{verb}, names...), " ")
	return usageError("skills %s: want list, show NAME, rm NAME... or export DIR", got)
}

func skillsList(ctx context.Context, e *Env, s *server.Session, asJSON bool) error {
	all, err := s.Skills(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		if all == nil {
			all = []server.Skill{}
		}
		return printJSON(e.Stdout, all)
	}
	for _, k := range all {
		fmt.Fprintf(e.Stdout, "%-24s %s\n", visible.Line(k.Name), visible.Line(k.Description))
	}
	if len(all) == 0 {
		fmt.Fprintln(e.Stdout, "There are no skills yet.")
	}
	return nil
}

func skillsRemove(ctx context.Context, e *Env, s *server.Session, names []string) error {
	var errs []error
	for _, n := range names {
		err := s.DeleteSkill(ctx, n)
		if err == nil {
			fmt.Fprintf(e.Stdout, "deleted %s\n", visible.Line(n))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// skillsExport writes below an os.Root: a skill's name comes from outside.
func skillsExport(ctx context.Context, e *Env, s *server.Session, dir string, force bool) error {
	all, err := s.Skills(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user's folder
		return err
	}
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
		text, err := s.Source(ctx, k.Name)
		if err == nil {
			err = writeIn(root, k.File(), text, flags)
		}
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s already exists in %s: --force overwrites it", k.File(), dir)
		}
		if err == nil {
			fmt.Fprintf(e.Stdout, "wrote %s\n", visible.Line(k.File()))
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
