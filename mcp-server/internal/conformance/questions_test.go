package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// schema is the JSON Schema of a form for the user. properties maps a name to its JSON Schema.
func schema(required string, properties string) map[string]any {
	s := map[string]any{"type": "object", "properties": json.RawMessage(properties)}
	if required != "" {
		s["required"] = []string{required}
	}
	return s
}

// addQuestions adds the tools and the prompt that ask the client for input: with a request from the server up to
// revision 2025-11-25, with a result that requests input since then.
func addQuestions(server *mcp.Server) {
	tool(server, "test_sampling",
		`{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`, sample)
	elicit(server, "test_elicitation", schema("username", `{
		"username":{"type":"string","description":"User's response"},"email":{"type":"string"}}`))
	elicit(server, "test_elicitation_sep1034_defaults", schema("", `{
		"name":{"type":"string","default":"John Doe"},
		"age":{"type":"integer","default":30},
		"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
		"verified":{"type":"boolean","default":true}}`))
	elicit(server, "test_elicitation_sep1330_enums", schema("", `{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[
			{"const":"value1","title":"First Option"},
			{"const":"value2","title":"Second Option"},
			{"const":"value3","title":"Third Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],
			"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","minItems":1,"maxItems":3,
			"items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[
			{"const":"value1","title":"First Choice"},
			{"const":"value2","title":"Second Choice"},
			{"const":"value3","title":"Third Choice"}]}}}`))
	addRounds(server)
}

func sample(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
		return nil, err
	}
	res, err := req.Session.CreateMessage(ctx, question(in.Prompt, 100)) //nolint:staticcheck // deprecated, but tested
	if err != nil {
		return nil, err
	}
	if t, ok := res.Content.(*mcp.TextContent); ok {
		return say("LLM response: %s", t.Text)
	}
	return say("LLM response without text")
}

// question returns a sampling request.
//
//nolint:staticcheck // as above
func question(prompt string, tokens int64) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		MaxTokens: tokens,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: text(prompt)}},
	}
}

// elicit adds a tool that shows the user a form.
func elicit(server *mcp.Server, name string, form map[string]any) {
	tool(server, name, "", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(req.Params.Arguments, &in) // optional
		if in.Message == "" {
			in.Message = "Please answer"
		}
		res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.Message, RequestedSchema: form})
		if err != nil {
			return nil, err
		}
		content, err := json.Marshal(res.Content)
		if err != nil {
			return nil, err
		}
		return say("Elicitation completed: action=%s, content=%s", res.Action, content)
	})
}

var (
	nameForm    = schema("name", `{"name":{"type":"string"}}`)
	confirmForm = schema("ok", `{"ok":{"type":"boolean"}}`)
)

// ask returns a result that requests input.
func ask(state string, requests mcp.InputRequestMap) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{InputRequests: requests, RequestState: state}, nil
}

// accepted returns the user's input, or nil.
func accepted(responses mcp.InputResponseMap, key string) map[string]any {
	if r, ok := responses[key].(*mcp.ElicitResult); ok && r != nil && r.Action == "accept" {
		return r.Content
	}
	return nil
}

func form(message string, s map[string]any) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: message, RequestedSchema: s}
}

// addRounds adds the fixtures whose results request input, some of them more than once.
func addRounds(server *mcp.Server) {
	const prefix = "test_input_required_result_"
	tool(server, prefix+"elicitation", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if name, _ := accepted(req.Params.InputResponses, "user_name")["name"].(string); name != "" {
			return say("Hello, %s!", name)
		}
		return ask("", mcp.InputRequestMap{"user_name": form("What is your name?", nameForm)})
	})
	tool(server, prefix+"sampling", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if text, ok := sampled(req.Params.InputResponses, "capital_question"); ok {
			return say("Sampling response: %s", text)
		}
		return ask("", mcp.InputRequestMap{"capital_question": question("What is the capital of France?", 100)})
	})
	tool(server, prefix+"list_roots", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if n, ok := rooted(req.Params.InputResponses, "client_roots"); ok {
			return say("Client exposed %d root(s)", n)
		}
		return ask("", mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}}) //nolint:staticcheck // as above
	})
	tool(server, prefix+"request_state", "", confirmed)
	tool(server, prefix+"tampered_state", "", confirmed)
	tool(server, prefix+"multiple_inputs", "", multiple)
	tool(server, prefix+"multi_round", "", rounds)
	tool(server, prefix+"capabilities", "", capable)
	server.AddPrompt(&mcp.Prompt{Name: prefix + "prompt", Description: "A fixture"}, askForContext)
}

// askForContext asks the user for what the prompt needs.
func askForContext(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	if content := accepted(req.Params.InputResponses, "user_context"); content != nil {
		answer := text(fmt.Sprintf("Context: %v", content["context"]))
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: answer}}}, nil
	}
	return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{
		"user_context": form("Please provide context for the prompt", schema("context", `{"context":{"type":"string"}}`)),
	}}, nil
}

func sampled(responses mcp.InputResponseMap, key string) (string, bool) {
	r, ok := responses[key].(*mcp.CreateMessageWithToolsResult) //nolint:staticcheck // as above
	if !ok || r == nil {
		return "", false
	}
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			return t.Text, true
		}
	}
	return "", true
}

func rooted(responses mcp.InputResponseMap, key string) (int, bool) {
	r, ok := responses[key].(*mcp.ListRootsResult) //nolint:staticcheck // as above
	if !ok || r == nil {
		return 0, false
	}
	return len(r.Roots), true
}

// confirmed sends a state with its request for input, and refuses any other one that comes back.
func confirmed(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	const state = "confirmed-state"
	if req.Params.RequestState != "" && req.Params.RequestState != state {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state was changed"}
	}
	if req.Params.RequestState == state && accepted(req.Params.InputResponses, "confirm") != nil {
		return say("state-ok: the state came back and was confirmed")
	}
	return ask(state, mcp.InputRequestMap{"confirm": form("Please confirm", confirmForm)})
}

// multiple requests three inputs at once.
func multiple(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, _ := accepted(req.Params.InputResponses, "user_name")["name"].(string)
	greeting, greeted := sampled(req.Params.InputResponses, "greeting")
	roots, listed := rooted(req.Params.InputResponses, "client_roots")
	if name != "" && greeted && listed {
		return say("%s %s, %d root(s)", greeting, name, roots)
	}
	return ask("multiple", mcp.InputRequestMap{
		"user_name":    form("What is your name?", nameForm),
		"greeting":     question("Generate a greeting", 50),
		"client_roots": &mcp.ListRootsParams{}, //nolint:staticcheck // as above
	})
}

// rounds asks twice. The state carries the answer of the first round.
func rounds(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, second := strings.CutPrefix(req.Params.RequestState, "second:")
	switch {
	case req.Params.RequestState == "":
		return ask("first", mcp.InputRequestMap{"step1": form("Step 1: What is your name?", nameForm)})
	case !second:
		name, _ := accepted(req.Params.InputResponses, "step1")["name"].(string)
		color := schema("color", `{"color":{"type":"string"}}`)
		return ask("second:"+name, mcp.InputRequestMap{"step2": form("Step 2: What is your favorite color?", color)})
	}
	return say("%s likes %v", name, accepted(req.Params.InputResponses, "step2")["color"])
}

// capable requests only input that the client supports.
func capable(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	requests, caps := mcp.InputRequestMap{}, req.ClientCapabilities()
	if len(req.Params.InputResponses) > 0 || caps == nil {
		return say("answered")
	}
	if caps.Elicitation != nil {
		requests["user_name"] = form("What is your name?", nameForm)
	}
	if caps.Sampling != nil { //nolint:staticcheck // as above
		requests["greeting"] = question("Generate a short greeting", 50)
	}
	if caps.RootsV2 != nil { //nolint:staticcheck // as above
		requests["client_roots"] = &mcp.ListRootsParams{} //nolint:staticcheck // as above
	}
	if len(requests) == 0 {
		return say("the client cannot answer")
	}
	return ask("", requests)
}
