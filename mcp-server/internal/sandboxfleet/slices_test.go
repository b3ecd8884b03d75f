package sandboxfleet_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandboxfleet"
)

// endpoints is an EndpointSlice as an API server writes it, with a field that nothing here reads.
func endpoints(name, version, list string) string {
	return `{"metadata":{"name":"` + name + `","resourceVersion":"` + version + `","labels":{"x":"y"}},"addressType":"IPv4",
		"ports":[{"name":"runs","port":8443,"protocol":"TCP"},{"name":"control","port":8444}],"endpoints":[` + list + `]}`
}

func endpoint(uid, ip, conditions string) string {
	return `{"addresses":["` + ip + `"],"conditions":{` + conditions + `},"targetRef":{"kind":"Pod","name":"p","uid":"` + uid + `"}}`
}

// TestFollow: the list, then changes from its version on; pods that are not ready or leave, slices that go, and things
// that are not pods of ours. At the end of a watch another one goes on; when the version is too old, Follow ends.
func TestFollow(t *testing.T) {
	var asked []string
	const selector = "labelSelector=kubernetes.io%2Fservice-name%3Dcf-sandbox"
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" || !strings.Contains(r.URL.RawQuery, selector) ||
			r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/boxes/endpointslices" {
			t.Errorf("asked %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		version := r.URL.Query().Get("resourceVersion")
		asked = append(asked, r.URL.Query().Get("watch")+"/"+version)
		event := func(kind, object string) { fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object) }
		switch {
		case r.URL.Query().Get("watch") == "":
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"10"},"items":[%s]}`, endpoints("one", "9", endpoint("u1", "10.0.0.1", `"ready":true`)+`,{"addresses":["10.0.0.9"],"conditions":{}}`))
		case version == "10":
			event("ADDED", endpoints("two", "11", endpoint("u2", "10.0.0.2", `"ready":false`)))
			event("MODIFIED", endpoints("one", "12", endpoint("u1", "10.0.0.1", `"ready":true,"serving":true,"terminating":true`)))
			event("BOOKMARK", `{"metadata":{"resourceVersion":"20"}}`)
		case version == "20":
			event("DELETED", endpoints("one", "21", ""))
			event("ADDED", strings.Replace(endpoints("six", "22", endpoint("u6", "fd00::1", "")), "IPv4", "IPv6", 1))
		default:
			event("ERROR", `{"kind":"Status","code":410,"reason":"Expired"}`)
		}
	}))
	defer api.Close()
	account := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(account, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(account, "token"), []byte("t0ken\n"), 0o600))
	s := &sandboxfleet.Slices{Namespace: "boxes", Service: "cf-sandbox", Server: api.URL, Account: account}
	var heard []map[string]bool
	err := s.Follow(t.Context(), func(list []sandboxfleet.Place) {
		now := map[string]bool{}
		for _, p := range list {
			now[p.ID+" "+p.Runs+" "+p.Control] = p.Ready
		}
		heard = append(heard, now)
	})
	one, two := "u1 10.0.0.1:8443 10.0.0.1:8444", "u2 10.0.0.2:8443 10.0.0.2:8444"
	want := []map[string]bool{{one: true}, {one: true, two: false}, {one: false, two: false}, {two: false}, {two: false}}
	if !reflect.DeepEqual(heard, want) {
		t.Errorf("heard %v\nwant  %v", heard, want)
	}
	if got := strings.Join(asked, " "); got != "/ 1/10 1/20 1/22" {
		t.Errorf("asked %s", got)
	}
	if err == nil || !strings.Contains(err.Error(), "410") {
		t.Errorf("ended with %v", err)
	}
}

// TestFollowStranger: a server whose certificate is not one for its address gets no token.
func TestFollowStranger(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("it got %q", r.Header.Get("Authorization"))
	}))
	defer api.Close()
	account := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(account, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(account, "token"), []byte("t0ken"), 0o600))
	s := &sandboxfleet.Slices{Namespace: "boxes", Service: "cf-sandbox", Server: strings.Replace(api.URL, "127.0.0.1", "localhost", 1), Account: account}
	if err := s.Follow(t.Context(), func([]sandboxfleet.Place) {}); err == nil {
		t.Error("followed")
	}
}

// TestFollowShared: pods that share a proxy have no control port; other pods must have one.
func TestFollowShared(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			w.WriteHeader(http.StatusGone)
			return
		}
		slice := strings.Replace(endpoints("one", "9", endpoint("u1", "10.0.0.1", `"ready":true`)), `,{"name":"control","port":8444}`, "", 1)
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"10"},"items":[%s]}`, slice)
	}))
	defer api.Close()
	account := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(account, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(account, "token"), []byte("t0ken"), 0o600))
	for shared, want := range map[bool]int{true: 1, false: 0} {
		s := &sandboxfleet.Slices{Namespace: "boxes", Service: "cf-sandbox", Server: api.URL, Account: account, Shared: shared}
		heard := -1
		_ = s.Follow(t.Context(), func(list []sandboxfleet.Place) { heard = len(list) }) // until the watch is refused
		if heard != want {
			t.Errorf("shared %v: %d pods, want %d", shared, heard, want)
		}
	}
}
