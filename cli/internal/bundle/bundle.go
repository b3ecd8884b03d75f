// Package bundle makes one module of a script and the files that it imports, for a sandbox that gets only one.
//
// Threat: a script that a model wrote and that a person runs. What it imports is read from this machine and sent to the
// sandbox, so only modules are: files named .ts, .mts, .js or .mjs that parse as such, below the script's folder or the
// working directory, links followed, that an import names in full. No configuration beside them is read, and no file
// that a comment names.
package bundle

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

	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// relative finds what may be the import of a file.
var relative = regexp.MustCompile("['\"`]\\.\\.?/")

// Script is code to send.
type Script struct {
	Code   string
	places *places // nil: the code is as it was
}

// Read makes a Script of code from a file. Code that imports no file beside it is as it was.
func Read(path, code string) (Script, error) {
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
	out, err := build(dir, filepath.Base(path), code, r)
	switch {
	case r.asked == 0: // whatever else is wrong with it, Deno says better
		return same, nil
	case err != nil:
		return same, err
	case len(out.Code) > runapi.MaxCode:
		return same, fmt.Errorf("the script with what it imports is over %d bytes", runapi.MaxCode)
	}
	return out, nil
}

// Originals replaces, in what a failed run printed, places in the code by places in the files it was made of.
func (s Script) Originals(text string) string {
	if s.places == nil {
		return text
	}
	return s.places.originals(text)
}

// maxMistakes bounds how many mistakes are told.
const maxMistakes = 10

// build bundles a script.
func build(dir, name, code string, r *resolver) (Script, error) {
	result := api.Build(api.BuildOptions{
		Stdin:          &api.StdinOptions{Contents: unmapped(code), ResolveDir: dir, Sourcefile: name, Loader: api.LoaderTS},
		Bundle:         true,
		Format:         api.FormatESModule,
		Target:         api.ESNext,
		Platform:       api.PlatformNeutral,
		Charset:        api.CharsetUTF8,
		Sourcemap:      api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude, // a source may name any file as its own map
		AbsWorkingDir:  dir,
		Outfile:        filepath.Join(dir, "main.js"), // is not written: it is where paths in the map are relative to
		TsconfigRaw:    "{}",
		LogLevel:       api.LogLevelSilent,
		Plugins:        []api.Plugin{{Name: "files", Setup: r.setup}},
	})
	if len(result.Errors) > 0 {
		var errs []error
		for _, m := range result.Errors[:min(len(result.Errors), maxMistakes)] {
			errs = append(errs, mistake(m))
		}
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

// mistake is a message of esbuild with its place.
func mistake(m api.Message) error {
	if m.Location == nil {
		return errors.New(m.Text)
	}
	return fmt.Errorf("%s:%d:%d: %s", m.Location.File, m.Location.Line, m.Location.Column+1, m.Text)
}

// resolver finds the files of imports.
type resolver struct {
	within []string // the folders below which files may be, without links

	mu    sync.Mutex
	asked int // how many imports of files there were
}

func newResolver(dir string) (*resolver, error) {
	work, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	r := &resolver{}
	for _, folder := range []string{dir, work} {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", folder, err)
		}
		r.within = append(r.within, real)
	}
	return r, nil
}

// setup is esbuild's way to ask for files.
func (r *resolver) setup(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if a.Kind == api.ResolveEntryPoint {
			return api.OnResolveResult{}, nil
		}
		if !strings.HasPrefix(a.Path, "./") && !strings.HasPrefix(a.Path, "../") {
			return api.OnResolveResult{Path: a.Path, External: true}, nil // the sandbox's to judge
		}
		r.mu.Lock() // esbuild asks from several goroutines
		r.asked++
		r.mu.Unlock()
		path, err := r.file(a)
		if err != nil {
			return api.OnResolveResult{}, fmt.Errorf("importing %q: %w", a.Path, err)
		}
		return api.OnResolveResult{Path: path, PluginData: checked{}}, nil
	})
	// For a path that is only made while the code runs, esbuild takes along all files that it may turn out to name,
	// without asking: keys in apis/*/config.json too.
	b.OnLoad(api.OnLoadOptions{Filter: ".*"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		if _, ok := a.PluginData.(checked); !ok {
			return api.OnLoadResult{}, errComputed
		}
		code, err := os.ReadFile(a.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		text := unmapped(string(code))
		return api.OnLoadResult{Contents: &text, Loader: loader(a.Path)}, nil
	})
}

// checked marks a path that file has found.
type checked struct{}

var errComputed = errors.New("an import whose path is made while the code runs; want one with the file's whole name")

// loader is how esbuild reads a module.
func loader(path string) api.Loader {
	if strings.HasSuffix(path, "ts") {
		return api.LoaderTS
	}
	return api.LoaderJS
}

// mapComment is how a comment names a source map.
var mapComment = regexp.MustCompile(`([/*][#@] sourceMappingURL)=`)

// unmapped is code whose comments name no source map, which esbuild would read: whatever file or device it is.
func unmapped(code string) string { return mapComment.ReplaceAllString(code, "$1:") }

// file is the file of an import.
func (r *resolver) file(a api.OnResolveArgs) (string, error) {
	if len(a.With) > 0 {
		return "", errors.New("an import with attributes; only modules are taken along, not data: put it into a module")
	}
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
