// Package conformance adds the fixtures of the MCP conformance suite to a CodeForge server, so that the suite tests the
// shipped transport, guard and middleware. The suite prescribes the fixtures' names and texts.
package conformance

import (
	"context"
	"encoding/base64"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
)

// watched is the resource that changes every few seconds.
const watched = "test://watched-resource"

// newFixtures returns the server with all fixtures. The watched resource changes until ctx ends.
func newFixtures(ctx context.Context, log *slog.Logger) *mcp.Server {
	server := tools.NewServer(tools.ServerConfig{
		Version:      "1.0.0",
		Instructions: "Fixtures of the conformance suite.",
		Log:          log,
		Complete: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		},
		Subscribe:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		Unsubscribe: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		Fixture:     true,
	})
	addTools(server)
	addQuestions(server)
	addTasks(server)
	addResources(server)
	addPrompts(server)
	go func() {
		tick := time.NewTicker(3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// An error means that a subscriber has gone.
				_ = server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: watched})
			}
		}
	}()
	return server
}

func addResources(server *mcp.Server) {
	add := func(uri, mime string, content mcp.ResourceContents) {
		content.URI, content.MIMEType = uri, mime
		server.AddResource(&mcp.Resource{Name: uri[len("test://"):], Description: "A fixture", MIMEType: mime, URI: uri},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&content}}, nil
			})
	}
	add("test://static-text", "text/plain", mcp.ResourceContents{Text: "This is the content of the static text resource."})
	add("test://static-binary", "image/png", mcp.ResourceContents{Blob: image()})
	add(watched, "text/plain", mcp.ResourceContents{Text: "Watched resource content"})
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "template", Description: "A fixture", MIMEType: "application/json", URITemplate: "test://template/{id}/data",
	}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		uri := req.Params.URI
		id := uri[len("test://template/") : len(uri)-len("/data")]
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
			URI: uri, MIMEType: "application/json",
			Text: `{"id": "` + id + `", "templateTest": true, "data": "Data for ID: ` + id + `"}`,
		}}}, nil
	})
}

func addPrompts(server *mcp.Server) {
	add := func(name string, args []string, messages func(map[string]string) []mcp.Content) {
		p := &mcp.Prompt{Name: name, Title: name, Description: "A fixture"}
		for _, a := range args {
			p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "An argument", Required: true})
		}
		server.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res := &mcp.GetPromptResult{Description: "A fixture"}
			for _, c := range messages(req.Params.Arguments) {
				res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
			}
			return res, nil
		})
	}
	add("test_simple_prompt", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{text("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{text("Prompt with arguments: arg1='" + a["arg1"] + "', arg2='" + a["arg2"] + "'")}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{embedded(a["resourceUri"]), text("Please process the embedded resource above.")}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{picture(), text("Please analyze the image above.")}
	})
}

func text(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

func picture() *mcp.ImageContent { return &mcp.ImageContent{Data: image(), MIMEType: "image/png"} }

func embedded(uri string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI: uri, MIMEType: "text/plain", Text: "Embedded resource content for testing.",
	}}
}

// image returns a PNG of one pixel.
func image() []byte {
	return decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
}

// silence returns a WAV file without samples.
func silence() []byte {
	return decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
}

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
