// Package walk follows the documents with the commands copied from them, and makes the mistakes that new users make.
package walk

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// update regenerates the documents that show what CodeForge prints.
var update = flag.Bool("update", false, "write docs/reference/commands.md and screens.md anew")

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

// embeddedOnly skips a test of embedded mode in Docker mode.
func embeddedOnly(t *testing.T) {
	t.Helper()
	if world.CurrentMode() == world.Docker {
		t.Skip("about codeforge up: tested in embedded mode")
	}
}

// within is a context for something that must end within some seconds, and a minute more on a machine that is busy with others.
func within(t *testing.T, seconds int) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// root is the root of the source tree.
func root(t *testing.T) string {
	t.Helper()
	dir, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// document is a file of the source tree.
func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block of a document.
type block struct {
	// Lang follows the opening fence, Heading is the last "## " above it, Text is the text between the fences.
	Lang, Heading, Text string
}

// blocks finds every fenced block of a document, indented ones too.
func blocks(text string) []block {
	var out []block
	var heading string
	var open *block
	indent := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case open != nil && trimmed == "```":
			out, open = append(out, *open), nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(trimmed, "```"):
			indent = line[:strings.IndexByte(line, '`')]
			open = &block{Lang: strings.TrimPrefix(trimmed, "```"), Heading: heading}
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimSpace(line[3:])
		}
	}
	return out
}

// write makes a file in a test's directory.
func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
