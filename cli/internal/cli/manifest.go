package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/tokencount"
)

func manifestCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "manifest", Short: "show what a model sees of CodeForge, and how many tokens it takes",
		Long: `
"Always" lists the texts that a client puts into the model's context at the
start: the tools and the server's instructions. "On demand" lists the texts that
a model gets when it calls the tool. Token counts are estimates without a
model's tokenizer. Models differ from each other by a tenth, and the estimate
differs from them by about as much.

Exit codes: 0 shown; 1 CodeForge does not run.`,
		Example: exampleText("codeforge manifest", "codeforge manifest --full"),
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	full := c.Flags().Bool("full", false, "print the texts too")
	c.RunE = useConnection(e, t.openSession, func(ctx context.Context, s *mcpclient.Session, _ []string) error {
		parts, err := s.ReadManifest(ctx)
		if err != nil {
			return err
		}
		return showManifest(e, parts, *full, *asJSON)
	})
	return c
}

// manifestRow is one text that a model receives.
type manifestRow struct {
	Name string `json:"name"`
	// Always means that every conversation starts with the text. Otherwise the model requests it.
	Always bool   `json:"always"`
	Tokens int    `json:"tokens"`
	Bytes  int    `json:"bytes"`
	Text   string `json:"text,omitempty"`
}

func showManifest(e *Env, parts []mcpclient.ManifestPart, full, asJSON bool) error {
	rows := []manifestRow{}
	always := 0
	for _, p := range parts {
		r := manifestRow{Name: p.Name, Always: p.Always, Tokens: tokencount.EstimateTokens(p.Text), Bytes: len(p.Text)}
		if full {
			r.Text = p.Text
		}
		if r.Always {
			always += r.Tokens
		}
		rows = append(rows, r)
	}
	if asJSON {
		return printJSON(e.Stdout, map[string]any{"always_tokens": always, "estimate": true, "parts": rows})
	}
	for _, section := range []struct {
		title  string
		always bool
	}{{"Always in the model's context", true}, {"On demand", false}} {
		fmt.Fprintf(e.Stdout, "%s\n", section.title)
		for _, r := range rows {
			if r.Always == section.always {
				fmt.Fprintf(e.Stdout, "  %-28s about %5d tokens %7d bytes\n", safetext.OneLine(r.Name), r.Tokens, r.Bytes)
				printManifestText(e, r)
			}
		}
		if section.always {
			fmt.Fprintf(e.Stdout, "  %-28s about %5d tokens\n", "together", always)
		}
	}
	return nil
}

func printManifestText(e *Env, r manifestRow) {
	if r.Text == "" {
		return
	}
	for line := range strings.Lines(strings.TrimSpace(r.Text)) {
		fmt.Fprintf(e.Stdout, "    | %s\n", safetext.OneLine(strings.TrimRight(line, "\n")))
	}
}
