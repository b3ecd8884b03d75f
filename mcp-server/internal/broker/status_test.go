package broker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestToolList shows for each tool whether code may call it.
func TestToolList(t *testing.T) {
	w := newWorld(t, 1, hostile(t, "a", func(s *mcpserver.Settings) { s.Deny = []string{"echo"} }))
	if list, err := w.broker.ToolList("a"); err != nil || list == nil || len(list) > 0 {
		t.Errorf("before the first call: %v, %v", list, err)
	}
	w.call("/a/meet", `{`)
	w.broker.mu.Lock()
	tools := w.broker.servers["a"].tools
	tools[len(tools)-1].held = "changed"
	w.broker.mu.Unlock()
	list, err := w.broker.ToolList("a")
	if err != nil || len(list) != len(tools) || len(list) < 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, tool := range list {
		want := map[bool]string{true: "no", false: "yes"}[tool.Name == "echo"]
		if i == len(list)-1 {
			want = "held"
		}
		if tool.May != want {
			t.Errorf("%s: %q, want %q", tool.Name, tool.May, want)
		}
	}
	if _, err := w.broker.ToolList("b"); !errors.Is(err, operatorapi.ErrNoServer) {
		t.Errorf("an unknown server: %v", err)
	}
}

func TestStates(t *testing.T) {
	none := proxyapi.API{Name: "none", Server: &mcpserver.Settings{Command: []string{"/nonexistent/server"}, TimeoutMS: 60_000, ConnectTimeoutMS: 2000, IdleMS: 600_000, MaxConcurrent: 8, State: "shared"}}
	w := newWorld(t, 4, hostile(t, "b", nil), none, hostile(t, "a", nil), proxyapi.API{Name: "rest"})
	show := func() string {
		text := ""
		for _, s := range w.broker.ListStates() {
			tools := "?"
			if s.Tools != nil {
				tools = fmt.Sprint(*s.Tools)
			}
			text += fmt.Sprintln(s.Name, s.State, tools, s.Processes, s.Calls, s.Problem != "")
		}
		return text
	}
	if got, want := show(), "a stopped ? 0 0 false\nb stopped ? 0 0 false\nnone stopped ? 0 0 false\n"; got != want {
		t.Errorf("before the first call:\n%s", got)
	}
	w.call("/a/echo", `{"text":"hi"}`)
	for range breakerFailures {
		w.call("/none/x", `{}`)
	}
	tools, _ := w.broker.KnownTools("a")
	want := fmt.Sprintf("a running %d 1 0 false\nb stopped ? 0 0 false\nnone failing ? 0 0 true\n", len(tools))
	if got := show(); got != want || len(tools) == 0 {
		t.Errorf("after calls:\n%s", got)
	}
	done := make(chan answer)
	m := newMeeting(t)
	go func() { done <- w.call("/a/meet", m.call) }()
	testkit.WaitFor(t, func() bool { return w.broker.ListStates()[0].Calls == 1 })
	m.end()
	<-done
	if s := w.broker.ListStates()[0]; s.Calls != 0 || s.State != mcpserver.Running {
		t.Errorf("after the call: %+v", s)
	}
}
