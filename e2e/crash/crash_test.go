// Package crash kills each daemon at each step of a run, and delivers messages late. Whatever is killed, and when, the
// caller gets a correct response or an error that says what to do, and no run ever acts as another or is reported as
// one.
package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

// answer is what one caller got.
type answer struct {
	world.Result
	err error
}

// call runs code in a new session. Cancel ends it.
func (s *system) call(ctx context.Context, code, api string) <-chan answer {
	s.t.Helper()
	var session *mcp.ClientSession
	s.until("connecting", func() (err error) {
		session, err = s.Connect(ctx)
		return err
	})
	out := make(chan answer, 1)
	go func() {
		defer session.Close()
		r, err := s.Do(ctx, session, world.Run{Code: code, APIs: []string{api}, Timeout: 60})
		out <- answer{r, err}
	}()
	return out
}

// await waits for an answer and fails if none comes.
func await(t *testing.T, who string, from <-chan answer) answer {
	t.Helper()
	select {
	case a := <-from:
		return a
	case <-time.After(90 * time.Second):
		t.Fatalf("the call of %s does not end", who)
		return answer{}
	}
}

// The first client's code sends requests to its one API, each with a mark, two of them or until it is refused.
func persistent(mark string, endless bool) string {
	return fmt.Sprintf(`console.log("start %[1]s");
for (let n = 0, failed = 0; (n < 2 || %[2]t) && failed < 25; n++) {
  try {
    const r = await fetch("https://%[3]s/anything/%[1]s", {headers: {Authorization: "Bearer STRICT_TOKEN"}, signal: AbortSignal.timeout(5000)});
    await r.text();
    failed = r.ok ? 0 : failed + 1;
  } catch { failed++; }
  await new Promise((r) => setTimeout(r, 10));
}
console.log("end %[1]s");`, mark, endless, upstream.Strict)
}

// follower is a client that comes after the crash. Its run is limited to another API, so that every request that it may
// make is one that the first client's run must not make, and the reverse.
type follower struct {
	api, host, token string
}

var followers = []follower{{"httpbin", upstream.HTTPBin, "HTTPBIN_TOKEN"}, {"other", upstream.Other, "OTHER_TOKEN"}}

// code sends requests to the run's own host and to that of the crashed run.
func (f follower) code(mark string) string {
	return fmt.Sprintf(`for (const [host, token] of [["%s", "%s"], ["%s", "STRICT_TOKEN"]]) {
  const r = await fetch("https://" + host + "/anything/%s", {headers: {Authorization: "Bearer " + token}});
  const body = await r.json();
  console.log(r.status, body.code ?? body.headers.Authorization[0]);
}`, f.host, f.token, upstream.Strict, mark)
}

// check compares a follower's answer with what its own run must have done.
func (s *system) check(t *testing.T, f follower, mark string, a answer) {
	t.Helper()
	if a.err != nil || a.IsError {
		t.Errorf("%s after the crash: %v %q %q", f.api, a.err, a.Out, a.Notes)
		return
	}
	if want := "200 Bearer " + f.token + "\n403 api_not_in_run\n"; a.Out != want {
		t.Errorf("%s acted as another run: it printed %q, want %q", f.api, a.Out, want)
	}
	list := s.registered(f.api)
	if len(list) == 0 || a.Receipt.Run != list[len(list)-1].Run || a.Receipt.Generation != list[len(list)-1].Generation {
		t.Errorf("the receipt of %s is of run %q, generation %d; registered: %+v", f.api, a.Receipt.Run, a.Receipt.Generation, list)
	}
	if c := a.Receipt.Count; c.Exchanges != 2 || c.Denied != 1 {
		t.Errorf("the receipt of %s counts %+v, want 2 exchanges, 1 denied", f.api, c)
	}
	for _, x := range a.Receipt.Exchanges {
		if x.Run != a.Receipt.Run || !strings.HasSuffix(x.URL, "/"+mark) {
			t.Errorf("the receipt of %s holds %s of run %s", f.api, x.URL, x.Run)
		}
	}
	seen := s.upstream.Seen(mark)
	if len(seen) != 1 || seen[0].Host != f.host || seen[0].Header.Get("Authorization") != "Bearer "+s.canaries[f.token].Value() {
		t.Errorf("%d requests of %s arrived, want one with its credential", len(seen), f.api)
	}
}

// follow lets two clients use both slots at once, and checks that each acted as itself. It calls meanwhile when both
// runs are registered and before their code starts.
func (s *system) follow(t *testing.T, tag string, meanwhile func()) {
	t.Helper()
	both := []*stop{s.stopAt(point{run, false}), s.stopAt(point{run, false})}
	var answers []<-chan answer
	mark := func(f follower) string { return f.api + "-" + tag }
	for _, f := range followers {
		answers = append(answers, s.call(t.Context(), f.code(mark(f)), f.api))
	}
	for _, b := range both {
		s.reach(t, b, nil)
	}
	if a, b := s.registered(followers[0].api), s.registered(followers[1].api); a[len(a)-1].slot == b[len(b)-1].slot {
		t.Errorf("two runs at once in slot %s", a[len(a)-1].slot)
	}
	meanwhile()
	for _, b := range both {
		close(b.letGo)
	}
	for i, f := range followers {
		s.check(t, f, mark(f), await(t, f.api, answers[i]))
	}
}

// reach waits until a stop holds its message. The call of caller, if not nil, must not end before.
func (s *system) reach(t *testing.T, p *stop, caller <-chan answer) {
	t.Helper()
	select {
	case <-p.reached:
	case a := <-caller:
		t.Fatalf("the call ended %s: %v %q %q", p.at, a.err, a.Out, a.Notes)
	case <-time.After(60 * time.Second):
		t.Fatalf("no message comes to %s", p.at)
	}
}

// silent checks that the crashed run's code did nothing once other runs had both slots.
func (s *system) silent(t *testing.T, mark, tag string) {
	t.Helper()
	others := map[string]bool{}
	for _, seen := range s.upstream.Seen("") {
		for _, f := range followers {
			if strings.HasSuffix(seen.Target, "/"+f.api+"-"+tag) {
				others[f.api] = true
			}
		}
		if strings.HasSuffix(seen.Target, "/"+mark) && len(others) == len(followers) {
			t.Errorf("code of the crashed run was served when its slot was another's: %s %s", seen.Host, seen.Target)
		}
	}
}

// sound checks what the first caller got: the correct response, or an error that says that the call can be tried again.
func (s *system) sound(t *testing.T, victim string, at point, mark string, a answer) {
	t.Helper()
	t.Logf("the caller got: %v %q %q", a.err, a.Out, a.Notes)
	switch {
	case victim == server && a.err != nil:
	case victim == server && !at.late():
		t.Errorf("an answer from a mcp-server that was killed before it gave one: %+v", a.Result)
	case a.err != nil:
		t.Errorf("no answer: %v", a.err)
	case a.IsError && at.late():
		t.Errorf("an error, although only the slot was not free yet: %q %q", a.Out, a.Notes)
	case a.IsError:
		if text := strings.ToLower(a.Out + a.Notes); !strings.Contains(text, "again") {
			t.Errorf("an error that does not say what to do: %q %q", a.Out, a.Notes)
		}
	case a.Out != "start "+mark+"\nend "+mark+"\n":
		t.Errorf("a wrong answer: %q %q", a.Out, a.Notes)
	case (a.Receipt.Generation == 0) != strings.Contains(a.Notes, "receipt"):
		t.Errorf("a receipt that is lost without a word, or the other way round: %+v %q", a.Receipt, a.Notes)
	}
	for _, x := range a.Receipt.Exchanges {
		if !strings.HasSuffix(x.URL, "/"+mark) || x.Run != a.Receipt.Run {
			t.Errorf("the first caller's receipt holds %s of run %s", x.URL, x.Run)
		}
	}
}

// embeddedOnly skips the test in Docker mode, where e2e/docker kills containers.
func embeddedOnly(t *testing.T) {
	t.Helper()
	if world.CurrentMode() == world.Docker {
		t.Skip("daemons are started directly: tested in embedded mode")
	}
}

// TestEachStep kills each daemon before and after each step of a run, and starts it again.
// Promise: one-run-one-identity
func TestEachStep(t *testing.T) {
	embeddedOnly(t)
	s := start(t)
	for _, victim := range []string{server, sandbox, proxy} {
		for _, at := range steps {
			for _, answered := range []bool{false, true} {
				p := point{at, answered}
				if !t.Run(strings.ReplaceAll(victim+" "+p.String(), " ", "-"), func(t *testing.T) { s.crash(t, victim, p) }) {
					t.FailNow() // a message may be held, and then its slot is taken
				}
			}
		}
	}
}

// crash is one row of TestEachStep.
func (s *system) crash(t *testing.T, victim string, at point) {
	s.forget()
	tag := fmt.Sprintf("%d", time.Now().UnixNano())
	mark := "first-" + tag
	during := at == point{run, true}
	if at.step == lease || at.step == ahead { // a new mcp-server holds none
		s.kill(server)
		s.start(server)
	}
	stopped := s.stopAt(at)
	caller := s.call(t.Context(), persistent(mark, during), "strict")
	if at.late() {
		s.reach(t, stopped, nil)
	} else {
		s.reach(t, stopped, caller)
	}
	if during {
		s.until("the first run's requests", func() error {
			if len(s.upstream.Seen(mark)) == 0 {
				return errors.New("none has arrived")
			}
			return nil
		})
	}
	s.kill(victim)
	arrived := len(s.upstream.Seen(mark))
	close(stopped.letGo)
	s.start(victim)
	s.sound(t, victim, at, mark, await(t, "the first client", caller))
	if n := len(s.upstream.Seen(mark)); during && victim == proxy && n > arrived+1 { // one may have been in flight
		t.Errorf("%d requests of a run that the new proxy does not know arrived", n-arrived)
	}
	s.follow(t, tag, func() {})
	s.allFree()
	s.silent(t, mark, tag)
}

// TestLate delivers a message of a run after its slot was given to another run. The message is refused, and the other
// run is not affected.
// Promise: one-run-one-identity
func TestLate(t *testing.T) {
	embeddedOnly(t)
	s := start(t)
	rows := []struct {
		name string
		late step
		// lost ends the run while its message is held.
		lost func(cancel context.CancelFunc)
	}{
		{"PUT of a server that died", register, func(context.CancelFunc) { s.kill(server); s.start(server) }},
		{"PUT of a call that was cancelled", register, func(cancel context.CancelFunc) { cancel() }},
		{"DELETE of a server that died", unregister, func(context.CancelFunc) { s.kill(server); s.start(server) }},
	}
	for _, r := range rows {
		if !t.Run(r.name, func(t *testing.T) {
			s.forget()
			tag := fmt.Sprintf("%d", time.Now().UnixNano())
			mark := "first-" + tag
			late := s.stopAt(point{r.late, false})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			caller := s.call(ctx, persistent(mark, false), "strict")
			s.reach(t, late, caller)
			r.lost(cancel)
			if a := await(t, "the first client", caller); a.err == nil {
				t.Errorf("an answer to a call that was lost: %+v", a.Result)
			}
			s.follow(t, tag, func() {
				close(late.letGo)
				select {
				case <-late.delivered:
				case <-time.After(testkit.Patience):
					t.Fatal("the late message is not answered")
				}
				if late.status != http.StatusConflict {
					t.Errorf("the late message is answered %d, want 409", late.status)
				}
			})
			s.allFree()
			s.silent(t, mark, tag)
		}) {
			t.FailNow()
		}
	}
}
