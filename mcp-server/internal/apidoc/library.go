package apidoc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// release is the number of read operations after which their temporary memory is returned to the system.
const release = 1000

// Library holds the documents of the catalog's APIs. Create it with NewLibrary and call Run. A nil Library is empty.
type Library struct {
	control Source
	log     *slog.Logger
	changed chan struct{}

	mu      sync.Mutex
	want    proxyapi.Catalog
	version string // of the catalog that docs belong to
	docs    []loadedDocument
	done    chan struct{} // closed when version changes
}

// loadedDocument is the Document of a file with this digest.
type loadedDocument struct {
	name, digest string
	doc          *Document
}

// Source provides the operations.jsonl of an API.
type Source interface {
	OpenOperations(ctx context.Context, api string) (io.ReadCloser, error)
}

// NewLibrary returns a Library.
func NewLibrary(control Source, log *slog.Logger) *Library {
	return &Library{control: control, log: log, changed: make(chan struct{}, 1), done: make(chan struct{})}
}

// Follow gives the library a new catalog.
func (l *Library) Follow(c proxyapi.Catalog) {
	l.mu.Lock()
	l.want = c
	l.mu.Unlock()
	// Run reads only the latest catalog, so a second signal is not needed.
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Run reads the catalogs from Follow until ctx ends.
func (l *Library) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			l.updateDocuments(ctx)
		}
	}
}

// updateDocuments updates the docs to the catalog. The Document of an unchanged file stays.
func (l *Library) updateDocuments(ctx context.Context) {
	l.mu.Lock()
	want, old := l.want, l.docs
	l.mu.Unlock()
	var docs []loadedDocument
	fetched := 0
	for _, api := range want.APIs {
		if api.Operations == "" {
			continue
		}
		i := slices.IndexFunc(old, func(h loadedDocument) bool { return h.name == api.Name && h.digest == api.Operations })
		if i >= 0 {
			docs = append(docs, old[i])
			continue
		}
		doc, err := l.fetchDocument(ctx, api.Name)
		if err != nil {
			l.log.Warn("the operations of an API cannot be searched", logline.Tag("mcp"), slog.String("api", api.Name),
				slog.String("error", err.Error()))
			continue // retried at the next catalog change
		}
		fetched += doc.OperationCount()
		docs = append(docs, loadedDocument{api.Name, api.Operations, doc})
	}
	l.mu.Lock()
	l.docs, l.version = docs, want.Version
	// Closing wakes all waiting calls of WaitForDocuments, and the next ones wait for a new channel.
	close(l.done)
	l.done = make(chan struct{})
	l.mu.Unlock()
	if fetched >= release {
		debug.FreeOSMemory() // the memory is not needed again
	}
}

func (l *Library) fetchDocument(ctx context.Context, api string) (*Document, error) {
	body, err := l.control.OpenOperations(ctx, api)
	if err != nil {
		return nil, fmt.Errorf("fetching the operations of %s: %w", api, err)
	}
	defer body.Close()
	return ReadDocument(api, body)
}

// WaitForDocuments returns the docs of the latest catalog. It waits for them until ctx ends, and then returns the ones
// read so far.
func (l *Library) WaitForDocuments(ctx context.Context) []*Document {
	if l == nil {
		return nil
	}
	for {
		// Read under the lock, so that done belongs to the version.
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
		return convert.Each(docs, func(h loadedDocument) *Document { return h.doc })
	}
}

// IsBehind reports whether documents are still being read, so that WaitForDocuments may lack some.
func (l *Library) IsBehind() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version != l.want.Version
}
