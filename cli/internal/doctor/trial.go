package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// trialTimeout bounds the trial. It exceeds the time limit of a start, so that a failed start can report its cause.
const trialTimeout = 50 * time.Second

// trialCode prints trialOutput.
const (
	trialCode   = "console.log([6, 7].reduce((a: number, b: number) => a * b));"
	trialOutput = "42\n"
)

// runTrial starts embedded mode on a temporary state directory and folder of APIs, and runs code. An interpreter can
// fail to start even if every part is installed.
func runTrial(ctx context.Context, c Config) []Finding {
	const check = "interpreter"
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	if err := startAndRun(ctx, c); err != nil {
		return []Finding{newFailure(check, "embedded mode does not run code here: "+err.Error(),
			"please report this line; Docker mode may work")}
	}
	return []Finding{newOK(check, "code ran in the sandbox of embedded mode")}
}

func startAndRun(ctx context.Context, c Config) (err error) {
	dir, err := os.MkdirTemp("", "codeforge-doctor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state, err := statedir.CreateDir(filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	apis := filepath.Join(dir, "apis")
	if err := os.Mkdir(apis, fs.FileMode(0o700)); err != nil {
		return err
	}
	s := c.Settings
	if c.SettingsErr != nil {
		if s, err = settings.Parse(func(string) string { return "" }); err != nil {
			return err
		}
	}
	// The trial connects without a token and reaches no host.
	s.MCPAuthToken, s.UpstreamCAFile, s.Warm, s.WarmPython = secret.Value{}, "", 1, 0
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer quiet.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := errors.New("it ended before it was ready")
	err = embedded.Run(ctx, embedded.Config{
		State: state, APIs: apis, Bin: c.Bin, Deno: c.Deno, Settings: s, Slots: 1, Environ: dropSettings(c.Environ),
		Quiet: true, Stderr: quiet,
	}, func(embedded.Ready) error {
		ran = runTrialCode(ctx, state)
		stop()
		return nil
	})
	if err != nil {
		return err
	}
	return ran
}

// runTrialCode runs the code as a model would.
func runTrialCode(ctx context.Context, state statedir.Dir) error {
	s, err := mcpclient.Connect(ctx, mcpclient.Config{State: state}, mcpclient.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.RunCode(ctx, mcpclient.Run{Code: trialCode})
	switch {
	case err != nil:
		return err
	case r.Failed || r.Output != trialOutput:
		return fmt.Errorf("the code printed %.200q instead of %q %s", r.Output, trialOutput, strings.Join(r.Notes, " "))
	}
	return nil
}

// dropSettings returns the environment without settings, because the trial needs none of their secrets.
func dropSettings(environ []string) (kept []string) {
	for _, kv := range environ {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "LANG", "LC_ALL", "TZ":
			kept = append(kept, kv)
		}
	}
	return kept
}
