package broker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
)

// asks is a world whose users answer with answer.
func asks(t *testing.T, answer func(ctx context.Context, run string, q userform.Question) (userform.Answer, error)) *world {
	t.Helper()
	w := newWorld(t, 4, hostile(t, "a", nil))
	w.broker.cfg.Ask = answer
	return w
}

// ask calls the tool that asks the user.
func ask(text, form string, more int) string {
	line, _ := json.Marshal(map[string]any{"text": text, "form": form, "ms": more})
	return string(line)
}

// TestQuestion: what a server asks during a call goes to the user of the run that called, as the server's words, and the
// answer goes back.
// Promise: questions-reach-their-user
func TestQuestion(t *testing.T) {
	var got userform.Question
	var of string
	w := asks(t, func(_ context.Context, run string, q userform.Question) (userform.Answer, error) {
		got, of = q, run
		return userform.Answer{Action: userform.Accept, Content: json.RawMessage(`{"name":"Ann"}`)}, nil
	})
	res := w.send(t.Context(), "s2-r7", http.MethodPost, "/a/ask",
		ask("Who are\u200b you?\x1b[2J", `{"name":{"type":"string","title":"Your\u202e name"}}`, 0), 0)
	if !strings.Contains(res.text(), `"action":"accept"`) || !strings.Contains(res.text(), `"name":"Ann"`) {
		t.Fatalf("the server was told %s", res.body)
	}
	if of != "s2-r7" || got.Message != `The MCP server "a" asks; never type a secret here: Who are you?` ||
		strings.Contains(string(got.Schema), "\u202e") || !strings.Contains(string(got.Schema), `"title":"Your name"`) {
		t.Errorf("the user of %s was asked %q with %s", of, got.Message, got.Schema)
	}
	w.broker.cfg.Ask = func(context.Context, string, userform.Question) (userform.Answer, error) {
		return userform.Answer{Action: userform.Decline}, nil
	}
	if res := w.call("/a/ask", ask("Sure?", "", 0)); !strings.Contains(res.text(), `"action":"decline"`) {
		t.Errorf("the server was told %s", res.body)
	}
}

// TestUnasked: a question that is not put to the user is an error for the server, and code is told why.
// Promise: questions-reach-their-user
func TestUnasked(t *testing.T) {
	var times atomic.Int32
	w := asks(t, func(context.Context, string, userform.Question) (userform.Answer, error) {
		times.Add(1)
		return userform.Answer{Action: userform.Accept}, nil
	})
	for name, c := range map[string]struct {
		text  string
		form  string
		more  int
		says  string
		shown int32
	}{
		"write-only":    {form: `{"n":{"type":"string"},"x":{"type":"string","writeOnly":true}}`, says: "a field for a secret"},
		"a hidden name": {form: `{"na\u200bme":{"type":"string"}}`, says: "characters that do not show"},
		"hidden deeper": {form: `{"x":{"type":"string","ti\u200btle":"Your GitHub token"}}`, says: "characters that do not show"},
		"in words":      {text: "GitHub password:", form: `{"password":{"type":"string","title":"Your GitHub token"}}`, shown: 1},
		"a warning":     {form: `{"n":{"type":"integer","description":"(do not give us your phone number, pin, or other sensitive info)"}}`, shown: 1},
		"a word":        {text: "This costs 300 tokens. Continue?", shown: 1},
		"too large":     {form: `{"x":{"type":"string","description":"` + strings.Repeat("x", maxForm) + `"}}`, says: "too large"},
		"without end":   {form: `{}`, more: 20, says: "more than 5 questions", shown: maxQuestions},
		"one too many":  {form: `{}`, more: maxQuestions, says: "more than 5 questions", shown: maxQuestions},
		"as many as is": {form: `{}`, more: maxQuestions - 1, shown: maxQuestions},
	} {
		times.Store(0)
		res := w.call("/a/ask", ask(c.text, c.form, c.more))
		var r struct {
			IsError bool   `json:"isError"`
			Hint    string `json:"_hint"`
		}
		if err := json.Unmarshal(res.body, &r); err != nil || r.IsError != (c.says != "") || times.Load() != c.shown ||
			!strings.Contains(r.Hint, c.says) || (r.Hint != "") != (c.says != "") {
			t.Errorf("%s: %d times, %s", name, times.Load(), res.body)
		}
	}
	w.broker.cfg.Ask = func(context.Context, string, userform.Question) (userform.Answer, error) {
		return userform.Answer{}, userform.ErrNobody
	}
	if res := w.call("/a/ask", ask("x", "", 0)); !strings.Contains(string(res.body), "cannot show its user a question.") ||
		!strings.Contains(res.text(), "cannot show its user") {
		t.Errorf("%s", res.body)
	}
}

// TestSecretField: a form whose schema declares a field secret is not shown, also one that the SDK would not send.
// Promise: questions-reach-their-user
func TestSecretField(t *testing.T) {
	for field, want := range map[string]string{
		`{"type":"string","format":"password"}`: forbidden, `{"type":"string","writeOnly":true}`: forbidden,
		`{"type":"string","format":"email"}`: "", `{"type":"string","writeOnly":false}`: "",
	} {
		if _, got := formOf(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"x":` + field + `}}`)); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}

// TestWhoseUser: where a server does not say in which call it asks, it asks nobody while it works for several sessions,
// and does while it works for one alone.
// Promise: questions-reach-their-user
func TestWhoseUser(t *testing.T) {
	w := asks(t, func(_ context.Context, run string, _ userform.Question) (userform.Answer, error) {
		if !strings.HasPrefix(run, "s2-") {
			return userform.Answer{}, errors.New("the user of " + run + " was asked")
		}
		return userform.Answer{Action: userform.Accept}, nil
	})
	for _, c := range []struct{ busy, says string }{
		{"s1-r1", "calls of several clients are in flight"}, {"s2-r1", `"action":"accept"`},
	} {
		m := newMeeting(t)
		var other sync.WaitGroup
		other.Go(func() {
			if got := w.send(t.Context(), c.busy, http.MethodPost, "/a/meet", m.call, 0); got.text() != "met" {
				t.Errorf("%s", got.body)
			}
		})
		m.await(1)
		if res := w.send(t.Context(), "s2-r2", http.MethodPost, "/a/ask", ask("x", "", 0), 0); !strings.Contains(res.text(), c.says) {
			t.Errorf("%s: %s", c.busy, res.body)
		}
		m.end()
		other.Wait()
	}
}

// TestQuestionEnds: a question ends with the call that it is part of.
// Promise: questions-reach-their-user
func TestQuestionEnds(t *testing.T) {
	open := make(chan struct{})
	ended := make(chan struct{})
	w := asks(t, func(ctx context.Context, _ string, _ userform.Question) (userform.Answer, error) {
		close(open)
		<-ctx.Done()
		close(ended)
		return userform.Answer{}, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-open
		cancel()
	}()
	if res := w.send(ctx, "s1-r1", http.MethodPost, "/a/ask", ask("x", "", 0), 0); res.Code != cancelled {
		t.Errorf("%s", res.body)
	}
	<-ended
}

// TestProgress: what a server reports of a call goes to the client of the run that called, on one line; of many reports the
// last.
// Promise: questions-reach-their-user
func TestProgress(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	var mu sync.Mutex
	var told []string
	w.broker.cfg.Progress = func(run, text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, run+" "+text)
	}
	began := time.Now()
	res := w.send(t.Context(), "s2-r7", http.MethodPost, "/a/report", ask("half\u200b way\x1b[2J\nthere", "", 500), 0)
	most := 2 + int(time.Since(began)/(250*time.Millisecond)) // the bridge sends at most one per pause, and the last
	mu.Lock()
	defer mu.Unlock()
	const want = "s2-r7 a.report: 500 of 500: half way there"
	if n := len(told); res.status != http.StatusOK || n == 0 || n > most || told[n-1] != want {
		t.Errorf("%d reports, at most %d may come, %q; want the last %q; the call: %s", n, most, told, want, res.body)
	}
}

// TestForm: a form is shown as an object with properties. It names required fields only if there are some.
// Promise: questions-reach-their-user
func TestForm(t *testing.T) {
	for schema, want := range map[string]string{
		``: ``, `null`: ``,
		`{}`:                                  `{"type":"object","properties":{}}`,
		`{"properties":null,"required":null}`: `{"type":"object","properties":{}}`,
		`{"properties":{"n":{"type":"integer"}}}`:                                        `{"type":"object","properties":{"n":{"type":"integer"}}}`,
		`{"type":"string","x":1,"properties":{"n":{"type":"integer"}},"required":["n"]}`: `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
	} {
		if got, why := formOf(json.RawMessage(schema)); string(got) != want || why != "" {
			t.Errorf("%s: %s %s", schema, got, why)
		}
	}
}
