// Package registry serves a few npm packages with all their dependencies to the tests, which have no way to the real
// registry: from tarballs that npm fetched before.
package registry

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // npm's format has it beside the SHA-512
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// Registry answers as an npm registry does. Make it with New.
type Registry struct {
	// Broken replaces the bytes of tarballs by others, as a registry would that was broken into, and says that they are
	// the right ones.
	Broken atomic.Bool

	host     string
	packages map[string]map[string]manifest // by name and version
	files    map[string]string              // the path of each tarball by its path in the registry
	mu       sync.Mutex
	asked    []string
}

// manifest is the package.json of one version, with what a registry adds.
type manifest map[string]any

// New reads the tarballs of a folder. The registry's address is https://HOST/.
func New(dir, host string) (*Registry, error) {
	r := &Registry{host: host, packages: map[string]map[string]manifest{}, files: map[string]string{}}
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return nil, err
	}
	for _, path := range tarballs {
		if err := r.add(path); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	for _, path := range wheels {
		r.files[wheelPath+filepath.Base(path)] = path
	}
	return r, err
}

// add reads one tarball.
func (r *Registry) add(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := manifestOf(data)
	if err != nil {
		return err
	}
	name, _ := m["name"].(string)
	version, _ := m["version"].(string)
	if name == "" || version == "" {
		return errors.New("no name or no version")
	}
	file := name + "/-/" + name[strings.LastIndexByte(name, '/')+1:] + "-" + version + ".tgz"
	m["dist"] = r.dist(file, data)
	if r.packages[name] == nil {
		r.packages[name] = map[string]manifest{}
	}
	r.packages[name][version] = m
	r.files[file] = path
	return nil
}

// dist is what a registry says about a tarball.
func (r *Registry) dist(file string, data []byte) map[string]any {
	short, long := sha1.Sum(data), sha512.Sum512(data) //nolint:gosec // npm's format has it
	return map[string]any{
		"tarball": "https://" + r.host + "/" + file, "shasum": hex.EncodeToString(short[:]),
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:]),
	}
}

// broken is a manifest that fits the other bytes.
func (r *Registry) broken(m manifest) (manifest, error) {
	out := maps.Clone(m)
	file := strings.TrimPrefix(m["dist"].(map[string]any)["tarball"].(string), "https://"+r.host+"/")
	data, err := os.ReadFile(r.files[file])
	out["dist"] = r.dist(file, append(data, 0))
	return out, err
}

// manifestOf is the package.json of a tarball.
func manifestOf(data []byte) (manifest, error) {
	unzipped, err := gzip.NewReader(strings.NewReader(string(data)))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(unzipped); ; {
		head, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for package.json: %w", err)
		}
		if _, inside, _ := strings.Cut(head.Name, "/"); inside != "package.json" {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(files, 4<<20))
		if err != nil {
			return nil, err
		}
		var m manifest
		return m, json.Unmarshal(text, &m)
	}
}

// Asked is what was asked for so far: paths without their first slash.
func (r *Registry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/")
	r.mu.Lock()
	r.asked = append(r.asked, path)
	r.mu.Unlock()
	if file, ok := r.files[path]; ok {
		r.tarball(w, file)
		return
	}
	if name, is := strings.CutPrefix(path, IndexPath); is {
		r.serveIndex(w, q, strings.TrimSuffix(name, "/"))
		return
	}
	versions, ok := r.packages[path]
	if !ok {
		http.Error(w, `{"error":"Not found"}`, http.StatusNotFound)
		return
	}
	all, latest := map[string]any{}, ""
	for version, m := range versions {
		if r.Broken.Load() {
			var err error
			if m, err = r.broken(m); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		all[version] = m
		if latest == "" || version > latest {
			latest = version
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": path, "dist-tags": map[string]string{"latest": latest}, "versions": all})
}

func (r *Registry) tarball(w http.ResponseWriter, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Broken.Load() {
		data = append(data, 0)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(data)
}
