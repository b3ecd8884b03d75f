package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// formSchema is the JSON Schema of a form for the user. properties maps a name to its JSON Schema.
func formSchema(required string, properties string) map[string]any {
	s := map[string]any{"type": "object", "properties": json.RawMessage(properties)}
	if required != "" {
		s["required"] = []string{required}
	}
	return s
}

// addQuestions adds the tools and the prompt that ask the client for input: with a request from the server up to
// revision 2025-11-25, with a result that requests input since then.
func addQuestions(server *mcp.Server) {
	addTool(server, "test_sampling",
		`{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`, handleSampling)
	addFormTool(server, "test_elicitation", formSchema("username", `{
		"username":{"type":"string","description":"User's response"},"email":{"type":"string"}}`))
	addFormTool(server, "test_elicitation_sep1034_defaults", formSchema("", `{
		"name":{"type":"string","default":"John Doe"},
		"age":{"type":"integer","default":30},
		"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
		"verified":{"type":"boolean","default":true}}`))
	addFormTool(server, "test_elicitation_sep1330_enums", formSchema("", `{
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

func handleSampling(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
		return nil, err
	}
	res, err := req.Session.CreateMessage(ctx, samplingRequest(in.Prompt, 100)) //nolint:staticcheck // deprecated, but tested
	if err != nil {
		return nil, err
	}
	if t, ok := res.Content.(*mcp.TextContent); ok {
		return answerText("LLM response: %s", t.Text)
	}
	return answerText("LLM response without text")
}

// samplingRequest returns a sampling request.
//
//nolint:staticcheck // as above
func samplingRequest(prompt string, tokens int64) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		MaxTokens: tokens,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: textContent(prompt)}},
	}
}

// addFormTool adds a tool that shows the user a form.
func addFormTool(server *mcp.Server, name string, form map[string]any) {
	addTool(server, name, "", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
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
		return answerText("Elicitation completed: action=%s, content=%s", res.Action, content)
	})
}

var (
	nameForm    = formSchema("name", `{"name":{"type":"string"}}`)
	confirmForm = formSchema("ok", `{"ok":{"type":"boolean"}}`)
)

// askInput returns a result that requests input.
func askInput(state string, requests mcp.InputRequestMap) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{InputRequests: requests, RequestState: state}, nil
}

// acceptedInput returns the user's input, or nil.
func acceptedInput(responses mcp.InputResponseMap, key string) map[string]any {
	if r, ok := responses[key].(*mcp.ElicitResult); ok && r != nil && r.Action == "accept" {
		return r.Content
	}
	return nil
}

func formParams(message string, s map[string]any) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: message, RequestedSchema: s}
}

// addRounds adds the fixtures whose results request input, some of them more than once.
func addRounds(server *mcp.Server) {
	const prefix = "test_input_required_result_"
	addTool(server, prefix+"elicitation", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult,
		error) {
		if name, _ := acceptedInput(req.Params.InputResponses, "user_name")["name"].(string); name != "" {
			return answerText("Hello, %s!", name)
		}
		return askInput("", mcp.InputRequestMap{"user_name": formParams("What is your name?", nameForm)})
	})
	addTool(server, prefix+"sampling", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if text, ok := sampledText(req.Params.InputResponses, "capital_question"); ok {
			return answerText("Sampling response: %s", text)
		}
		return askInput("", mcp.InputRequestMap{"capital_question": samplingRequest("What is the capital of France?", 100)})
	})
	addTool(server, prefix+"list_roots", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult,
		error) {
		if n, ok := countRoots(req.Params.InputResponses, "client_roots"); ok {
			return answerText("Client exposed %d root(s)", n)
		}
		return askInput("", mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}}) //nolint:staticcheck // as above
	})
	addTool(server, prefix+"request_state", "", handleConfirmed)
	addTool(server, prefix+"tampered_state", "", handleConfirmed)
	addTool(server, prefix+"multiple_inputs", "", handleMultiple)
	addTool(server, prefix+"multi_round", "", handleRounds)
	addTool(server, prefix+"capabilities", "", handleCapable)
	server.AddPrompt(&mcp.Prompt{Name: prefix + "prompt", Description: "A fixture"}, askForContext)
}

// askForContext asks the user for what the prompt needs.
func askForContext(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	if content := acceptedInput(req.Params.InputResponses, "user_context"); content != nil {
		answer := textContent(fmt.Sprintf("Context: %v", content["context"]))
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: answer}}}, nil
	}
	return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{
		"user_context": formParams("Please provide context for the prompt",
			formSchema("context", `{"context":{"type":"string"}}`)),
	}}, nil
}

func sampledText(responses mcp.InputResponseMap, key string) (string, bool) {
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

func countRoots(responses mcp.InputResponseMap, key string) (int, bool) {
	r, ok := responses[key].(*mcp.ListRootsResult) //nolint:staticcheck // as above
	if !ok || r == nil {
		return 0, false
	}
	return len(r.Roots), true
}

// handleConfirmed sends a state with its request for input, and refuses any other one that comes back.
func handleConfirmed(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	const state = "confirmed-state"
	if req.Params.RequestState != "" && req.Params.RequestState != state {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state was changed"}
	}
	if req.Params.RequestState == state && acceptedInput(req.Params.InputResponses, "confirm") != nil {
		return answerText("state-ok: the state came back and was confirmed")
	}
	return askInput(state, mcp.InputRequestMap{"confirm": formParams("Please confirm", confirmForm)})
}

// handleMultiple requests three inputs at once.
func handleMultiple(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, _ := acceptedInput(req.Params.InputResponses, "user_name")["name"].(string)
	greeting, greeted := sampledText(req.Params.InputResponses, "greeting")
	roots, listed := countRoots(req.Params.InputResponses, "client_roots")
	if name != "" && greeted && listed {
		return answerText("%s %s, %d root(s)", greeting, name, roots)
	}
	return askInput("multiple", mcp.InputRequestMap{
		"user_name":    formParams("What is your name?", nameForm),
		"greeting":     samplingRequest("Generate a greeting", 50),
		"client_roots": &mcp.ListRootsParams{}, //nolint:staticcheck // as above
	})
}

// handleRounds asks twice. The state carries the answer of the first round.
func handleRounds(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, second := strings.CutPrefix(req.Params.RequestState, "second:")
	switch {
	case req.Params.RequestState == "":
		return askInput("first", mcp.InputRequestMap{"step1": formParams("Step 1: What is your name?", nameForm)})
	case !second:
		name, _ := acceptedInput(req.Params.InputResponses, "step1")["name"].(string)
		color := formSchema("color", `{"color":{"type":"string"}}`)
		return askInput("second:"+name, mcp.InputRequestMap{"step2": formParams("Step 2: What is your favorite color?",
			color)})
	}
	return answerText("%s likes %v", name, acceptedInput(req.Params.InputResponses, "step2")["color"])
}

// handleCapable requests only input that the client supports.
func handleCapable(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	requests, caps := mcp.InputRequestMap{}, req.ClientCapabilities()
	if len(req.Params.InputResponses) > 0 || caps == nil {
		return answerText("answered")
	}
	if caps.Elicitation != nil {
		requests["user_name"] = formParams("What is your name?", nameForm)
	}
	if caps.Sampling != nil { //nolint:staticcheck // as above
		requests["greeting"] = samplingRequest("Generate a short greeting", 50)
	}
	if caps.RootsV2 != nil { //nolint:staticcheck // as above
		requests["client_roots"] = &mcp.ListRootsParams{} //nolint:staticcheck // as above
	}
	if len(requests) == 0 {
		return answerText("the client can answer nothing")
	}
	return askInput("", requests)
}
