package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
)

func downCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "down", Short: "stop the CodeForge that codeforge up started",
	}
	state, asJSON := stateFlag(c.Flags()), jsonFlag(c.Flags())
	purge := c.Flags().Bool("purge", false, "remove the state directory too")
	yes := c.Flags().Bool("yes", false, "remove without confirmation")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if e.isInContainer() {
			return errContainer
		}
		chosen := c.Flags().Changed("state")
		dir, err := findState(e, *state, chosen)
		if err != nil {
			return err
		}
		p := startProgress(e, "stopping")
		stopped, err := embedded.Stop(c.Context(), dir)
		p.stop()
		if err != nil && (!*purge || !errors.Is(err, embedded.ErrUnsupported)) {
			return err
		}
		if err := printStopped(e, dir, stopped, *asJSON); err != nil {
			return err
		}
		if !stopped && !chosen && !*asJSON {
			tellOfDocker(c.Context(), e)
		}
		if !*purge {
			return nil
		}
		out := e.Stdout
		if *asJSON {
			out = e.Stderr
		}
		return purgeState(c.Context(), e, out, dir, *yes)
	}
	return c
}

func printStopped(e *Env, dir statedir.Dir, stopped, asJSON bool) error {
	return printValue(e, asJSON, map[string]any{"stopped": stopped, "state": dir.Path()}, true, func() {
		text := map[bool]string{true: "stopped", false: "was not running"}[stopped]
		fmt.Fprintf(e.Stdout, "CodeForge %s (state directory %s).\n", text, dir.Path())
	})
}

// tellOfDocker prints a hint if CodeForge runs in Docker.
func tellOfDocker(ctx context.Context, e *Env) {
	w, err := readVariables(e)
	if err != nil {
		return
	}
	if name, err := docker.FindContainer(ctx, e.homeDir(), w.getenv("COMPOSE_PROJECT_NAME")); name != "" || err != nil {
		fmt.Fprintln(e.Stdout, "In Docker it runs: docker compose down stops it.")
	}
}

// purgeState lists the content of the state directory, asks, and removes it.
func purgeState(ctx context.Context, e *Env, out io.Writer, dir statedir.Dir, yes bool) error {
	if !dir.Exists() {
		_, err := fmt.Fprintln(out, "There is no state to remove.")
		return err
	}
	// A folder without this file is not a state directory: a mistyped --state must not delete it.
	if _, err := os.Stat(dir.Join("lock")); err != nil {
		return fmt.Errorf("%s is not a CodeForge state directory (it has no file named lock), so it was not removed",
			dir.Path())
	}
	entries, err := os.ReadDir(dir.Path())
	if err != nil {
		return fmt.Errorf("reading the state directory: %w", err)
	}
	fmt.Fprintf(out, "In %s:\n", dir.Path())
	for _, entry := range entries {
		files, size := measureFiles(dir.Join(entry.Name()))
		fmt.Fprintf(out, "  %-14s %5d files %10d bytes\n", entry.Name(), files, size)
	}
	if !yes {
		if err := confirmRemoval(ctx, e, "Remove all of it, skills included?"); err != nil {
			return err
		}
	}
	if err := dir.Remove(); err != nil {
		return fmt.Errorf("removing the state directory: %w", err) // CodeForge may have been started again meanwhile
	}
	_, err = fmt.Fprintln(out, "Removed.")
	return err
}

// measureFiles counts the files below a path and their size. Unreadable files do not count.
func measureFiles(path string) (files int, size int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // see above
		}
		files++
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return files, size
}
