package world

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// OpenDesktop starts the program that `codeforge connect` wrote into a configuration file of Claude Desktop, and
// connects to it. The program runs in the folder / and has only the variables of the file.
func OpenDesktop(ctx context.Context, file string) (*mcp.ClientSession, error) {
	text, err := os.ReadFile(file) //nolint:gosec // of a test
	if err != nil {
		return nil, err
	}
	var written struct {
		MCPServers struct {
			CodeForge struct {
				Command string
				Args    []string
				Env     map[string]string
			}
		}
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return nil, err
	}
	entry := written.MCPServers.CodeForge
	if !filepath.IsAbs(entry.Command) {
		return nil, fmt.Errorf("the program is not an absolute path: %s", text)
	}
	cmd := exec.Command(entry.Command, entry.Args...) //nolint:gosec,noctx // it ends with the session
	cmd.Dir, cmd.Env = "/", []string{}
	for name, value := range entry.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "desktop", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
}

// RunOnce runs code in a session that OpenDesktop opened, and returns an error unless the answer is right.
func RunOnce(ctx context.Context, session *mcp.ClientSession) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{
		Name: "execute_code", Arguments: map[string]any{"code": "console.log(6 * 7)"},
	})
	if err != nil {
		return err
	}
	if text, ok := result.Content[0].(*mcp.TextContent); result.IsError || !ok || text.Text != "42\n" {
		return fmt.Errorf("execute_code answered %+v", result.Content[0])
	}
	return nil
}
