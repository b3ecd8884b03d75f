package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// toolRules are those of the server ruled-tools, whose program does not exist: a call that gets through to it fails in
// another way than one that is refused.
var toolRules = []any{
	map[string]any{"tools": []string{"wipe_*"}, "then": "refuse"},
	map[string]any{"tools": []string{"pay"}, "body": map[string]any{"amount": map[string]any{"max": 50}}, "then": "allow"},
	map[string]any{"tools": []string{"pay", "send"}, "then": "approve", "by": "any"},
	map[string]any{"tools": []string{"get_*"}, "then": "allow"},
}

// calling is code that sends a body to each of these paths of the server, and prints the codes of the answers.
func calling(headers string, pairs ...string) string {
	var list []string
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf("[%q, %s]", pairs[i], pairs[i+1]))
	}
	return fmt.Sprintf(`for (const [path, body] of [%s]) {
  const r = await fetch("https://mcp.codeforge.internal/ruled-tools/" + path, { method: "POST", body, headers: %s, signal: AbortSignal.timeout(8000) }).catch(() => null);
  console.log(r ? (await r.json()).code : "held");
}`, strings.Join(list, ", "), headers)
}

// toolCalls are attempts to call a tool past the rules of its server, and to drown a person in questions.
func toolCalls() []Attack {
	printed := func(name, expected, code string, only ...string) Attack {
		return planned(name, expected, func(ctx context.Context, w *world.World) (string, bool) {
			r, err := w.Execute(ctx, code)
			if err != nil {
				return err.Error(), false
			}
			lines := strings.Fields(r.Out)
			for _, line := range lines {
				held := false
				for _, word := range only {
					held = held || line == word
				}
				if !held {
					return strings.Join(lines, " "), false
				}
			}
			return fmt.Sprint(len(lines), " ", strings.Join(only, " or ")), len(lines) > 0
		})
	}
	const json = `{ "Content-Type": "application/json" }`
	asked := func(content map[string]any, code string) func(context.Context, *world.World) (string, bool) {
		return func(ctx context.Context, w *world.World) (string, bool) {
			forms := make(chan string, 10)
			c := mcp.NewClient(&mcp.Implementation{Name: "hasty", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					forms <- q.Params.Message
					return &mcp.ElicitResult{Action: "accept", Content: content}, nil
				},
			})
			s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: w.HTTP()}, nil)
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			r, _ := w.Do(ctx, s, world.Run{Code: calling(json, "send", `'{"to": "all of them"}'`)})
			got := strings.TrimSpace(r.Out)
			if len(forms) != 1 {
				return fmt.Sprintf("asked %d times, %s", len(forms), got), false
			}
			form := <-forms
			shown := strings.Contains(form, "CALL ruled-tools/send") && strings.Contains(form, `{"to": "all of them"}`)
			return fmt.Sprintf("shown %t, %s", shown, got), shown && (got == "held") == (code == "held") && got != "rule_refused" && got != ""
		}
	}
	return []Attack{
		printed("tools: a refused one under other names", "rule_refused", calling(json, "wipe_all", "'{}'", "wipe-all", "'{}'", "wipe.all", "'{}'",
			"wipe%2Dall", "'{}'", "%77ipe_all", "'{}'", "wipe%20all", "'{}'", "wipe_", "'{}'", "Get_all", "'{}'", "$wipe_all", "'{}'", "other", "'{}'"), "rule_refused"),
		printed("tools: arguments that two parsers read differently", "rule_unreadable", calling(json, "pay", `'{"amount":1,"amount":99}'`, "pay", `'{"amount":1,"Amount":99}'`,
			"pay", `'{"amount":1,"__proto__":{"amount":99}}'`, "pay", `'{"amount":1e1}'`, "pay", `'{"amount":{"$n":99}}'`, "pay", `'[{"amount":1}]'`, "pay", `'{"amount":1} {"amount":99}'`,
			"pay", `JSON.stringify({amount: 1, filler: "x".repeat(300_000)})`), "rule_unreadable"),
		printed("tools: arguments under another type", "held", calling(`{ "Content-Type": "application/x-www-form-urlencoded" }`, "pay", `'{"amount":99,"x":"&amount=1"}'`), "held"),
		printed("tools: arguments with a coding", "arguments_encoded", calling(`{ "Content-Encoding": "x" }`, "pay", `'{"amount":99}'`), "arguments_encoded"),
		printed("tools: a tool that a person must approve, twenty times", "few are held", strings.ReplaceAll(`const list = await Promise.all(Array.from({ length: 20 }, (_, i) => fetch("https://mcp.codeforge.internal/ruled-tools/send",
  { method: "POST", body: JSON.stringify({ i }), signal: AbortSignal.timeout(5000) }).then(async (r) => (await r.json()).code, () => "held")));
const held = list.filter((c) => c === "held").length;
console.log(held <= 8 && list.every((c) => c === "held" || c === "approval_full") ? "few" : list.join(","));`, "\n", " "), "few"),
		planned("tools: a client that accepts each form by itself", "asked, not called", asked(nil, "held")),
		planned("control: tools: a client whose user approves", "asked, called", asked(map[string]any{"decision": "approve once"}, "called")),
		printed("control: tools: a call that a rule allows gets through", "the server's error", calling(json, "get_all", "'{}'", "get-all", "'{}'", "pay", `'{"amount":50}'`, "$read", `'{"uri":"x"}'`), "server_unavailable"),
	}
}
