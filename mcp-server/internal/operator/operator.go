// Package operator answers whoever runs CodeForge, on the unix socket: see mcp-server/operatorapi.
//
// Threat: the answers tell which APIs there are and what code did. Only the socket's owner may ask, so Handler has no
// check of its own and must not be served on an address.
package operator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/journal"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// keepTime is the time between empty lines of a stream, which show whether its reader is still there.
const keepTime = 10 * time.Second

// Config holds what the answers come from.
type Config struct {
	About   operatorapi.About
	Control *controlapi.Client
	// Journal is the folder of the record of exchanges. Empty: another process keeps it, and its owner reads it there.
	Journal string
	// Servers are the MCP servers. Nil: nobody asks about them here.
	Servers Servers
	// Console makes a way in to the console. Nil: there is none.
	Console func() operatorapi.ConsoleLogin
	// Stop, when closed, ends the streams.
	Stop <-chan struct{}
}

// Handler makes the handler of operatorapi.Prefix.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+operatorapi.Prefix+"about", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, c.About)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"catalog", func(w http.ResponseWriter, r *http.Request) {
		forward(w, r, c.Control.Catalog)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"inspection", func(w http.ResponseWriter, r *http.Request) {
		forward(w, r, c.Control.Inspection)
	})
	if c.Journal != "" {
		mux.HandleFunc("GET "+operatorapi.Prefix+"exchanges", c.exchanges)
		mux.HandleFunc("GET "+operatorapi.Prefix+"receipt", c.receipt)
	}
	if c.Console != nil {
		mux.HandleFunc("POST "+operatorapi.Prefix+"console", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, c.Console())
		})
	}
	if c.Servers != nil {
		serverRoutes(mux, c.Servers)
	}
	return mux
}

// forward answers with what the proxy says.
func forward[T any](w http.ResponseWriter, r *http.Request, ask func(context.Context) (T, error)) {
	v, err := ask(r.Context())
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	answer(w, http.StatusOK, v)
}

// exchanges streams the record.
func (c Config) exchanges(w http.ResponseWriter, r *http.Request) {
	q, err := operatorapi.Parse(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	events, ended := make(chan controlapi.Event), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = journal.Show(ctx, c.Journal, q, func(e controlapi.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-ended }()
	keep := time.NewTicker(keepTime)
	defer keep.Stop()
	for enc := json.NewEncoder(w); ; {
		var err error
		select {
		case <-ended:
			return
		case <-c.Stop:
			return
		case e := <-events:
			err = enc.Encode(e)
		case <-keep.C:
			_, err = io.WriteString(w, "\n")
		}
		if q.Follow && err == nil {
			err = rc.Flush()
		}
		if err != nil {
			return
		}
	}
}

func (c Config) receipt(w http.ResponseWriter, r *http.Request) {
	rec, found, err := journal.Receipt(c.Journal, r.URL.Query().Get("run"))
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	case !found:
		fail(w, http.StatusNotFound, operatorapi.ErrNotFound.Error())
	default:
		answer(w, http.StatusOK, rec)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

func fail(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}
