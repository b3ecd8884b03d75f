package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answer returns a tool's result with the contents.
func answer(contents ...mcp.Content) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: contents}, nil
}

// say returns a tool's result with one text.
func say(format string, args ...any) (*mcp.CallToolResult, error) {
	return answer(text(fmt.Sprintf(format, args...)))
}

// says returns a tool that answers every call alike.
func says(contents ...mcp.Content) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return answer(contents...) }
}

// tool adds a tool; an empty schema accepts any arguments.
func tool(server *mcp.Server, name, schema string, h mcp.ToolHandler) {
	if schema == "" {
		schema = `{"type":"object"}`
	}
	server.AddTool(&mcp.Tool{Name: name, Description: "A fixture", InputSchema: json.RawMessage(schema)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := h(ctx, req)
			var protocol *jsonrpc.Error
			if err != nil && !errors.As(err, &protocol) {
				res, err = &mcp.CallToolResult{IsError: true, Content: []mcp.Content{text(err.Error())}}, nil
			}
			return res, err
		})
}

func addTools(server *mcp.Server) {
	addContents(server)
	tool(server, "test_tool_with_logging", "", withLogging)
	tool(server, "test_tool_with_progress", "", withProgress)
	tool(server, "test_reconnection", "", reconnection)
	tool(server, "test_x_mcp_header", `{"type":"object","properties":{
		"region":{"type":"string","description":"mirrored into Mcp-Param-Region","x-mcp-header":"Region"},
		"level":{"type":"integer","description":"not mirrored"}}}`,
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return say("called with %s", req.Params.Arguments)
		})
	tool(server, "json_schema_2020_12_tool", schema2020,
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return say("JSON Schema 2020-12 tool called with: %s", req.Params.Arguments)
		})
	tool(server, "test_missing_capability", "", missingCapability)
	tool(server, "test_streaming_elicitation", "", says(text("result frames only")))
	tool(server, "test_logging_tool", "",
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			logTo(ctx, req, "test_logging_tool executed")
			return say("log attempted")
		})
	tool(server, "test_trigger_tool_change", "",
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			tool(server, "transient_tool", "", says(text("transient")))
			return say("tools changed")
		})
	tool(server, "test_trigger_prompt_change", "",
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			server.AddPrompt(&mcp.Prompt{Name: "transient_prompt", Description: "A fixture"},
				func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
					return &mcp.GetPromptResult{}, nil
				})
			return say("prompts changed")
		})
}

func withLogging(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for _, what := range []string{"started", "processing data", "completed"} {
		logTo(ctx, req, "Tool execution "+what)
		time.Sleep(50 * time.Millisecond)
	}
	return say("Tool with logging executed successfully")
}

func withProgress(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	token := req.Params.GetProgressToken()
	for _, done := range []float64{0, 50, 100} {
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: done, Total: 100, Message: fmt.Sprintf("Completed step %.0f of 100", done),
		})
		if err != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return say("%v", token)
}

// reconnection closes its stream before it answers: the client must come back for the result.
func reconnection(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if req.Extra != nil && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
	}
	time.Sleep(100 * time.Millisecond)
	return say("Reconnection test completed successfully.")
}

// addContents adds a tool for each kind of content.
func addContents(server *mcp.Server) {
	for name, contents := range map[string][]mcp.Content{
		"test_simple_text":       {text("This is a simple text response for testing.")},
		"test_image_content":     {picture()},
		"test_audio_content":     {&mcp.AudioContent{Data: silence(), MIMEType: "audio/wav"}},
		"test_embedded_resource": {embedded("test://embedded-resource")},
		"test_multiple_content_types": {
			text("Multiple content types test:"), picture(), embedded("test://mixed-content-resource"),
		},
	} {
		tool(server, name, "", says(contents...))
	}
	tool(server, "test_error_handling", "", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("This tool intentionally returns an error for testing") //nolint:staticcheck // the suite's
	})
}

// logTo sends a log message, which the SDK drops if the client did not ask for it.
func logTo(ctx context.Context, req *mcp.CallToolRequest, text string) {
	message := &mcp.LoggingMessageParams{Level: "info", Data: text} //nolint:staticcheck // deprecated, but tested
	_ = req.Session.Log(ctx, message)                               //nolint:staticcheck // as above
}

// missingCapability is refused to clients that cannot sample.
func missingCapability(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil { //nolint:staticcheck // as above
		return say("the client can sample")
	}
	data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{
		RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}, //nolint:staticcheck // as above
	})
	if err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client must be able to sample", Data: data,
	}
}

const schema2020 = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object",
		"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`
