package operator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// keepTime is the time between empty lines of a stream, which detect a reader that has gone.
const keepTime = 10 * time.Second

func (rt pathRouter) addHistory(s *history.Store, stop <-chan struct{}) {
	rt.addPath("GET runs", answerList(s.ListRuns))
	rt.addPath("GET exchanges", answerList(s.ListExchanges))
	rt.addPath("POST runs/remove", answerList(
		func(ctx context.Context, f operatorapi.RunFilter, _ string) (operatorapi.Removed, error) {
			n, err := s.RemoveRuns(ctx, f)
			return operatorapi.Removed{Removed: n}, err
		}))
	rt.addPath("GET run", func(r *http.Request) (any, error) { return s.FindRun(r.Context(), r.FormValue("run")) })
	rt.addPath("GET file", func(r *http.Request) (any, error) {
		return s.ReadRunFile(r.Context(), r.FormValue("run"), r.FormValue("name"), nil)
	})
	rt.addPath("GET history", func(r *http.Request) (any, error) { return s.Status(r.Context()) })
	rt.addPath("GET events", func(r *http.Request) (any, error) {
		if s.Mode() == history.Off {
			return nil, history.ErrOff
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { streamEvents(w, r, s, stop) }), nil
	})
}

// answerList returns an answer for addPath: the list for the request's filter and cursor.
func answerList[F, T any](list func(context.Context, F, string) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		f, err := operatorapi.ReadFilter[F](r.URL.Query())
		if err != nil {
			return nil, newRefused(http.StatusBadRequest, "", err)
		}
		return list(r.Context(), f, r.FormValue("cursor"))
	}
}

func streamEvents(w http.ResponseWriter, r *http.Request, s *history.Store, stop <-chan struct{}) {
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
