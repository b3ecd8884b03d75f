package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// exampleConfig is the template for apis/example. CodeForge never loads it.
const exampleConfig = `{
  "description": "Stripe payments",
  "domains": ["api.stripe.com"],
  "credentials": {
    "STRIPE_AUTH_TOKEN": "rk_test_..."
  },
  "reference": "https://docs.stripe.com/api",
  "restricted_methods": ["DELETE"],
  "active": true
}
`

func initCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "init", Short: "create apis/ and .env in the working directory",
	}
	asJSON := jsonFlag(c.Flags())
	c.RunE = func(*cobra.Command, []string) error { return initHere(e, *asJSON) }
	return c
}

func initHere(e *Env, asJSON bool) error {
	made, kept, err := writeHome(e.Getenv(homeVariable)) // else the working directory, even below another home
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(e.Stdout, map[string][]string{"made": made, "kept": kept})
	}
	printEach(e.Stdout, "created  ", made)
	printEach(e.Stdout, "kept     ", kept)
	fmt.Fprint(e.Stdout, "Next: codeforge api add NAME, then codeforge up (Linux) or docker compose up -d --build.\n")
	return nil
}

// writeHome creates apis/ with an example, and .env, in the folder base ("" is the working directory). It returns the
// paths that it made, and those that existed and stay.
func writeHome(base string) (made, kept []string, err error) {
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{
		{filepath.Join(base, "apis", "example", "config.json.example"), exampleConfig, 0o644},
		{filepath.Join(base, dotenvFile), dotenvTemplate(), 0o600},
	} {
		switch err := atomicfile.Create(f.path, []byte(f.text), f.mode); {
		case errors.Is(err, fs.ErrExist):
			kept = append(kept, f.path)
		case err != nil:
			return made, kept, err
		default:
			made = append(made, f.path)
		}
	}
	return made, kept, nil
}

// dotenvTemplate lists every setting with its default, commented out.
func dotenvTemplate() string {
	var b strings.Builder
	b.WriteString("# Settings of CodeForge. All are optional; the values shown are the defaults.\n")
	for _, name := range settings.ListNames() {
		fmt.Fprintf(&b, "# %s=%s\n", name, settings.DefaultOf(name))
	}
	return b.String()
}
