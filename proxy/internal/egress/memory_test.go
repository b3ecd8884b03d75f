package egress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// budgetSize is the memory of a rig's runs, in bytes. A run gets at most a quarter.
const budgetSize = 256 << 20

// tableAPI is one whose requests are signed with their bodies, which are held for that.
const tableAPI = `{"description": "demo", "domains": ["table.demo.test"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
	"credentials": {"TABLE": {"aws": {"access_key_id": "AKID", "secret_access_key": "a-secret-access-key", "region": "eu-central-1", "services": ["dynamodb"]}}}}`

// hoard sends 20 signed bodies of 8 MiB that do not end from slot 0, and returns the codes of refusals as they come.
func hoard(ctx context.Context, r *rig) <-chan string {
	codes := make(chan string, 20)
	client := r.client(true)
	client.Timeout = 0
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			pr, pw := io.Pipe()
			go func() { _, _ = io.Copy(pw, bytes.NewReader(make([]byte, 8<<20))) }()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://table.demo.test/", pr)
			req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=TABLE/20200101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
			if resp, err := client.Do(req); err == nil {
				var answer proxyapi.Refusal
				if json.NewDecoder(resp.Body).Decode(&answer) == nil { // the end of ctx may cut it
					codes <- answer.Code
				}
				_ = resp.Body.Close()
			}
			_ = pr.Close()
		})
	}
	go func() { all.Wait(); close(codes) }()
	return codes
}

// TestMemoryShare: a run that holds bodies gets its share of the memory, and a request beyond is refused after a while.
// Beside it another run is served. What the run had is free when it has ended.
// Promise: one-memory-budget
func TestMemoryShare(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"table": tableAPI, "demo": demoAPI("")}})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	end := r.begin()
	r.beginIn(1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	codes := hoard(ctx, r)
	testkit.WaitFor(t, func() bool { return r.memory.UsedBytes() > budgetSize/4-16<<20 })
	resp, err := r.clientIn(1, true).Get("https://" + demoHost + "/")
	check(t, err)
	if text := body(t, resp); resp.StatusCode != http.StatusOK {
		t.Errorf("another run got %d %s", resp.StatusCode, text)
	}
	select {
	case code := <-codes:
		if code != policy.CodeTooMany {
			t.Errorf("refused with %q", code)
		}
	case <-time.After(testkit.Patience):
		t.Error("a request waits for ever")
	}
	if n := r.memory.UsedBytes(); n > budgetSize/4+4<<20 {
		t.Errorf("%d bytes are held", n)
	}
	end()
	cancel()
	for range codes { //nolint:revive // until the clients have ended
	}
	testkit.WaitFor(t, func() bool { return r.memory.UsedBytes() < 1<<20 }) // the other run's connection
}
