// Package scriptbundle combines a script and the files that it imports into one module, because a sandbox gets only
// one.
//
// Threat: a script that a model wrote and that a person runs. The imported files are read from this machine and sent to
// the sandbox. Contract: it reads only modules, that is files named .ts, .mts, .js or .mjs that parse as such. They
// must lie below the script's folder or the working directory, after following links, and an import must name them in
// full. It reads no configuration beside them, and no file that a comment names.
package scriptbundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// relative matches a possible import of a file.
var relative = regexp.MustCompile("['\"`]\\.\\.?/")

// Script is code to send.
type Script struct {
	Code   string
	places *placeMap // nil: the code is unchanged
}

// NewScript makes a Script from the code of a file. Code without relative imports stays unchanged.
func NewScript(path, code string) (Script, error) {
	same := Script{Code: code}
	if !relative.MatchString(code) {
		return same, nil
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return same, fmt.Errorf("finding the script's folder: %w", err)
	}
	r, err := newResolver(dir)
	if err != nil {
		return same, err
	}
	out, err := bundleScript(dir, filepath.Base(path), code, r)
	switch {
	case r.asked == 0: // Deno explains any other mistake better
		return same, nil
	case err != nil:
		return same, err
	case len(out.Code) > sandboxapi.MaxCode:
		return same, fmt.Errorf("the script with what it imports is over %d bytes", sandboxapi.MaxCode)
	}
	return out, nil
}

// RestorePlaces replaces places in the bundled code by places in the original files, in the output of a failed run.
func (s Script) RestorePlaces(text string) string {
	if s.places == nil {
		return text
	}
	return s.places.restorePlaces(text)
}

// maxMistakes bounds the reported mistakes.
const maxMistakes = 10

func bundleScript(dir, name, code string, r *importResolver) (Script, error) {
	result := api.Build(api.BuildOptions{
		Stdin: &api.StdinOptions{Contents: dropSourceMaps(code), ResolveDir: dir, Sourcefile: name,
			Loader: api.LoaderTS},
		Bundle:         true,
		Format:         api.FormatESModule,
		Target:         api.ESNext,
		Platform:       api.PlatformNeutral,
		Charset:        api.CharsetUTF8,
		Sourcemap:      api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude, // a source map may name any file as a source
		AbsWorkingDir:  dir,
		Outfile:        filepath.Join(dir, "main.js"), // not written; paths in the map are relative to it
		TsconfigRaw:    "{}",
		LogLevel:       api.LogLevelSilent,
		Plugins:        []api.Plugin{{Name: "files", Setup: r.registerWith}},
	})
	if len(result.Errors) > 0 {
		errs := convert.Each(result.Errors[:min(len(result.Errors), maxMistakes)], messageError)
		return Script{}, errors.Join(errs...)
	}
	var out Script
	for _, f := range result.OutputFiles {
		if !strings.HasSuffix(f.Path, ".map") {
			out.Code = string(f.Contents)
			continue
		}
		places, err := newPlaces(f.Contents)
		if err != nil {
			return Script{}, err
		}
		out.places = places
	}
	return out, nil
}

// messageError returns a message of esbuild with its place.
func messageError(m api.Message) error {
	if m.Location == nil {
		return errors.New(m.Text)
	}
	return fmt.Errorf("%s:%d:%d: %s", m.Location.File, m.Location.Line, m.Location.Column+1, m.Text)
}

// importResolver finds the files of imports.
type importResolver struct {
	within []string // folders that may contain modules, links resolved

	mu    sync.Mutex
	asked int // number of imports of files
}

func newResolver(dir string) (*importResolver, error) {
	work, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	r := &importResolver{}
	for _, folder := range []string{dir, work} {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", folder, err)
		}
		r.within = append(r.within, real)
	}
	return r, nil
}

func (r *importResolver) registerWith(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if a.Kind == api.ResolveEntryPoint {
			return api.OnResolveResult{}, nil
		}
		if !strings.HasPrefix(a.Path, "./") && !strings.HasPrefix(a.Path, "../") {
			return api.OnResolveResult{Path: a.Path, External: true}, nil // the sandbox decides about it
		}
		r.mu.Lock() // esbuild calls this from several goroutines
		r.asked++
		r.mu.Unlock()
		path, err := r.findFile(a)
		if err != nil {
			return api.OnResolveResult{}, fmt.Errorf("importing %q: %w", a.Path, err)
		}
		return api.OnResolveResult{Path: path, PluginData: checkedPath{}}, nil
	})
	// For a path that the code computes, esbuild includes all files that could match, without asking. That could include
	// keys in apis/*/config.json.
	b.OnLoad(api.OnLoadOptions{Filter: ".*"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		if _, ok := a.PluginData.(checkedPath); !ok {
			return api.OnLoadResult{}, errComputed
		}
		code, err := os.ReadFile(a.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		text := dropSourceMaps(string(code))
		return api.OnLoadResult{Contents: &text, Loader: loaderFor(a.Path)}, nil
	})
}

// checkedPath marks a path that file has checked.
type checkedPath struct{}

var errComputed = errors.New("an import whose path is made while the code runs; want one with the file's whole name")

// loaderFor returns esbuild's loader for a module.
func loaderFor(path string) api.Loader {
	if strings.HasSuffix(path, "ts") {
		return api.LoaderTS
	}
	return api.LoaderJS
}

// mapComment matches a comment that names a source map.
var mapComment = regexp.MustCompile(`([/*][#@] sourceMappingURL)=`)

// dropSourceMaps removes the names of source maps from comments, because esbuild would read any file or device that
// they name.
func dropSourceMaps(code string) string { return mapComment.ReplaceAllString(code, "$1:") }

func (r *importResolver) findFile(a api.OnResolveArgs) (string, error) {
	if len(a.With) > 0 {
		return "", errors.New("an import with attributes; only modules are taken along, not data: put it into a module")
	}
	// Links are resolved before the checks: a link in the folder could lead to any file.
	path, err := filepath.EvalSymlinks(filepath.Join(a.ResolveDir, filepath.FromSlash(a.Path)))
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("no such file; want the file's whole name, e.g. \"./lib.ts\"")
	}
	if err != nil {
		return "", err
	}
	if !slices.Contains([]string{".ts", ".mts", ".js", ".mjs"}, filepath.Ext(path)) {
		return "", errors.New("no module; want a file that ends in .ts, .mts, .js or .mjs")
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("not a regular file; want a module")
	}
	if !slices.ContainsFunc(r.within, func(folder string) bool {
		rest, err := filepath.Rel(folder, path)
		return err == nil && filepath.IsLocal(rest)
	}) {
		return "", errors.New("a file outside of the script's folder and of the working directory; " +
			"want one below, or codeforge started in a folder that holds both")
	}
	return path, nil
}
