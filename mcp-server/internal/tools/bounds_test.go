package tools

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// shelved is a surface with nothing but skills.
func shelved(t *testing.T) *Surface {
	t.Helper()
	store, err := skill.OpenStore(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := &Surface{cfg: Config{Skills: store, Log: slog.New(slog.DiscardHandler)}}
	s.shelf = &skillResources{surface: s}
	s.server = NewServer(ServerConfig{Log: s.cfg.Log, Complete: s.shelf.completeName, Subscribe: s.shelf.acceptSubscription, Unsubscribe: s.shelf.endSubscription})
	s.addSkillTools()
	s.shelf.registerAll()
	return s
}

// join opens a session of a client with this name.
func join(t *testing.T, s *Surface, name string) (*mcp.ClientSession, error) {
	t.Helper()
	client, server := mcp.NewInMemoryTransports()
	ss, err := s.server.Connect(t.Context(), server, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ss.Close() })
	cs, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).Connect(t.Context(), client, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err == nil {
		t.Cleanup(func() { _ = cs.Close() })
	}
	return cs, err
}

// TestMessageBounds: everything in a message is short but the arguments of a tool, and those are as long as the tool
// says.
// Promise: bounded-work
func TestMessageBounds(t *testing.T) {
	s := shelved(t)
	long := strings.Repeat("x", MaxParams)
	if _, err := join(t, s, long); err == nil {
		t.Error("a client with a long name was let in")
	}
	cs, err := join(t, s, "short")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	refused := map[string]func() error{
		"resources/read": func() error {
			_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: skillURI + long})
			return err
		},
		"resources/list": func() error {
			_, err := cs.ListResources(ctx, &mcp.ListResourcesParams{Cursor: long})
			return err
		},
		"tools/list": func() error {
			_, err := cs.ListTools(ctx, &mcp.ListToolsParams{Cursor: long})
			return err
		},
		"prompts/get": func() error {
			_, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "run_skill", Arguments: map[string]string{"name": long}})
			return err
		},
		"prompts/get, another argument": func() error {
			_, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "run_skill", Arguments: map[string]string{"name": "a", long: "b"}})
			return err
		},
		"completion/complete": func() error {
			_, err := cs.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "run_skill"}, Argument: mcp.CompleteParamsArgument{Name: "name", Value: long}})
			return err
		},
		"resources/subscribe": func() error { return cs.Subscribe(ctx, &mcp.SubscribeParams{URI: skillURI + long}) },
		"a tool's name": func() error {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: long})
			return err
		},
		"_meta of a call": func() error {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "delete_skill", Meta: mcp.Meta{"x": long}, Arguments: map[string]any{"name": "a"}})
			return err
		},
		"a progress token": func() error {
			p := &mcp.CallToolParams{Name: "delete_skill", Arguments: map[string]any{"name": "a"}}
			p.SetProgressToken(long)
			_, err := cs.CallTool(ctx, p)
			return err
		},
	}
	for name, do := range refused {
		var e *jsonrpc.Error
		if err := do(); !errors.As(err, &e) || !strings.Contains(e.Message, "more than 16384 bytes") || len(e.Message) > 200 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	call := func(tool string, arguments map[string]any) string {
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return err.Error()
		}
		return res.Content[0].(*mcp.TextContent).Text
	}
	if got := call("delete_skill", map[string]any{"name": long}); !strings.Contains(got, "want at most 16384") || len(got) > 500 {
		t.Errorf("a long name: %.300q", got)
	}
	if got := call("update_skill", map[string]any{"name": "a", "patch": strings.Repeat("\n", skill.MaxPatch+1)}); strings.Contains(got, "was updated") || len(got) > 500 {
		t.Errorf("a long patch: %.300q", got)
	}
	whole := "<<<<<<< SEARCH\n=======\n" + strings.Repeat("é\n", skill.MaxSize/3) + ">>>>>>> REPLACE"
	if got := call("update_skill", map[string]any{"name": "a", "patch": whole}); !strings.Contains(got, "was updated") {
		t.Errorf("the largest skill: %.300q", got)
	}
	if got := call("update_skill", map[string]any{"name": "a", "patch": "<<<<<<< SEARCH\n" + strings.Repeat("é\n", skill.MaxSize/3) + "=======\nx\n>>>>>>> REPLACE"}); !strings.Contains(got, "was updated and now has 2 bytes") {
		t.Errorf("all of the largest skill: %.300q", got)
	}
}

// TestSubscriptions: a session has so many subscriptions and no more, and they go with it.
// Promise: bounded-work
func TestSubscriptions(t *testing.T) {
	s := shelved(t)
	cs, err := join(t, s, "a")
	if err != nil {
		t.Fatal(err)
	}
	subscribe := func(i int) error {
		return cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: fmt.Sprintf("%sname-%d", skillURI, i)})
	}
	for i := range maxSubscribed {
		if err := subscribe(i); err != nil {
			t.Fatal(i, err)
		}
	}
	if subscribe(0) != nil || subscribe(maxSubscribed) == nil {
		t.Error("the bound is not where it should be")
	}
	if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: skillURI + "name-3"}); err != nil {
		t.Fatal(err)
	}
	if err := subscribe(maxSubscribed); err != nil {
		t.Error("no room after an unsubscription:", err)
	}
	_ = cs.Close()
	for session := range s.server.Sessions() {
		_ = session.Wait()
	}
	if cs, err = join(t, s, "b"); err != nil {
		t.Fatal(err)
	}
	if err := subscribe(1); err != nil || len(s.shelf.subscribed.of) != 1 || s.shelf.subscribed.all != 1 {
		t.Errorf("%v, %d sessions have %d subscriptions", err, len(s.shelf.subscribed.of), s.shelf.subscribed.all)
	}
}

// TestLinear: what is made of skills and of a program's output takes time in proportion to them.
// Promise: bounded-work, hostile-skills
func TestLinear(t *testing.T) {
	for _, text := range []string{"`", "``` ", "\n", "a b "} {
		costtest.RequireLinear(t, 1<<20, func(n int) func() {
			source := strings.Repeat(text, n/len(text))
			return func() { skillManifest(skill.Skill{Name: "a"}, source) }
		})
	}
	for _, text := range []string{`Requires net access to "`, `Requires net access to "a.b"`, `requires `, "npm: ", "jsr: npm: a remote ", "SyntaxError: \n", "error: \n at ", `Import "`, "... 1 more items\n", "SyntaxError: x is not valid JSON"} {
		costtest.RequireLinear(t, 256<<10, func(n int) func() {
			printed := strings.Repeat(text, n/len(text))
			r := runRendering{stdout: newExcerpt(n), stderr: newExcerpt(n), limit: n}
			r.stderr.WriteString(printed)
			return func() {
				r.listHints()
				shortenError(printed, r.hasExplanation(printed))
			}
		})
	}
}

// TestFence: the fence of a skill's source is longer than any in it.
func TestFence(t *testing.T) {
	for source, want := range map[string]string{"": "```ts\n", "`": "```ts\n", "````": "`````ts\n", "``` ``": "````ts\n"} {
		if got := skillManifest(skill.Skill{Name: "a"}, source); !strings.Contains(got, "\n\n"+want) {
			t.Errorf("%q: %q", source, got)
		}
	}
}

// TestManyAPIs: names of APIs that are none are refused in few words, and compared with those that are only so often.
func TestManyAPIs(t *testing.T) {
	var known []string
	for i := range 1000 {
		known = append(known, fmt.Sprintf("%s%d", strings.Repeat("b", 50), i))
	}
	costtest.RequireLinear(t, 64, func(n int) func() {
		long := strings.Repeat("a", n)
		return func() { explainNoSuchAPI("apis", long, known) }
	})
}
