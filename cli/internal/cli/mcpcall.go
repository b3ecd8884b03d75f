package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// scriptReply is the output of the scripts of mcp, on one line.
type scriptReply struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error *struct {
		Code    string `json:"code,omitempty"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// errorOrNil returns the reply's error for a person, or nil.
func (o scriptReply) errorOrNil() error {
	if o.Error == nil {
		return nil
	}
	text := o.Error.Message
	if o.Error.Code != "" {
		text = o.Error.Code + ": " + text
	}
	return errors.New(safetext.OneLine(text))
}

// buildScript returns code that prints the reply of an expression. The expression can use name, tool and args. title
// becomes the title of the run.
func buildScript(title, expression string, values map[string]any) string {
	line, _ := json.Marshal(values) // texts and JSON
	return fmt.Sprintf(`// %s
const { name, tool, args } = %s;
let out;
try {
  out = { value: await (%s) ?? null };
} catch (e) {
  out = { error: { code: e.code, message: String(e.message ?? e) } };
}
console.log(JSON.stringify(out));
`, safetext.OneLine(title), line, expression)
}

// evaluateExpression runs an expression in the sandbox like any code, in a run that may use only one server. A user who
// may run code may call tools, so this way needs no further protection.
func (o *mcpOptions) evaluateExpression(
	ctx context.Context, e *Env, title, name, expression string, values map[string]any,
) (scriptReply, mcpclient.Result, error) {
	var out scriptReply
	if values == nil {
		values = map[string]any{}
	}
	values["name"] = name
	c, err := o.target.newConfig(e)
	if err != nil {
		return out, mcpclient.Result{}, err
	}
	r, err := executeRun(ctx, e, c, mcpclient.Run{Code: buildScript(title, expression, values), APIs: []string{name}}, "")
	if err != nil {
		return out, r, err
	}
	if err := json.Unmarshal([]byte(r.Output), &out); err != nil {
		words := strings.Fields(r.Output + " " + strings.Join(r.Notes, " ")) // on one line
		return out, r, errors.New(safetext.OneLine(strings.Join(words, " ")))
	}
	return out, r, nil
}

func (o *mcpOptions) listTools(ctx context.Context, e *Env, name string) error {
	if _, err := o.findServer(e, name); err != nil {
		return err
	}
	if o.json {
		out, _, err := o.evaluateExpression(ctx, e, "mcp tools "+name, name, "mcp[name].$tools()", nil)
		if err == nil {
			err = out.errorOrNil()
		}
		if err != nil {
			return err
		}
		return printJSON(e.Stdout, out.Value)
	}
	s, err := o.target.openSession(ctx, e)
	if err != nil {
		return err
	}
	defer s.Close()
	p := startProgress(e, "asking "+name)
	text, err := s.ReadTools(ctx, name)
	p.stop()
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Stdout, strings.TrimSpace(safetext.EscapeOdd(text)))
	return nil
}

func (o *mcpOptions) callTool(ctx context.Context, e *Env, name, tool string, rest []string) error {
	if _, err := o.findServer(e, name); err != nil {
		return err
	}
	arguments := "{}"
	if len(rest) == 1 {
		arguments = rest[0]
	}
	if arguments == "-" {
		const most = 16 << 20
		text, err := io.ReadAll(io.LimitReader(e.Stdin, most))
		if err != nil {
			return err
		}
		arguments = string(text)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(arguments), &object); err != nil || object == nil {
		return usageError("mcp call: the arguments are not an object; want JSON like '{\"query\": \"x\"}'")
	}
	out, _, err := o.evaluateExpression(ctx, e, "mcp call "+name+" "+tool, name, "mcp[name][tool].raw(args)",
		map[string]any{"tool": tool, "args": json.RawMessage(arguments)})
	if err == nil {
		err = out.errorOrNil()
	}
	if err != nil {
		return err
	}
	var result struct {
		Content []struct {
			Type, Text, MimeType, Path string
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(out.Value, &result); err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	switch {
	case o.json:
		err = printJSON(e.Stdout, out.Value)
	case len(result.Structured) > 0 && !result.IsError:
		err = printJSON(e.Stdout, result.Structured)
	default:
		for _, c := range result.Content {
			text := c.Text
			if c.Type != "text" {
				text = "[" + strings.TrimSpace(c.Type+" "+c.MimeType) + "]"
			}
			fmt.Fprintln(e.Stdout, safetext.EscapeOdd(text))
		}
	}
	if err == nil && result.IsError {
		return silentError(ExitFailed)
	}
	return err
}
