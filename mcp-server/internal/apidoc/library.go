package apidoc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// release is after how many operations that were read the memory is given back that reading them took.
const release = 1000

// Library keeps the Docs of the catalog's APIs. Make it with NewLibrary and call Run. The nil Library has none.
type Library struct {
	control Source
	log     *slog.Logger
	changed chan struct{}

	mu      sync.Mutex
	want    controlapi.Catalog
	version string // of the catalog that docs are of
	docs    []held
	done    chan struct{} // closed when version changes
}

// held is a Doc, or why there is none, of a file with this digest.
type held struct {
	name, digest string
	doc          *Doc
}

// Source is where operations.jsonl of an API comes from.
type Source interface {
	Operations(ctx context.Context, api string) (io.ReadCloser, error)
}

// NewLibrary makes a Library.
func NewLibrary(control Source, log *slog.Logger) *Library {
	return &Library{control: control, log: log, changed: make(chan struct{}, 1), done: make(chan struct{})}
}

// Follow tells the library of the catalog in force.
func (l *Library) Follow(c controlapi.Catalog) {
	l.mu.Lock()
	l.want = c
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Run reads the catalogs that Follow receives, until ctx ends.
func (l *Library) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			l.read(ctx)
		}
	}
}

// read brings the docs up to date with the catalog. A Doc whose file did not change stays.
func (l *Library) read(ctx context.Context) {
	l.mu.Lock()
	want, old := l.want, l.docs
	l.mu.Unlock()
	var docs []held
	fetched := 0
	for _, api := range want.APIs {
		if api.Operations == "" {
			continue
		}
		i := slices.IndexFunc(old, func(h held) bool { return h.name == api.Name && h.digest == api.Operations })
		if i >= 0 {
			docs = append(docs, old[i])
			continue
		}
		doc, err := l.fetch(ctx, api.Name)
		if err != nil {
			l.log.Warn("the operations of an API cannot be searched", logline.Tag("mcp"), slog.String("api", api.Name),
				slog.String("error", err.Error()))
			continue // tried again at the next change of the catalog
		}
		fetched += doc.Len()
		docs = append(docs, held{api.Name, api.Operations, doc})
	}
	l.mu.Lock()
	l.docs, l.version = docs, want.Version
	close(l.done)
	l.done = make(chan struct{})
	l.mu.Unlock()
	if fetched >= release {
		debug.FreeOSMemory() // nothing else will need what the reading took
	}
}

func (l *Library) fetch(ctx context.Context, api string) (*Doc, error) {
	body, err := l.control.Operations(ctx, api)
	if err != nil {
		return nil, fmt.Errorf("fetching the operations of %s: %w", api, err)
	}
	defer body.Close()
	return Read(api, body)
}

// Docs are the docs of the latest catalog. It waits for them until ctx ends, and then returns those that have been
// read.
func (l *Library) Docs(ctx context.Context) []*Doc {
	if l == nil {
		return nil
	}
	for {
		l.mu.Lock()
		current, done, docs := l.version == l.want.Version, l.done, l.docs
		l.mu.Unlock()
		if !current && ctx.Err() == nil {
			select {
			case <-done:
			case <-ctx.Done():
			}
			continue
		}
		out := make([]*Doc, len(docs))
		for i, h := range docs {
			out[i] = h.doc
		}
		return out
	}
}

// Behind reports whether documents are still being read, so that Docs may lack some.
func (l *Library) Behind() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version != l.want.Version
}
