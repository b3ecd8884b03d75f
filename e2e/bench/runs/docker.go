package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/compose"
)

// Docker measures the row of Docker mode: a run in a warm slot against the obvious design, one `deno run -` per call
// through the engine's API, in the same container. The row is left out if no stack can run.
func Docker(ctx context.Context, cfg Config) (bench.Report, error) {
	col := &bench.Collector{}
	err := docker(ctx, cfg, col)
	var missing *missingError
	if errors.As(err, &missing) {
		col.Miss(missing.why, "runs.docker", "runs.docker.cost", "runs.docker.rate")
		err = nil
	}
	return bench.Report{Results: col.Results()}, err
}

// engineSettle is the pause in which the engine cleans up an exec, which it does after its response, and a slot gets a
// new warm interpreter.
const engineSettle = 500 * time.Millisecond

// youth is how long after the start the engine runs a healthcheck in each container every second (internal/health).
const youth = 32 * time.Second

// missingError says why Docker mode cannot run here.
type missingError struct{ why string }

// Error implements error.
func (e *missingError) Error() string { return e.why }

func docker(ctx context.Context, cfg Config, col *bench.Collector) error {
	if err := compose.Available(ctx); err != nil {
		return &missingError{err.Error()}
	}
	apis, err := os.MkdirTemp("", "codeforge-bench-apis-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(apis)
	log.Print("execute_code, Docker: building and starting the stack")
	stack, err := compose.New(compose.Config{Root: cfg.Root, APIs: apis, Env: map[string]string{"SANDBOX_SLOTS": "8"}, Build: true})
	if err != nil {
		return err
	}
	defer func() {
		if err := stack.Down(); err != nil {
			log.Print("stopping the stack: ", err)
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := stack.Turn(waiting); err != nil {
		return &missingError{"end to end tests use the Docker stack at the moment"}
	}
	if err := stack.Up(ctx); err != nil {
		return err
	}
	log.Print("execute_code, Docker: waiting until the engine starts healthchecks less often")
	time.Sleep(youth)
	s := &server{stop: func() {}}
	if err := s.connect(ctx, stack.URL); err != nil {
		return err
	}
	defer s.Close()
	api, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer api.Close()
	for round := range cfg.Rounds {
		log.Printf("execute_code, Docker, round %d of %d", round+1, cfg.Rounds)
		var warms, execs []float64
		for range cfg.Each {
			time.Sleep(engineSettle)
			took, warm, err := s.run(ctx, Script, "2")
			if err != nil {
				return err
			}
			if warm {
				warms = append(warms, took.Seconds()*1e3)
			}
			time.Sleep(engineSettle)
			took, err = oneExec(ctx, api)
			if err != nil {
				return err
			}
			execs = append(execs, took.Seconds()*1e3)
		}
		if len(warms) < cfg.Each/2 {
			return fmt.Errorf("only %d of %d runs found a warm slot", len(warms), cfg.Each)
		}
		w, e := bench.Median(warms), bench.Median(execs)
		col.Add("runs.docker", e/w, "warm %.1f ms, exec of `deno run -` %.1f ms", w, e)
	}
	return cost(ctx, cfg, s, "runs.docker.cost", "runs.docker.rate", col)
}

// oneExec is the baseline: create an exec of `deno run -`, attach, send the script, read all output, ask for the exit
// code.
func oneExec(ctx context.Context, api *client.Client) (time.Duration, error) {
	start := time.Now()
	made, err := api.ExecCreate(ctx, compose.Sandbox, client.ExecCreateOptions{
		Cmd: []string{"/usr/local/bin/deno", "run", "-"}, Env: []string{"DENO_DIR=/tmp/bench-deno"}, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, fmt.Errorf("creating an exec: %w", err)
	}
	stream, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, fmt.Errorf("starting an exec: %w", err)
	}
	defer stream.Close()
	if _, err := io.WriteString(stream.Conn, Script); err != nil {
		return 0, err
	}
	if err := stream.CloseWrite(); err != nil {
		return 0, err
	}
	var out, errs limited
	if _, err := stdcopy.StdCopy(&out, &errs, stream.Reader); err != nil {
		return 0, err
	}
	end, err := api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	took := time.Since(start)
	if err == nil && (end.ExitCode != 0 || string(out) != "2\n") {
		err = fmt.Errorf("deno run - in the container: exit code %d, %q, %q", end.ExitCode, out, errs)
	}
	return took, err
}

// limited keeps the first KiB of what is written to it.
type limited []byte

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	*l = append(*l, p[:min(len(p), 1024-len(*l))]...)
	return len(p), nil
}
