package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// TestShapesOfAnswers: a receipt tells what the answers of an API looked like if its registration asks for that, as the scrubbed
// bodies show it. It tells each URL once, and few in all.
// Promise: learned-answers-have-no-data
func TestShapesOfAnswers(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		r := newRig(t, setup{})
		r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			switch q.URL.Path {
			case "/page":
				w.Header().Set("Content-Type", "text/html")
			case "/missing":
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprintf(w, `{"id":1,"name":"value","key_%s":"x","auth":{%q:true,"n":1}}`, secretValue, secretValue)
		}))
		reg := controlapi.Registration{Generation: 1, Run: "r", Deadline: time.Now().Add(time.Minute)}
		if wanted {
			reg.Shapes = []string{"demo"}
		}
		_, err := r.book.Begin(0, reg)
		check(t, err)
		get := func(path string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+demoHost+path, nil)
			check(t, err)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			resp, err := r.client(false).Do(req)
			check(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			check(t, resp.Body.Close())
		}
		for _, path := range []string{"/a?x=1", "/a?x=2", "/page", "/missing"} {
			get(path)
		}
		for i := range 30 {
			get(fmt.Sprint("/n/", i))
		}
		rec, err := r.book.End(0, 1)
		check(t, err)
		if !wanted {
			if len(rec.Answers) > 0 {
				t.Errorf("not asked for: %+v", rec.Answers)
			}
			continue
		}
		if len(rec.Answers) != 16 {
			t.Fatalf("%d answers", len(rec.Answers))
		}
		a := rec.Answers[0]
		text := a.Shape.String()
		if a.API != "demo" || a.Method != http.MethodGet || !strings.HasSuffix(a.URL, "/a?x") ||
			!strings.Contains(text, "id: number; name: string;") || strings.Contains(fmt.Sprintf("%+v", a.Shape), secretValue) || strings.Contains(text, "value") {
			t.Errorf("%+v %s", a, text)
		}
		for _, b := range rec.Answers[1:] {
			if strings.Contains(b.URL, "/page") || strings.Contains(b.URL, "/missing") || b.URL == a.URL {
				t.Errorf("%s", b.URL)
			}
		}
	}
}
