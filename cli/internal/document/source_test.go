package document

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestIntrospect: an endpoint is asked the question, without a credential; the URL of a file is fetched.
func TestIntrospect(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var asked struct{ Query string }
		switch {
		case r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "":
			t.Errorf("a credential: %v", r.Header)
		case r.URL.Path == "/schema.graphql" && r.Method == http.MethodGet && len(body) == 0:
			_, _ = io.WriteString(w, "a file")
		case r.URL.Path == "/closed":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost && json.Unmarshal(body, &asked) == nil && asked.Query == "{ q }" && r.Header.Get("Content-Type") == "application/json":
			_, _ = io.WriteString(w, "an answer")
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"/graphql": "an answer", "/schema.graphql": "a file"} {
		source, endpoint, err := IntrospectGraphQL(t.Context(), server.URL+path, "{ q }", nil)
		if err != nil || string(source.Text) != want || endpoint != (path == "/graphql") || source.Name != server.URL+path {
			t.Errorf("%s: %q, %v, %v", path, source.Text, endpoint, err)
		}
	}
	if source, endpoint, err := IntrospectGraphQL(t.Context(), "-", "{ q }", strings.NewReader("typed")); err != nil || endpoint || string(source.Text) != "typed" {
		t.Errorf("standard input: %q, %v, %v", source.Text, endpoint, err)
	}
	for path, want := range map[string]string{"/closed": "answered 401 to an introspection; want a file with the schema", "/x.json": "answered 418; want"} {
		if _, _, err := IntrospectGraphQL(t.Context(), server.URL+path, "{ q }", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, _, err := IntrospectGraphQL(t.Context(), strings.Replace(server.URL, "http://", "http://user:word@", 1), "{ q }", nil); err == nil || strings.Contains(err.Error(), "word@") {
		t.Errorf("a URL with a user: %v", err)
	}
}
