package egress_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDebug: payloads are logged before swapping and after scrubbing, both redacted.
func TestDebug(t *testing.T) {
	r := newRig(t, setup{debug: true, redact: []string{"Jane Roe"}})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	req, _ := http.NewRequest("POST", "https://"+demoHost+"/things?key=Jane+Roe", strings.NewReader("hello from Jane Roe"))
	req.Header.Set("Authorization", "Bearer "+tokenName)
	resp, err := r.client(false).Do(req)
	check(t, err)
	body(t, resp)
	end()
	logs := r.logs.String()
	for _, want := range []string{"[debug] >>> POST https://" + demoHost + "/things?key", "[debug] <<<", "hello from REDACTED", "Bearer " + tokenName} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log has no %q:\n%s", want, logs)
		}
	}
	for _, never := range []string{secretValue, "Jane"} {
		if strings.Contains(logs, never) {
			t.Errorf("the log has %q:\n%s", never, logs)
		}
	}
}

// TestNoPayloadsWithoutDebug: without DEBUG_MODE no body is logged.
func TestNoPayloadsWithoutDebug(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	resp, err := r.client(false).Post("https://"+demoHost+"/?q=private-value", "text/plain", strings.NewReader("private-body"))
	check(t, err)
	body(t, resp)
	if rec := end(); strings.Contains(r.logs.String()+rec.Exchanges[0].URL, "private-") {
		t.Errorf("the log says:\n%s", r.logs)
	}
}

// TestMixedAccounts: a host in two APIs swaps only the names of the run's, under both APIs' rules.
func TestMixedAccounts(t *testing.T) {
	second := strings.NewReplacer(tokenName, "SECOND_TOKEN", secretValue, "second-secret-value").Replace(demoAPI(`, "restricted_methods": ["PUT"]`))
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(""), "second": second}})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin("demo")
	send := func(method, name string) int {
		req, _ := http.NewRequest(method, "https://"+demoHost+"/", nil)
		req.Header.Set("Authorization", name)
		resp, err := r.client(false).Do(req)
		check(t, err)
		body(t, resp)
		return resp.StatusCode
	}
	if status := send("GET", tokenName); status != 200 || up.last(t).Header.Get("Authorization") != secretValue {
		t.Errorf("the run's own name: %d, %q", status, up.last(t).Header.Get("Authorization"))
	}
	if status := send("GET", "SECOND_TOKEN"); status != 200 || up.last(t).Header.Get("Authorization") != "SECOND_TOKEN" {
		t.Errorf("another API's name: %d, %q", status, up.last(t).Header.Get("Authorization"))
	}
	if status := send("PUT", tokenName); status != 403 {
		t.Errorf("a method that the other API restricts: %d", status)
	}
	rec := end()
	if rec.Exchanges[0].Outcome != proxyapi.OutcomeServed || rec.Count.Swapped != 1 || len(rec.Hints) != 2 {
		t.Errorf("the receipt says %+v", rec)
	}
}
