package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// ManifestPart is one text that a model receives.
type ManifestPart struct {
	Name string
	// Always means that clients put the text into the model's context at the start. Otherwise the model requests it.
	Always bool
	Text   string
}

// ReadManifest returns everything that a model receives before it runs code.
func (s *Session) ReadManifest(ctx context.Context) ([]ManifestPart, error) {
	var out []ManifestPart
	if init := s.mcp.InitializeResult(); init != nil && init.Instructions != "" {
		out = append(out, ManifestPart{"instructions", true, init.Instructions})
	}
	var ask []string
	for tool, err := range s.mcp.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing the tools: %w", err)
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		// Escapes such as \u003c would distort the counts of bytes and tokens.
		enc.SetEscapeHTML(false)
		err := enc.Encode(struct { // the fields that clients pass to models
			Name        string `json:"name"`
			Description string `json:"description"`
			InputSchema any    `json:"input_schema"`
		}{tool.Name, tool.Description, tool.InputSchema})
		if err != nil {
			return nil, fmt.Errorf("listing the tools: %w", err)
		}
		out = append(out, ManifestPart{"tool " + tool.Name, true, b.String()})
		if tool.Name == "get_instructions" || tool.Name == "list_apis" {
			ask = append(ask, tool.Name)
		}
	}
	for _, name := range ask {
		r, err := s.callTool(ctx, "calling "+name, name, map[string]any{})
		if err != nil && !r.Failed {
			return nil, err
		}
		out = append(out, ManifestPart{name, false, r.Output + strings.Join(r.Notes, "")})
	}
	return out, nil
}
