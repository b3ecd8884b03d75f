package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/pypiname"
	"github.com/codeforge-mcp/codeforge/internal/python"
)

// pypi is the prefix of packages of PyPI for Fetch. Requirements follow, separated by spaces: "pypi:a==1 b<2".
const pypi = "pypi:"

// fetchWheels lets pip fetch the wheels of requirements with all their dependencies, for the Python of the sandbox. It
// returns the names of the wheels.
func fetchWheels(ctx context.Context, dir string, requirements []string) ([]string, error) {
	temp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	i, err := python.FindInterpreter(ctx, python.ListCandidates(""))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "python3", append([]string{ //nolint:gosec // fixed by the tests
		"-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--python-version", python.MinorVersion(i.Version), "--dest", temp,
	}, requirements...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("pip download: %w: %s", err, errs.Bytes())
	}
	return moveFiles(filepath.Join(temp, "*.whl"), dir)
}

// IndexPath is the path of the package index below the registry's address. Wheels are below wheelPath.
const (
	IndexPath = "simple/"
	wheelPath = "wheels/"
)

// serveIndex answers with the index's page of a package: its wheels, as JSON (PEP 691) if the client accepts it.
func (r *Registry) serveIndex(w http.ResponseWriter, q *http.Request, name string) {
	const jsonType = "application/vnd.pypi.simple.v1+json"
	type listed struct {
		Filename string            `json:"filename"`
		URL      string            `json:"url"`
		Hashes   map[string]string `json:"hashes"`
	}
	var links []string
	list := []listed{}
	for file, path := range r.files {
		wheel, is := strings.CutPrefix(file, wheelPath)
		if of, _, _ := strings.Cut(wheel, "-"); !is || pypiname.FoldName(of) != name {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if r.Broken.Load() {
			data = append(data, 0)
		}
		digest := sha256.Sum256(data)
		sum := hex.EncodeToString(digest[:])
		links = append(links, fmt.Sprintf("<a href=\"/%s#sha256=%s\">%s</a>\n", file, sum, wheel))
		list = append(list, listed{wheel, "/" + file, map[string]string{"sha256": sum}})
	}
	if links == nil {
		http.Error(w, "Not found", http.StatusNotFound)
		return
	}
	if strings.Contains(q.Header.Get("Accept"), jsonType) {
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": name, "files": list})
		return
	}
	slices.Sort(links)
	w.Header().Set("Content-Type", "text/html")
	_, _ = w.Write([]byte("<!DOCTYPE html>\n" + strings.Join(links, "")))
}
