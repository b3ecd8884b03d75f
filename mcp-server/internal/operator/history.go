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

// History returns the handler of the stored runs only, for reading them while mcp-server does not run.
func History(s *history.Store) http.Handler {
	mux := http.NewServeMux()
	historyRoutes(mux, s, nil)
	return mux
}

// historyRoutes adds the paths of the stored runs.
func historyRoutes(mux *http.ServeMux, s *history.Store, stop <-chan struct{}) {
	const get, post = "GET " + operatorapi.Prefix, "POST " + operatorapi.Prefix
	mux.HandleFunc(get+"runs", listed(s.Runs))
	mux.HandleFunc(get+"exchanges", listed(s.Exchanges))
	remove := func(ctx context.Context, f operatorapi.Filter, _ string) (operatorapi.Removed, error) {
		n, err := s.Remove(ctx, f)
		return operatorapi.Removed{Removed: n}, err
	}
	mux.HandleFunc(post+"runs/remove", listed(remove))
	mux.HandleFunc(get+"run", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Run(r.Context(), r.URL.Query().Get("run"))
		recorded(w, v, err)
	})
	mux.HandleFunc(get+"history", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Status(r.Context())
		recorded(w, v, err)
	})
	mux.HandleFunc(get+"events", func(w http.ResponseWriter, r *http.Request) { follow(w, r, s, stop) })
}

// listed answers with a filtered list.
func listed[F, T any](list func(context.Context, F, string) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := operatorapi.ReadFilter[F](r.URL.Query())
		if err != nil {
			rpc.Fail(w, http.StatusBadRequest, err.Error())
			return
		}
		v, err := list(r.Context(), f, r.URL.Query().Get("cursor"))
		recorded(w, v, err)
	}
}

// recorded answers with a result of the store.
func recorded(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, history.ErrUnknown):
		rpc.Refuse(w, operatorapi.ErrNotFound)
	case errors.Is(err, history.ErrOff):
		rpc.Refuse(w, refused(err))
	case err != nil:
		rpc.Refuse(w, err)
	default:
		rpc.Answer(w, http.StatusOK, v)
	}
}

// follow streams events.
func follow(w http.ResponseWriter, r *http.Request, s *history.Store, stop <-chan struct{}) {
	if s.Mode() == history.Off {
		recorded(w, nil, history.ErrOff)
		return
	}
	cursor := r.URL.Query().Get("cursor")
	// Without a cursor, a reader gets only new events.
	if cursor == "" {
		cursor = s.Now()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	batches := make(chan []operatorapi.Event)
	go func() {
		defer close(batches)
		for at := cursor; ; {
			events, err := s.Follow(ctx, at)
			if err != nil {
				return
			}
			select {
			case batches <- events:
				at = events[len(events)-1].Cursor
			case <-ctx.Done():
				return
			}
		}
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
