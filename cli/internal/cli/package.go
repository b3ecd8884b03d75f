package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpconfig"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// packageOptions are the flags of codeforge package.
type packageOptions struct {
	apis   string
	json   bool
	target serverTarget
}

func packageCommand(e *Env) *cobra.Command {
	c := groupCommand("package", "pin packages of npm and PyPI that code may import")
	flags := c.PersistentFlags()
	o := &packageOptions{target: targetFlags(flags)}
	flags.StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
	list := &cobra.Command{
		Use: "list", Short: "list the packages, and those that are installed",
		RunE: func(c *cobra.Command, _ []string) error { return o.list(c.Context(), e) },
	}
	list.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.AddCommand(&cobra.Command{
		Use: "add npm:NAME[@VERSION]|pypi:NAME[@VERSION]...", Short: "pin packages; without a version, the newest",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, pins []string) error { return o.add(c.Context(), e, pins) },
	}, list, &cobra.Command{
		Use: "rm npm:NAME|pypi:NAME...", Short: "remove packages from the list",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error { return o.remove(c.Context(), e, names) },
	})
	return c
}

// add pins packages. It resolves a missing version, and for npm a tag or a range, and writes an exact version.
func (o *packageOptions) add(ctx context.Context, e *Env, pins []string) error {
	sources, err := apidir.ReadPackages(o.apis)
	if err != nil {
		return err
	}
	npm := sync.OnceValues(func() (mcpconfig.Registry, error) { return findNPMRegistry(ctx, e, &sources) })
	for i, pin := range pins {
		kind, name, _ := strings.Cut(pin, ":")
		name, version := catalog.SplitPin(name)
		switch {
		case kind == "npm" && name != "":
			registry, err := npm()
			if err != nil {
				return err
			}
			if version, err = registry.ResolveVersion(ctx, name, version); err != nil {
				return err
			}
		case kind == "pypi" && name != "":
			if version, err = resolvePyPI(ctx, e, &sources, name, version); err != nil {
				return err
			}
		default:
			return usageError("package add: %s: want npm:NAME or pypi:NAME, with @VERSION or without", safetext.OneLine(pin))
		}
		pins[i] = kind + ":" + name + "@" + version
	}
	err = apidir.ChangePackages(o.apis, sources, func(now []string) ([]string, error) {
		for _, pin := range pins {
			now = append(dropPackage(now, pin), pin)
		}
		return now, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "Pinned %s.\n", safetext.OneLine(strings.Join(pins, ", ")))
	return o.awaitInstall(ctx, e)
}

// findNPMRegistry returns the npm registry. It adds the registry of npm's configuration to sources. That of
// PACKAGE_REGISTRY needs no second place.
func findNPMRegistry(ctx context.Context, e *Env, sources *catalog.Packages) (mcpconfig.Registry, error) {
	w, err := readVariables(e)
	if err != nil {
		return "", err
	}
	if set := w.getenv("PACKAGE_REGISTRY"); set != "" {
		return mcpconfig.Registry(set), nil
	}
	registry, err := mcpconfig.FromNPM(ctx, e.Environ)
	if err != nil {
		return "", fmt.Errorf("%w; set PACKAGE_REGISTRY in .env", err)
	}
	sources.Registry = string(registry)
	return registry, nil
}

// resolvePyPI returns the version of a package of PyPI, or the newest if version is empty. It adds the index, and the
// hosts of the package's files, to sources.
func resolvePyPI(ctx context.Context, e *Env, sources *catalog.Packages, name, version string) (string, error) {
	index := mcpconfig.Index{URL: sources.Index}
	if index.URL == "" {
		var err error
		if index, err = findUserIndex(ctx, e); err != nil {
			return "", err
		}
	}
	hosts, newest, err := index.ListPackage(ctx, name)
	switch {
	case err != nil:
		return "", err
	case version == "" && newest == "":
		return "", fmt.Errorf("the package index has no wheel of %s", safetext.OneLine(name))
	}
	sources.Index, sources.IndexHosts = index.URL, append(sources.IndexHosts, hosts...)
	return cmp.Or(version, newest), nil
}

func dropPackage(pins []string, pin string) []string {
	name := catalog.PackageName(pin)
	return slices.DeleteFunc(slices.Clone(pins), func(p string) bool { return catalog.PackageName(p) == name })
}

func (o *packageOptions) remove(ctx context.Context, e *Env, names []string) error {
	err := apidir.ChangePackages(o.apis, catalog.Packages{}, func(now []string) ([]string, error) {
		for _, name := range names {
			left := dropPackage(now, name)
			if len(left) == len(now) {
				return nil, fmt.Errorf("%s is not pinned; codeforge package list shows the packages", safetext.OneLine(name))
			}
			now = left
		}
		return now, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "Removed %s.\n", safetext.OneLine(strings.Join(names, ", ")))
	return o.awaitInstall(ctx, e)
}

// listedPackage is one line of codeforge package list.
type listedPackage struct {
	Package   string `json:"package"`
	Installed bool   `json:"installed"`
}

func (o *packageOptions) list(ctx context.Context, e *Env) error {
	p, err := apidir.ReadPackages(o.apis)
	if err != nil {
		return err
	}
	state := operatorapi.Packages{}
	if op, ok := o.connect(ctx, e); ok {
		if state, err = op.Packages(ctx); err != nil {
			return err
		}
	}
	out := convert.Each(p.Pins, func(pin string) listedPackage {
		return listedPackage{pin, slices.Contains(state.Installed, pin)}
	})
	// After a change of the file, the problem may be that of the earlier list.
	if state.Problem != "" && slices.Equal(state.Wanted, p.Pins) {
		fmt.Fprintf(e.Stderr, "warning: the packages could not be installed: %s\n", safetext.OneLine(state.Problem))
	}
	const empty = "No package is pinned: codeforge package add npm:NAME or pypi:NAME pins one."
	return printList(e, o.json, out, empty, func(l listedPackage) {
		word := "not installed"
		if l.Installed {
			word = "installed"
		}
		fmt.Fprintf(e.Stdout, "%-40s %s\n", safetext.OneLine(l.Package), word)
	})
}

// connect returns the operator's client of the running CodeForge, if one runs with this folder of APIs.
func (o *packageOptions) connect(ctx context.Context, e *Env) (op operatorapi.Client, ok bool) {
	if o.target.hasFlag("apis") {
		return op, false
	}
	c, err := o.target.newConfig(e)
	if err != nil {
		return op, false
	}
	op, _, local, err := mcpclient.ConnectOperator(ctx, c)
	return op, err == nil && local
}

// installWithin bounds the wait for an installation.
const installWithin = 5 * time.Minute

// awaitInstall waits until the running CodeForge has the packages of the file, and prints the outcome.
func (o *packageOptions) awaitInstall(ctx context.Context, e *Env) error {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	op, ok := o.connect(ctx, e)
	if !ok {
		_, err := fmt.Fprintln(e.Stdout, "CodeForge is not running, and will install the packages when it is.")
		return err
	}
	p, err := apidir.ReadPackages(o.apis)
	if err != nil {
		return err
	}
	for loading := time.Now().Add(loadedWithin); ; {
		state, err := op.Packages(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("waiting for the installation: %w", err)
		case slices.Equal(state.Installed, p.Pins):
			_, err := fmt.Fprintln(e.Stdout, "Code can import the packages of the list now.")
			return err
		case slices.Equal(state.Wanted, p.Pins) && state.Problem != "":
			return errors.New("the packages could not be installed: " + safetext.OneLine(state.Problem))
		case !slices.Equal(state.Wanted, p.Pins) && time.Now().After(loading):
			return errors.New("the running CodeForge has not loaded the list yet: codeforge check lists mistakes")
		}
		if !timing.WaitFor(ctx, 100*time.Millisecond) {
			return errors.New("the installation goes on: codeforge package list shows when it is done")
		}
	}
}
