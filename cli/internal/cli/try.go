package cli

import (
	"context"
	_ "embed" // try.ts
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

// tryName is the API of the first result. It needs no key, so a new user sees a result at once.
const tryName = "open-meteo"

// tryPrompt is a question as a user would ask an agent.
const tryPrompt = "How warm is it in Berlin and in Tokyo?"

// tryCode is the code that an agent writes for it.
//
//go:embed try.ts
var tryCode string

func tryCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "try", Short: "see a first result: code that calls an API without a key",
	}
	o := apiOptions{vars: map[string]string{}, target: targetFlags(c.Flags())}
	c.Flags().StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
	c.RunE = func(c *cobra.Command, _ []string) error { return o.tryFirstCall(c.Context(), e) }
	return c
}

func (o *apiOptions) tryFirstCall(ctx context.Context, e *Env) error {
	conf, err := o.target.newConfig(e)
	if err != nil {
		return &exitError{ExitNotRun, err}
	}
	s, err := mcpclient.Connect(ctx, conf, mcpclient.Options{}) // before anything is written
	if err != nil {
		return &exitError{ExitNotRun, err}
	}
	_ = s.Close()
	if err := o.addTryAPI(ctx, e); err != nil {
		return err
	}
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(tryCode), "\n", "\n  ")
	fmt.Fprintf(e.Stdout, "you\n  %s\n\ncode\n%s\n\nresult\n", tryPrompt, indented)
	r, err := executeRun(ctx, e, conf, mcpclient.Run{Code: tryCode, APIs: []string{tryName}}, "")
	if err != nil {
		return &exitError{ExitNotRun, err}
	}
	if err := showResult(e, r, true, false); err != nil {
		fmt.Fprintln(e.Stderr,
			"The code failed. If this machine has no internet, try codeforge run -e 'console.log(6 * 7)'.")
		return err
	}
	fmt.Fprintf(e.Stdout,
		"\nNext: %s connect prints how your agent connects; %[1]s api add github adds an API with a key.\n", e.programName())
	return nil
}

// addTryAPI adds the API unless a folder has its name, and waits until the running CodeForge has it.
func (o *apiOptions) addTryAPI(ctx context.Context, e *Env) error {
	if _, err := apidir.ConfigPath(o.apis, tryName); err == nil {
		return nil
	}
	if e.isInContainer() {
		return errors.New("the container cannot write apis/: run codeforge try on the host")
	}
	entry := apidir.Entry{
		Name: tryName, Description: "Weather: forecasts and history for coordinates, without a key",
		Domains: []string{"api.open-meteo.com"}, Reference: "https://open-meteo.com/en/docs", Allowed: readOnly(),
	}
	path, warnings, err := apidir.AddAPI(o.apis, entry)
	return o.printResult(ctx, e, entry, path, warnings, err)
}
