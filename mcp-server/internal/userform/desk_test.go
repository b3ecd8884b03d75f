package userform

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

var form = Question{Message: "Who?", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}

// connect connects a client of a revision with a server whose one tool does work.
func connect(
	t *testing.T, d *Desk, protocol string, opts *mcp.ClientOptions, work func(context.Context, Asker) *mcp.CallToolResult,
) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "work", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return d.RunCall(ctx, req, "owner", work), nil
		})
	near, far := mcp.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), far, nil); err != nil {
		t.Fatal(err)
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts).
		Connect(t.Context(), near, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// say is a result of words.
func say(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// twice asks two questions and says what was answered.
func twice(ctx context.Context, ask Asker) *mcp.CallToolResult {
	var all []string
	for range 2 {
		a, err := ask(ctx, form)
		if err != nil {
			return say(err.Error())
		}
		all = append(all, a.Action+string(a.Content))
	}
	return say(strings.Join(all, " "))
}

func text(t *testing.T, s *mcp.ClientSession, p *mcp.CallToolParams) string {
	t.Helper()
	res, err := s.CallTool(t.Context(), p)
	if err != nil {
		return err.Error()
	}
	if len(res.Content) == 0 {
		return ""
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// TestRounds: two questions in one call, by a client of either era, and by one that shows no forms.
// Promise: questions-reach-their-user
func TestRounds(t *testing.T) {
	for _, protocol := range []string{"2025-11-25", "2026-07-28"} {
		names := []string{"Ann", "Bob"}
		answers := func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r.Params.Message != form.Message {
				t.Errorf("%s: the user was asked %q", protocol, r.Params.Message)
			}
			name := names[0]
			names = names[1:]
			return &mcp.ElicitResult{Action: Accept, Content: map[string]any{"name": name}}, nil
		}
		d := &Desk{}
		s := connect(t, d, protocol, &mcp.ClientOptions{ElicitationHandler: answers}, twice)
		if got := text(t, s, &mcp.CallToolParams{Name: "work"}); got != `accept{"name":"Ann"} accept{"name":"Bob"}` {
			t.Errorf("%s: %s", protocol, got)
		}
		if len(d.parked) != 0 {
			t.Errorf("%s: %d calls are parked", protocol, len(d.parked))
		}
		s = connect(t, d, protocol, nil, twice)
		if got := text(t, s, &mcp.CallToolParams{Name: "work"}); got != ErrNobody.Error() {
			t.Errorf("%s: %s", protocol, got)
		}
	}
}

// bare is a client that gives results that ask for input to the test, which answers by itself.
func bare(t *testing.T, d *Desk, work func(context.Context, Asker) *mcp.CallToolResult) *mcp.ClientSession {
	return connect(t, d, Rounds, &mcp.ClientOptions{
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		Capabilities:   &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
	}, work)
}

// TestComesBack: only the call's own client comes back to it, once, and with the state that it was given.
// Promise: questions-reach-their-user
func TestComesBack(t *testing.T) {
	d := &Desk{}
	s := bare(t, d, func(ctx context.Context, ask Asker) *mcp.CallToolResult {
		a, err := ask(ctx, form)
		if err != nil {
			return say(err.Error())
		}
		return say(a.Action)
	})
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
	if err != nil || res.RequestState == "" || len(res.InputRequests) != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	back := func(state string) *mcp.CallToolParams {
		return &mcp.CallToolParams{
			Name: "work", RequestState: state, InputResponses: mcp.InputResponseMap{key: &mcp.ElicitResult{Action: Decline}},
		}
	}
	if got := text(t, s, back("another")); got != Gone {
		t.Errorf("another state: %s", got)
	}
	if d.takeCall(res.RequestState, "another owner") != nil {
		t.Error("another owner took the call")
	}
	if got := text(t, s, back(res.RequestState)); got != Decline {
		t.Errorf("%s", got)
	}
	if got := text(t, s, back(res.RequestState)); got != Gone {
		t.Errorf("a second time: %s", got)
	}
}

// TestGivenUp: work that is waiting for a client ends when the client gives up the call that came back, and a call whose
// work ended meanwhile still has its result.
func TestGivenUp(t *testing.T) {
	d := &Desk{}
	ended := make(chan error, 1)
	s := bare(t, d, func(ctx context.Context, ask Asker) *mcp.CallToolResult {
		if _, err := ask(ctx, form); err != nil {
			return say(err.Error())
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return say("ended")
	})
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.CallTool(ctx, &mcp.CallToolParams{
		Name: "work", RequestState: res.RequestState, InputResponses: mcp.InputResponseMap{key: &mcp.ElicitResult{Action: Accept}},
	})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(<-ended, context.Canceled) {
		t.Errorf("%v", err)
	}

	s = bare(t, d, func(ctx context.Context, ask Asker) *mcp.CallToolResult {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // as a run's timeout
		defer cancel()
		_, err := ask(ctx, form)
		return say(err.Error())
	})
	if res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	got := text(t, s, &mcp.CallToolParams{Name: "work", RequestState: res.RequestState})
	if got != context.DeadlineExceeded.Error() && res.RequestState != "" {
		t.Errorf("%s", got)
	}
}

// TestRoomForParked: more calls than there is room for do not wait, but are told that nobody answers.
func TestRoomForParked(t *testing.T) {
	d := &Desk{}
	s := bare(t, d, func(ctx context.Context, ask Asker) *mcp.CallToolResult {
		_, err := ask(ctx, form)
		if err != nil {
			return say(err.Error())
		}
		return say("")
	})
	for range maxParked {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
		if err != nil || res.RequestState == "" {
			t.Fatalf("%+v %v", res, err)
		}
	}
	if got := text(t, s, &mcp.CallToolParams{Name: "work"}); !strings.Contains(got, "no answer") {
		t.Errorf("%q", got)
	}
	for state := range d.parked {
		d.takeCall(state, "owner").stop()
	}
}

// TestPanic: a panic of the work is that of the call.
func TestPanic(t *testing.T) {
	p := &parkedCall{done: make(chan struct{}), panic: "x"}
	close(p.done)
	defer func() {
		if recover() != "x" {
			t.Error("the panic is lost")
		}
	}()
	(&Desk{}).waitForCall(t.Context(), p)
}

// TestStreamOfCall: a question of a call reaches a client that has no stream open but that of the call, in whatever
// context it is asked, and ends with that context and with the call.
// Promise: questions-reach-their-user
func TestStreamOfCall(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	ended := make(chan error, 1)
	work := func(_ context.Context, ask Asker) *mcp.CallToolResult {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		a, err := ask(ctx, form)
		if err != nil {
			return say(err.Error())
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			_, err := ask(ctx, form)
			ended <- errors.Join(err, ctx.Err())
		}()
		given, end := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, end)
		_, err = ask(given, Question{Message: "wait"})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		return say(a.Action)
	}
	server.AddTool(&mcp.Tool{Name: "work", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return new(Desk).RunCall(ctx, req, "owner", work), nil
		})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	defer web.Close()
	var asked atomic.Int32
	over := make(chan struct{})
	opts := &mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if asked.Add(1) == 1 {
			return &mcp.ElicitResult{Action: Decline}, nil
		}
		select {
		case <-ctx.Done():
		case <-over:
		}
		return nil, context.Canceled
	}}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: web.URL, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	testkit.Must(t, err)
	defer s.Close()
	defer close(over)
	if got := text(t, s, &mcp.CallToolParams{Name: "work", Arguments: map[string]any{}}); got != Decline {
		t.Errorf("the call got %q", got)
	}
	if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the call: %v", err)
	}
}
