package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// keepTime is the time between empty lines of a stream, which detect a reader that has gone.
const keepTime = 10 * time.Second

// HistoryHandler returns the handler of the stored runs only, for reading them while mcp-server does not run.
func HistoryHandler(s *history.Store) http.Handler {
	mux := http.NewServeMux()
	historyRoutes(mux, s, nil)
	return mux
}

// historyRoutes adds the paths of the stored runs.
func historyRoutes(mux *http.ServeMux, s *history.Store, stop <-chan struct{}) {
	const get, post = "GET " + operatorapi.Prefix, "POST " + operatorapi.Prefix
	mux.HandleFunc(get+"runs", handleList(s.ListRuns))
	mux.HandleFunc(get+"exchanges", handleList(s.ListExchanges))
	remove := func(ctx context.Context, f operatorapi.RunFilter, _ string) (operatorapi.Removed, error) {
		n, err := s.RemoveRuns(ctx, f)
		return operatorapi.Removed{Removed: n}, err
	}
	mux.HandleFunc(post+"runs/remove", handleList(remove))
	mux.HandleFunc(get+"run", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.FindRun(r.Context(), r.URL.Query().Get("run"))
		writeRecorded(w, v, err)
	})
	mux.HandleFunc(get+"file", func(w http.ResponseWriter, r *http.Request) {
		f, err := s.ReadRunFile(r.Context(), r.URL.Query().Get("run"), r.URL.Query().Get("name"), nil)
		if err != nil {
			writeRecorded(w, nil, err)
			return
		}
		f.ServeHTTP(w, r)
	})
	mux.HandleFunc(get+"history", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Status(r.Context())
		writeRecorded(w, v, err)
	})
	mux.HandleFunc(get+"events", func(w http.ResponseWriter, r *http.Request) { streamEvents(w, r, s, stop) })
}

// handleList answers with a filtered list.
func handleList[F, T any](list func(context.Context, F, string) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := operatorapi.ReadFilter[F](r.URL.Query())
		if err != nil {
			rpc.WriteError(w, http.StatusBadRequest, err.Error())
			return
		}
		v, err := list(r.Context(), f, r.URL.Query().Get("cursor"))
		writeRecorded(w, v, err)
	}
}

// writeRecorded answers with a result of the store.
func writeRecorded(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, history.ErrUnknown):
		rpc.WriteRefusal(w, operatorapi.ErrNotFound)
	case errors.Is(err, history.ErrOff):
		rpc.WriteRefusal(w, newRefused(err))
	case err != nil:
		rpc.WriteRefusal(w, err)
	default:
		rpc.WriteAnswer(w, http.StatusOK, v)
	}
}

// streamEvents streams events.
func streamEvents(w http.ResponseWriter, r *http.Request, s *history.Store, stop <-chan struct{}) {
	if s.Mode() == history.Off {
		writeRecorded(w, nil, history.ErrOff)
		return
	}
	cursor := r.URL.Query().Get("cursor")
	// Without a cursor, a reader gets only new events.
	if cursor == "" {
		cursor = s.CurrentCursor()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	batches := make(chan []operatorapi.HistoryEvent)
	go func() {
		defer close(batches)
		operatorapi.SendEvents(ctx, s.Follow, cursor, batches)
	}()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	keep := time.NewTicker(keepTime)
	defer keep.Stop()
	for enc, err := json.NewEncoder(w), rc.Flush(); err == nil; {
		select {
		case <-stop:
			return
		case events, more := <-batches:
			if !more {
				return
			}
			for _, e := range events {
				if err = enc.Encode(e); err != nil {
					return
				}
			}
		case <-keep.C:
			_, err = io.WriteString(w, "\n")
		}
		if err == nil {
			err = rc.Flush()
		}
	}
}
