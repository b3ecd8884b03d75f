package egress_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// TestConnectionLogin: NTLM and Negotiate authenticate a connection, not a request. The next request on that connection
// would be authenticated too, so there is none, not even from the same run. Other runs never share a connection with
// it.
// Promise: one-run-one-identity
func TestConnectionLogin(t *testing.T) {
	for name, c := range map[string]struct {
		values []string // of Authorization
		reused bool
	}{
		"none":                {nil, true},
		"Bearer":              {[]string{"Bearer " + tokenName}, true},
		"Basic":               {[]string{"Basic eDp5"}, true},
		"a word like NTLM":    {[]string{"NTLMish x"}, true},
		"NTLM":                {[]string{"NTLM " + tokenName}, false},
		"lower case":          {[]string{"ntlm TlRMTVNTUAAD"}, false},
		"Negotiate":           {[]string{"Negotiate YIIabc"}, false},
		"without a token":     {[]string{"Negotiate"}, false},
		"a tab behind it":     {[]string{"Negotiate\tYIIabc"}, false},
		"as the second value": {[]string{"Bearer x", "Negotiate YIIabc"}, false},
		"in a list":           {[]string{"Bearer x, NTLM TlRMTVNTUAAD"}, false},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/h1", true: "/h2"}[h2], func(t *testing.T) {
				r := newRig(t, setup{})
				var mu sync.Mutex
				var from []string
				r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					from = append(from, req.RemoteAddr+" "+strings.Join(req.Header["Authorization"], ", "))
				}))
				r.beginIn(0, 1)
				r.beginIn(1, 1)
				ask := func(id slot.ID, values []string) {
					req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/", nil)
					check(t, err)
					req.Header["Authorization"] = values
					resp, err := r.clientIn(id, h2).Do(req)
					check(t, err)
					body(t, resp)
				}
				ask(0, c.values)
				ask(0, nil)
				ask(1, nil)
				mu.Lock()
				defer mu.Unlock()
				if len(from) != 3 {
					t.Fatalf("the upstream saw %q", from)
				}
				first, _, _ := strings.Cut(from[0], " ")
				if strings.HasPrefix(from[1], first+" ") != c.reused || strings.HasPrefix(from[2], first+" ") {
					t.Errorf("requests came on %q; reused by the same run must be %t", from, c.reused)
				}
			})
		}
	}
}
