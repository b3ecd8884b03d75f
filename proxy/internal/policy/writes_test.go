package policy

import "testing"

func TestWrites(t *testing.T) {
	for name, c := range map[string]struct {
		q    Request
		want bool
	}{
		"GET":                     {Request{Methods: []string{"GET"}}, false},
		"get, as some servers do": {Request{Methods: []string{" get"}}, false},
		"HEAD, OPTIONS":           {Request{Methods: []string{"HEAD", "OPTIONS"}}, false},
		"POST":                    {Request{Methods: []string{"POST"}}, true},
		"a GET that is a DELETE":  {Request{Methods: []string{"GET", "DELETE"}}, true},
		"a method of its own":     {Request{Methods: []string{"PROPFIND"}}, true},
		"a WebSocket":             {Request{Methods: []string{"GET"}, Upgrade: "websocket"}, true},
	} {
		if got := c.q.CanWrite(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
