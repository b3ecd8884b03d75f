package control

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// scrubbed is the answer to a text that is to be stored.
func scrubbed(t *testing.T, text string) (int, string) {
	t.Helper()
	c, _ := newControl(t)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/scrub", strings.NewReader(text)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestScrub: token names replace the credentials of active and inactive APIs, in texts longer than other requests too.
// Promise: never-printed
func TestScrub(t *testing.T) {
	long := strings.Repeat("x", 2*maxBody)
	status, text := scrubbed(t, `["k=`+canary+`demo", "", "`+strings.ToUpper(canary)+`off `+long+`", "`+canary+`off"]`)
	if status != http.StatusOK || !strings.HasPrefix(text, `["k=DEMO_TOKEN","","`) || !strings.HasSuffix(text, long+`","OFF_TOKEN"]`) {
		t.Errorf("%d %.60s", status, text)
	}
	for _, wrong := range []string{`{}`, `["` + strings.Repeat("x", 9<<20) + `"]`} {
		if status, _ := scrubbed(t, wrong); status != http.StatusBadRequest {
			t.Errorf("%.9s: %d", wrong, status)
		}
	}
}

// TestScrubFile: token names replace credentials in a file of any size, also across the pieces in which it arrives.
// Promise: never-printed
func TestScrubFile(t *testing.T) {
	c, _ := newControl(t)
	s := httptest.NewServer(c)
	defer s.Close()
	filler := strings.Repeat("\xff\x00", 1<<20)
	for name, row := range map[string][2]string{
		"text": {"k=" + canary + "demo;", "k=DEMO_TOKEN;"}, "long": {filler + canary + "demo" + filler, filler + "DEMO_TOKEN" + filler},
		"of an inactive API": {canary + "off", "OFF_TOKEN"}, "empty": {"", ""},
	} {
		resp, err := http.Post(s.URL+"/v1/scrub/file", "application/octet-stream", strings.NewReader(row[0]))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != row[1] {
			t.Errorf("%s: %d bytes %.40q %v", name, len(got), got, err)
		}
	}
}
