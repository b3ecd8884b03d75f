package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// serveControl offers the record over HTTP, for tests that run the upstream in a container.
func (s *Server) serveControl(addr string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("upstream control: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /seen", func(w http.ResponseWriter, r *http.Request) { reply(w, s.Seen(r.URL.Query().Get("t"))) })
	mux.HandleFunc("GET /wires", func(w http.ResponseWriter, r *http.Request) {
		reply(w, s.Wires(r.URL.Query().Get("name")))
	})
	mux.HandleFunc("GET /asked", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Asked()) })
	mux.HandleFunc("POST /forget", func(w http.ResponseWriter, _ *http.Request) { s.Forget(); reply(w, "ok") })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.closers = append(s.closers, srv)
	s.wg.Go(func() { _ = srv.Serve(l) })
	return nil
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// Observer tells a test what an upstream received, in the same process or in a container.
type Observer interface {
	Seen(trial string) []Seen
	Wires(name string) []Wire
	Asked() []string
	Forget()
}

// Remote is an Observer of an upstream's control address, e.g. "http://127.0.0.1:9000". A question that fails
// answers with nothing.
type Remote string

// Seen returns the requests of a trial.
func (c Remote) Seen(trial string) []Seen {
	return ask[[]Seen](string(c) + "/seen?t=" + url.QueryEscape(trial))
}

// Wires returns the connections with a server name.
func (c Remote) Wires(name string) []Wire {
	return ask[[]Wire](string(c) + "/wires?name=" + url.QueryEscape(name))
}

// Asked returns the names that were resolved.
func (c Remote) Asked() []string { return ask[[]string](string(c) + "/asked") }

// Forget drops the record.
func (c Remote) Forget() {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, string(c)+"/forget", nil)
	if err != nil {
		return
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

func ask[T any](u string) T {
	var out T
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return out
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return out
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&out)
	return out
}
