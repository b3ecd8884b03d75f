package apidoc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/shape"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

type files map[string]string

func (f files) Operations(_ context.Context, api string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(f[api])), nil
}

// TestSeen: answers of operations of which the document does not say what they answer are shown as they were, until
// the document changes. Others are as the document says.
// Promise: learned-answers-have-no-data
func TestSeen(t *testing.T) {
	const declared = `{"format":1,"server":"https://api.shop.test/v1","operations":1,"types":0}
{"m":"GET","p":"/a","a":"string"}
`
	const text = `{"format":1,"server":"https://api.shop.test/v1","operations":4,"types":0}
{"m":"GET","p":"/users/{id}","s":"One"}
{"m":"GET","p":"/users/me","s":"Me"}
{"m":"POST","p":"/users/{id}","a":"unknown"}
{"m":"GET","p":"/said","a":"string"}
`
	source := files{"shop": text, "other": declared}
	l := NewLibrary(source, slog.New(slog.DiscardHandler))
	follow := func(digest string) *Doc {
		l.Follow(controlapi.Catalog{Version: digest, APIs: []controlapi.API{{Name: "shop", Operations: digest}, {Name: "other", Operations: "o"}}})
		l.read(t.Context())
		return l.Docs(t.Context())[0]
	}
	d := follow("1")
	if s := l.Silent(); len(s) != 1 || s[0] != "shop" {
		t.Errorf("silent: %v", s)
	}
	learn := func(method, url, body string) {
		l.Learn([]controlapi.Answer{{API: "shop", Method: method, URL: url, Shape: shape.Of(strings.NewReader(body))}})
	}
	const body = `{"id":7,"name":"secret","by":{"a@secret.test":1}}`
	learn("GET", "https://api.shop.test/v1/users/7?x=", body)
	learn("GET", "https://api.shop.test/v1/said", body)
	learn("POST", "https://evil.test/v1/users/7", body)
	learn("POST", "https://api.shop.test/users/7", body)
	learn("PUT", "https://api.shop.test/v1/users/7", body)
	learn("GET", "://", body)
	l.Learn([]controlapi.Answer{{API: "nobody", Method: "GET", URL: "https://api.shop.test/v1/users/7"}, {API: "shop", Method: "GET", URL: "https://api.shop.test/v1/users/7"}})
	const want = "{ id: number; name: string; by: { [key: string]: number }; }"
	for i, rest := range []string{"\n  answered before " + want, "", "\n  answers unknown", "\n  answers string"} {
		full, shown := d.Full(i), d.Show(i, Long)
		for _, got := range []string{full, shown} {
			if !strings.HasSuffix(got, rest) || rest == "" && strings.Contains(got, "answer") || strings.Contains(got, "secret") {
				t.Errorf("%d: %s", i, got)
			}
		}
	}
	learn("GET", "https://api.shop.test/v1/users/me", `[1]`)
	if got := d.Full(1); !strings.HasSuffix(got, "answered before number[]") {
		t.Error(got)
	}
	if d = follow("1"); !strings.Contains(d.Full(0), want) {
		t.Error("forgotten though nothing changed")
	}
	if d = follow("2"); strings.Contains(d.Full(0), "answered") {
		t.Error("another document has the answers of the old one")
	}
}

// stuck is a Source that never answers.
type stuck struct{}

func (stuck) Operations(ctx context.Context, _ string) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestWaitsForNobody: who starts and who asks does not wait for documents that are still being read.
func TestWaitsForNobody(t *testing.T) {
	l := NewLibrary(stuck{}, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { defer close(done); l.Run(ctx) }()
	for i := range 10 {
		l.Follow(controlapi.Catalog{Version: fmt.Sprint(i), APIs: []controlapi.API{{Name: "shop", Operations: fmt.Sprint(i)}}})
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if docs := l.Docs(now); len(docs) > 0 || len(l.Silent()) > 0 || !l.Behind() {
		t.Errorf("%v, behind %v", docs, l.Behind())
	}
	stop()
	<-done
}
