package world

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// images are built once per test process.
var images sync.Once

// startDocker starts the compose stack with the upstream as a container.
func (w *World) startDocker(cfg Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // its turn may come late
	defer cancel()
	if err := compose.Available(ctx); errors.Is(err, compose.ErrUnavailable) {
		return &MissingError{err.Error()}
	} else if err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	apis := cfg.APIs
	if apis == nil {
		apis = Standard(w.Canaries, upstream.Embedded.Private.String()+"/32", "/e2e/ca.pem")
	}
	if cfg.Change != nil {
		apis = cfg.Change(apis)
	}
	if w.Dir, err = NewDir(Self, apis, nil); err != nil {
		return err
	}
	env := map[string]string{"SANDBOX_SLOTS": strconv.Itoa(cfg.Slots)}
	for k, v := range cfg.Env {
		env[k] = v
	}
	interpreter := ""
	if cfg.Interpreter != "" {
		if interpreter, err = Program(cfg.Interpreter); err != nil {
			return err
		}
	}
	packages := ""
	if cfg.Registry {
		packages = registry.Dir(root)
	}
	var extra []string
	if len(cfg.Folders) > 0 {
		program, err := Program("codeforge")
		if err != nil {
			return err
		}
		// The command writes the override only beside this file.
		if err := os.WriteFile(filepath.Join(w.Dir, "docker-compose.yml"), nil, 0o600); err != nil {
			return err
		}
		if err := w.addFolders(program, cfg.Folders); err != nil {
			return err
		}
		override, err := filepath.Rel(root, filepath.Join(w.Dir, "docker-compose.override.yml"))
		if err != nil {
			return err
		}
		extra = []string{override}
	}
	build := false
	images.Do(func() { build = true })
	stack, err := compose.New(compose.Config{
		Root: root, APIs: filepath.Join(w.Dir, "apis"), Env: env, Known: known(w.Canaries), TrustCA: cfg.TrustCA, Build: build,
		Interpreter: interpreter, Registry: packages, Hosts: cfg.Hosts, Extra: extra,
	})
	if err != nil {
		return err
	}
	w.Stack, w.Upstream, w.URL, w.logs = stack, stack.Upstream, stack.URL, stack.Logs
	w.stop = func() error {
		return errors.Join(stack.Down(), os.RemoveAll(w.Dir))
	}
	if err := stack.Up(ctx); err != nil {
		return errors.Join(err, w.Close())
	}
	control, err := stack.Volume(ctx, "run-control")
	if err != nil {
		return errors.Join(err, w.Close())
	}
	w.control = func() *proxyapi.Client { return proxyapi.NewClient(filepath.Join(control, "proxy.sock")) }
	return nil
}
