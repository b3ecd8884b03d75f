package egress_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestCutLines: where a log line is truncated, no part of a string that must not be logged remains.
func TestCutLines(t *testing.T) {
	r := newRig(t, setup{
		debug: true, redact: []string{"Jane Roe"},
		apis: map[string]string{"demo": demoAPI(`, "restricted_methods": ["PUT"]`)},
	})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 4<<10-4)+"Jane Roe")
	}))
	end := r.begin()
	url := "https://" + demoHost + "/"
	url += strings.Repeat("y", 2048-len(url)-4) + "Jane%20Roe"
	for _, method := range []string{"PUT", "GET"} { // refused before redaction, and served
		req, _ := http.NewRequest(method, url, nil)
		resp, err := r.client(false).Do(req)
		check(t, err)
		body(t, resp)
	}
	rec := end()
	for _, text := range []string{r.logs.String(), rec.Exchanges[0].URL, rec.Exchanges[1].URL} {
		if strings.Contains(text, "Jane") {
			t.Errorf("a part stays: %s", text)
		}
	}
}
