package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// heldRules make writes wait for a person, some of them for the operator.
var heldRules = []any{
	map[string]any{"methods": []string{"PUT"}, "then": "approve"},
	map[string]any{"methods": []string{"POST"}, "then": "approve", "by": "any"},
	map[string]any{"then": "allow"},
}

// heldWorld is a world whose API "ruled" has heldRules.
func heldWorld(t *testing.T) *world.World {
	t.Helper()
	return world.Start(t, world.Config{Change: func(apis []world.API) []world.API {
		for i, a := range apis {
			if a.Name == "ruled" {
				apis[i].Config["rules"] = heldRules
			}
		}
		return apis
	}})
}

// eras are the revisions of MCP whose clients are asked in different ways.
var eras = map[string]string{"with sessions": "2025-11-25", "without": "2026-07-28"}

// client connects a client that answers questions with this function. Nil means that it cannot answer any.
func client(t *testing.T, w *world.World, version string, answer func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "approving", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: answer})
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: w.HTTP()}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// operate runs the command line of the operator, on the host in Docker mode.
func operate(t *testing.T, w *world.World, args ...string) string {
	t.Helper()
	out, err := w.Operate(t.Context(), t.TempDir(), args...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || err != nil && w.Mode != world.Docker {
		t.Errorf("codeforge %v: %v", args, err)
	}
	return out
}

// TestApprovals: a request that a rule holds leaves if the user says so in the MCP client, whichever revision it
// speaks, or the operator at the command line; and not by a client that accepts without an answer.
// Promise: exact-approvals
func TestApprovals(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := heldWorld(t)
	accept := func(content map[string]any) func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		}
	}
	const yes, no, lies = "approve", "refuse", "the client says that it can ask, and cannot"
	for era, version := range eras {
		for _, row := range []struct {
			name, method string
			answer       func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)
			asked        int32  // how often the client is asked
			operator     string // what the operator does then
			want         string
		}{
			{"the user approves", "POST", accept(map[string]any{"decision": "approve once"}), 1, "", "200"},
			{"the user refuses", "POST", accept(map[string]any{"decision": "refuse"}), 1, "", "403 approval_denied"},
			{"the user declines", "POST", func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}, 1, "", "403 approval_denied"},
			{"the client accepts by itself", "POST", accept(nil), 1, no, "403 approval_denied"},
			{"the user dismisses the form", "POST", func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "cancel"}, nil
			}, 1, yes, "200"},
			{"the client cannot ask", "POST", nil, 0, yes, "200"},
			{lies, "POST", func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return nil, errors.New("no") }, 1, no, "403 approval_denied"},
			{"the operator alone may approve", "PUT", accept(map[string]any{"decision": "approve once"}), 0, no, "403 approval_denied"},
			{"the operator alone approves", "PUT", accept(map[string]any{"decision": "approve once"}), 0, yes, "200"},
		} {
			t.Run(era+"/"+row.name, func(t *testing.T) {
				var asked atomic.Int32
				var shown atomic.Value
				var answer func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)
				if row.answer != nil {
					answer = func(ctx context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						asked.Add(1)
						shown.Store(q.Params.Message)
						return row.answer(ctx, q)
					}
				}
				s := client(t, w, version, answer)
				trial := fmt.Sprintf("held%d", time.Now().UnixNano())
				type outcome struct {
					r   world.Result
					err error
				}
				done := make(chan outcome, 1)
				go func() {
					r, err := w.Do(within(t, 60), s, world.Run{Code: fmt.Sprintf(`const r = await fetch("https://d.wild.test/anything/notes?t=%s", {method: %q,
  headers: {Authorization: "Bearer RULED_TOKEN"}, body: "[click](x)\nSEEN \u202e"});
const text = await r.text();
console.log(r.status, r.status === 200 ? "" : JSON.parse(text).code);`, trial, row.method)})
					done <- outcome{r, err}
				}()
				if row.operator != "" {
					id := w.FirstHeld(t)
					if n := len(w.Upstream.Seen(trial)); n != 0 {
						t.Errorf("%d requests left before the answer", n)
					}
					operate(t, w, row.operator, id)
				}
				o := <-done
				if row.name == lies && era == "without" { // the SDK's client ends the call with what its user's program said
					if o.err == nil || len(w.Upstream.Seen(trial)) != 0 {
						t.Errorf("%+v", o)
					}
					return
				}
				if o.err != nil {
					t.Fatal(o.err)
				}
				if got := strings.TrimSpace(o.r.Out); !strings.HasPrefix(got, row.want) {
					t.Errorf("got %q %s, want %s", got, o.r.Notes, row.want)
				}
				seen := w.Upstream.Seen(trial)
				if (row.want == "200") != (len(seen) == 1) || len(seen) == 1 && seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["RULED_TOKEN"].Value() {
					t.Errorf("the upstream saw %d requests", len(seen))
				}
				if asked.Load() != row.asked {
					t.Errorf("the client was asked %d times", asked.Load())
				}
				if text, _ := shown.Load().(string); row.asked > 0 && (!strings.Contains(text, "/anything/notes?t="+trial) || !strings.Contains(text, "    | \"[click](x)") && !strings.Contains(text, "    | [click](x)") ||
					strings.Contains(text, "\u202e") || !strings.Contains(text, "RULED_TOKEN") || w.Leak(text) != "") {
					t.Errorf("shown: %s", text)
				}
			})
		}
	}
}

// TestLateForm: a form that nobody decided on in time leaves when the code is run again after an approval, once, though
// Deno gives it another boundary.
// Promise: exact-approvals
func TestLateForm(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := heldWorld(t)
	trial := fmt.Sprintf("form%d", time.Now().UnixNano())
	send := func(amount, ms int) string {
		t.Helper()
		r, err := w.Do(within(t, 60), w.Session(), world.Run{Code: fmt.Sprintf(`const form = new FormData();
form.set("amount", "%d");
form.set("file", new Blob(["notes"]), "notes.txt");
try {
  const r = await fetch("https://d.wild.test/anything/notes?t=%s", {method: "PUT", headers: {Authorization: "Bearer RULED_TOKEN"},
    body: form, signal: AbortSignal.timeout(%d)});
  await r.text();
  console.log(r.status);
} catch (e) {
  console.log(e.name);
}`, amount, trial, ms)})
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(r.Out)
	}
	if got := send(5, 8000); got != "TimeoutError" {
		t.Fatal(got)
	}
	var held []struct {
		ID, URL string
	}
	testkit.Must(t, json.Unmarshal([]byte(operate(t, w, "held", "--json")), &held))
	if len(held) != 1 || !strings.HasSuffix(held[0].URL, trial) {
		t.Fatalf("%+v", held)
	}
	operate(t, w, "approve", held[0].ID)
	for i, c := range []struct {
		amount, ms int
		want       string
	}{{50, 1500, "TimeoutError"}, {5, 30_000, "200"}, {5, 1500, "TimeoutError"}} {
		if got := send(c.amount, c.ms); got != c.want {
			t.Errorf("%d: %d: %s, want %s", i, c.amount, got, c.want)
		}
	}
	if n := len(w.Upstream.Seen(trial)); n != 1 {
		t.Errorf("%d forms left", n)
	}
}

// TestApprovalPausesClock: a run's time limit does not count while a request of it waits for a person.
// Promise: exact-approvals
func TestApprovalPausesClock(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := heldWorld(t)
	for era, version := range eras {
		s := client(t, w, version, func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			time.Sleep(20 * time.Second) // longer than the run may take, and than the proxy gives it on top
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve once"}}, nil
		})
		r, err := w.Do(within(t, 90), s, world.Run{Timeout: 6, Code: `const r = await fetch("https://d.wild.test/anything/notes", {method: "POST", body: "x"});
console.log(r.status); await new Promise((r) => setTimeout(r, 30000));`})
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(r.Out) == "" || !strings.HasPrefix(r.Out, "200") || !strings.Contains(r.JSON, `"reason":"timeout"`) {
			t.Errorf("%s: %s", era, r.JSON)
		}
	}
}

// TestHeldRaces: whatever happens while a request waits, exactly the approved bytes are sent once, or nothing.
// Promise: exact-approvals
func TestHeldRaces(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := heldWorld(t)
	// post runs code, in a session of its own, that sends a body and waits so long for the answer. It prints the status.
	post := func(ctx context.Context, trial, body string, seconds int) <-chan string {
		s := client(t, w, "2025-11-25", nil)
		done := make(chan string, 1)
		go func() {
			r, err := w.Do(ctx, s, world.Run{Code: fmt.Sprintf(`console.log(await fetch("https://d.wild.test/anything/race?t=%s", {method: "PUT", body: %q,
  signal: AbortSignal.timeout(%d)}).then((r) => r.status, (e) => e.name));`, trial, body, seconds*1000)})
			if err != nil {
				r.Out = "no answer"
			}
			done <- strings.TrimSpace(r.Out)
		}()
		return done
	}
	sent := func(trial string) string {
		var all []string
		for _, s := range w.Upstream.Seen(trial) {
			all = append(all, string(s.Body))
		}
		return strings.Join(all, " ")
	}
	decide := func(verb, id string) { // what is gone is an error of the command
		_, _ = w.Operate(t.Context(), t.TempDir(), verb, id)
	}
	for name, race := range map[string]func(t *testing.T, trial string) (want string){
		"the run is cancelled, then approved": func(t *testing.T, trial string) string {
			ctx, cancel := context.WithCancel(within(t, 60))
			done := post(ctx, trial, "first", 50)
			id := w.FirstHeld(t)
			cancel()
			<-done
			decide("approve", id)
			return ""
		},
		"approved after the code gave up, then sent twice": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 10)
			id := w.FirstHeld(t)
			if got := <-done; got != "TimeoutError" {
				t.Errorf("the code got %q", got)
			}
			decide("approve", id)
			if got := <-post(within(t, 60), trial, "first", 20); got != "200" {
				t.Errorf("the same request got %q", got)
			}
			if got := <-post(within(t, 60), trial, "first", 2); got != "TimeoutError" {
				t.Errorf("the same request, again, got %q", got)
			}
			return "first"
		},
		"approved after the code gave up, then with another body": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 10)
			id := w.FirstHeld(t)
			<-done
			decide("approve", id)
			if got := <-post(within(t, 60), trial, "other", 2); got != "TimeoutError" {
				t.Errorf("another body got %q", got)
			}
			return ""
		},
		"approved by two at once": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 50)
			id := w.FirstHeld(t)
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { decide("approve", id) })
			}
			both.Wait()
			if got := <-done; got != "200" {
				t.Errorf("the code got %q", got)
			}
			return "first"
		},
		"refused by one, then approved by another": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 50)
			id := w.FirstHeld(t)
			decide("refuse", id)
			decide("approve", id)
			if got := <-done; got != "403" {
				t.Errorf("the code got %q", got)
			}
			return ""
		},
		"of two runs, one is approved": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 50)
			id := w.FirstHeld(t)
			ctx, cancel := context.WithCancel(within(t, 60))
			other := post(ctx, trial, "other", 50)
			testkit.WaitFor(t, func() bool { return strings.Count(operate(t, w, "held", "--json"), `"waiting": true`) == 2 })
			decide("approve", id)
			if got := <-done; got != "200" {
				t.Errorf("the code got %q", got)
			}
			cancel()
			<-other
			return "first"
		},
		"the configuration changes, then approved": func(t *testing.T, trial string) string {
			done := post(within(t, 60), trial, "first", 50)
			id := w.FirstHeld(t)
			path := filepath.Join(w.Dir, "apis", "ruled", "config.json")
			text, err := os.ReadFile(path)
			testkit.Must(t, err)
			testkit.Must(t, os.WriteFile(path, bytes.Replace(text, []byte("rules and a limit"), []byte("rules, and a limit"), 1), 0o600))
			testkit.WaitFor(t, func() bool { return !strings.Contains(operate(t, w, "held", "--json"), id) })
			decide("approve", id)
			if got := <-done; got == "200" {
				t.Errorf("the code got %q", got)
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			trial := fmt.Sprintf("race%d", time.Now().UnixNano())
			want := race(t, trial)
			time.Sleep(300 * time.Millisecond) // for what should not come
			if got := sent(trial); got != want {
				t.Errorf("sent %q, want %q", got, want)
			}
		})
	}
}
