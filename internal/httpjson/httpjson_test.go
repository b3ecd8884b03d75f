package httpjson_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
)

// TestFail: what Fail says, Error reads; an answer that says nothing is not an error text.
func TestFail(t *testing.T) {
	for why, answer := range map[string]func(http.ResponseWriter){
		"no such <slot>": func(w http.ResponseWriter) { httpjson.Fail(w, http.StatusConflict, "no such <slot>") },
		"":               func(w http.ResponseWriter) { httpjson.Answer(w, http.StatusConflict, []int{1}) },
	} {
		w := httptest.NewRecorder()
		answer(w)
		r := w.Result()
		if got := httpjson.Error(r); got != why || r.StatusCode != http.StatusConflict || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: %q, %s, %v", why, got, r.Status, r.Header)
		}
	}
}

// TestOnce: the server answers on the one connection until that ends, and Serve ends with its context.
func TestOnce(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpjson.Answer(w, http.StatusOK, 1) })
	ends := map[string]func(client net.Conn, cancel func()){
		"closed":   func(client net.Conn, _ func()) { _ = client.Close() },
		"canceled": func(_ net.Conn, cancel func()) { cancel() },
	}
	for n := range 200 { // it may end before the server has noted that a response is out, or after
		name := []string{"closed", "canceled"}[n%2]
		end := ends[name]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client, server := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- httpjson.Serve(ctx, httpjson.Once(server), handler) }()
		c := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}}
		for range 2 {
			resp, err := c.Get("http://localhost/")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "1\n" || resp.Body.Close() != nil {
				t.Fatalf("%s: %q, %v", name, text, err)
			}
		}
		end(client, cancel)
		if err := <-ended; (err == nil) != (name == "canceled") {
			t.Errorf("%s: Serve ended with %v", name, err)
		}
	}
}
