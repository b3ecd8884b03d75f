package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

type peer struct{ *http.Client }

func (peer) Name() string { return "the peer" }

// TestCall: a value arrives as it was sent, and an error with its code, its status and its whole text. A peer cannot
// answer with an error of another API.
func TestCall(t *testing.T) {
	busy := &rpc.Error{API: "the peer", Status: http.StatusTooManyRequests, Code: "busy", Text: "all are taken"}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   []string
		status int
		is     bool
		text   string
	}{
		{"a value", func(w http.ResponseWriter) { rpc.WriteAnswer(w, http.StatusOK, []string{"a"}) }, []string{"a"}, 0, false, ""},
		{"no body", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }, nil, 0, false, ""},
		{"a code", func(w http.ResponseWriter) { rpc.WriteRefusal(w, fmt.Errorf("slot 3: %w", busy)) }, nil, 429, true, "slot 3: all are taken"},
		{"another code", func(w http.ResponseWriter) { rpc.WriteRefusal(w, &rpc.Error{Code: "gone", Text: "It has gone."}) }, nil, 500, false, "It has gone."},
		{"no code", func(w http.ResponseWriter) { rpc.WriteRefusal(w, errors.New("<broken>")) }, nil, 500, false, "the peer answered 500: <broken>"},
		{"a status", func(w http.ResponseWriter) { rpc.WriteError(w, http.StatusConflict, "taken") }, nil, 409, false, "the peer answered 409: taken"},
		{"a choice", func(w http.ResponseWriter) { rpc.WriteAnswer(w, http.StatusMultipleChoices, []string{"a"}) }, nil, 300, false, "the peer answered 300: "},
		{"another body", func(w http.ResponseWriter) { rpc.WriteAnswer(w, http.StatusConflict, []int{1}) }, nil, 409, false, "the peer answered 409: "},
		{"not JSON", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{") }, nil, 0, false, "reading the answer of the peer: unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
			defer s.Close()
			got, err := rpc.Call[[]string](t.Context(), peer{s.Client()}, http.MethodGet, s.URL, nil)
			text, status := "", 0
			if err != nil {
				text = err.Error()
			}
			if e := (*rpc.Error)(nil); errors.As(err, &e) {
				status = e.Status
			}
			if errors.Is(err, &rpc.Error{API: "another peer", Code: "busy"}) {
				t.Error("it is another API's error")
			}
			if !slices.Equal(got, c.want) || text != c.text || status != c.status || errors.Is(err, busy) != c.is {
				t.Errorf("%v, %v with status %d", got, err, status)
			}
		})
	}
}

// TestOnce: the server answers on the one connection until that ends, and Serve ends with its context.
func TestOnce(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { rpc.WriteAnswer(w, http.StatusOK, 1) })
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
		go func() { ended <- rpc.Serve(ctx, rpc.ListenOnce(server), handler) }()
		// Not http.Transport: it gives a connection up whose write it has not noted within 50 ms, as on a busy machine.
		answers := bufio.NewReader(client)
		for range 2 {
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			resp, err := http.ReadResponse(answers, nil)
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
