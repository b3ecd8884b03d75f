package typecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// slot is a Slot whose compiler is another program.
type slot struct {
	argv   []string
	memory int64
	killed atomic.Bool
}

func (s *slot) WriteFile(string, []byte) error { return nil }

func (s *slot) StartCompiler(_ []string, stdio jail.Stdio) (jail.Compiler, error) {
	c := &compiler{slot: s, cmd: exec.Command(s.argv[0], s.argv[1:]...), done: make(chan struct{})} //nolint:noctx // killed
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdio.In, stdio.Out, stdio.Err
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	return c, nil
}

type compiler struct {
	slot *slot
	cmd  *exec.Cmd
	done chan struct{}
}

func (c *compiler) Memory() int64               { return c.slot.memory }
func (c *compiler) Kill()                       { c.slot.killed.Store(true); _ = c.cmd.Process.Kill() }
func (c *compiler) DoneSignal() <-chan struct{} { return c.done }
func (c *compiler) Status() jail.Status {
	return jail.Status{Code: max(0, c.cmd.ProcessState.ExitCode())}
}

func some() []sandboxapi.Module { return []sandboxapi.Module{{Name: "shop", Types: "export {};"}} }

// TestBounds: a compiler that takes too long, holds too much or fails is ended, and the code counts as unchecked.
func TestBounds(t *testing.T) {
	for name, s := range map[string]*slot{
		"memory":  {argv: []string{"sleep", "600"}, memory: memory + 1},
		"caller":  {argv: []string{"sleep", "600"}},
		"crashed": {argv: []string{"sh", "-c", "exit 9"}},
		"missing": {argv: []string{"/nonexistent/tsc"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), limit/10)
		if name == "memory" {
			ctx = t.Context()
		}
		start := time.Now()
		mistakes, err := CheckCode(ctx, s, some())
		cancel()
		if err == nil || name == "memory" && errors.Is(err, context.DeadlineExceeded) || mistakes != nil || time.Since(start) > testkit.Patience {
			t.Errorf("%s: %v %v after %s", name, mistakes, err, time.Since(start))
		}
		if slow := s.argv[0] == "sleep"; slow != s.killed.Load() {
			t.Errorf("%s: killed %v", name, s.killed.Load())
		}
	}
	endless := &slot{argv: []string{"sh", "-c", `while :; do echo "main.ts(1,1): error TS2322: x"; done`}}
	ctx, cancel := context.WithTimeout(t.Context(), limit/10)
	defer cancel()
	if mistakes, err := CheckCode(ctx, endless, some()); err == nil {
		t.Errorf("endless output: %v", mistakes)
	}
	if mistakes, err := CheckCode(t.Context(), nil, []sandboxapi.Module{{Name: "shop"}}); mistakes != nil || err != nil {
		t.Errorf("without types: %v %v", mistakes, err)
	}
}

// folder is a Slot in a folder, in which the compiler runs as it is.
type folder struct {
	slot
	dir string
	cpu time.Duration
}

func (f *folder) WriteFile(name string, data []byte) error {
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func (f *folder) StartCompiler(args []string, stdio jail.Stdio) (jail.Compiler, error) {
	cmd := exec.Command(f.argv[0], args...) //nolint:noctx // killed
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = f.dir, stdio.In, stdio.Out, stdio.Err
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &compiler{slot: &f.slot, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		f.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		close(c.done)
	}()
	return c, nil
}

// TestTime: a check of 20 lines of right code takes at most 150 ms of processor time, against the types of a few
// operations and against 300 KB of them, as a large API has them. The fastest of several counts, because a busy machine
// makes some of them longer; so does its clock, which is only told.
func TestTime(t *testing.T) {
	for _, count := range []int{20, 1500} {
		var types strings.Builder
		types.WriteString("export {};\n")
		for i := range count {
			fmt.Fprintf(&types, "type T%d = { id: string; amount: number; kind: \"a\" | \"b\" | \"c%d\"; next?: string | T%d | null; list?: T%d[]; metadata?: { [key: string]: string }; created_at?: number; some_longer_name_of_a_property?: boolean };\n", i, i, (i+1)%count, (i*7)%count)
		}
		types.WriteString("declare const api: (operation: \"GET /a\") => Promise<T0>;\nexport { api as shop };\n")
		f := &folder{slot: slot{argv: []string{filepath.Join(testkit.TypeScript(t), "tsc")}}, dir: t.TempDir()}
		code := "import { shop } from \"/apis/shop.ts\";\nlet sum = 0;\n" +
			strings.Repeat("{\n  const answer = await shop(\"GET /a\");\n  if (answer.kind === \"a\") sum += answer.amount;\n  else console.log(answer.list?.[0]?.id, answer.next);\n}\n", 3) + "console.log(sum);\n"
		testkit.Must(t, f.WriteFile("main.ts", []byte(code)))
		best, shortest := limit, limit
		for range 5 {
			began := time.Now()
			mistakes, err := CheckCode(t.Context(), f, []sandboxapi.Module{{Name: "shop", Types: types.String()}})
			if errors.Is(err, context.DeadlineExceeded) { // on a machine so busy that the check is given up
				continue
			}
			if err != nil || len(mistakes) > 0 {
				t.Fatalf("%v %v", mistakes, err)
			}
			best, shortest = min(best, f.cpu), min(shortest, time.Since(began))
		}
		t.Logf("%s of processor time, %s by the clock, for %d lines and %d KB of types",
			best, shortest, strings.Count(code, "\n"), types.Len()>>10)
		if best > 150*time.Millisecond {
			t.Errorf("%s of processor time", best)
		}
	}
}

// TestRefused: what cannot be right is refused, what may be right is not.
func TestRefused(t *testing.T) {
	types := []sandboxapi.Module{{Types: "export {};\ntype Reason = \"a\" | \"b\";\ntype Body = { x: \"a\" };\n"}}
	for text, want := range map[string]bool{
		`2322 Type '"dup"' is not assignable to type '"duplicate" | "fraud"'.`:  true,
		`2322 Type 'string' is not assignable to type '"duplicate" | "fraud"'.`: false,
		`2322 Type 'string' is not assignable to type 'Reason'.`:                false,
		`2322 Type 'boolean' is not assignable to type '"" | { a: 1; }[]'.`:     true,
		`2322 Type 'number' is not assignable to type '1 | 2 | "x"'.`:           false,
		`2322 Type 'string' is not assignable to type 'Body'.`:                  true,
		`2322 Type 'string' is not assignable to type 'number'.`:                true,
		"2322 Type 'string' is not assignable to type 'number | `${number}`'.":  false,
		`2322 Type 'Date' is not assignable to type 'string'.`:                  false,
		`2345 Argument of type '{ a: string; }' is not assignable to parameter of type 'X'.|Types of property 'a' are incompatible.|Type 'string' is not assignable to type '"1" | "2"'.`: false,
		`2345 Argument of type '{ a: string; }' is not assignable to parameter of type 'X'.|Types of property 'a' are incompatible.|Type 'string' is not assignable to type 'boolean'.`:   true,
		`2740 Type 'FormData' is missing the following properties from type 'X': a, b`:                                                                                                    false,
		`2559 Type 'URLSearchParams' has no properties in common with type '{ a?: string; }'.`:                                                                                            false,
		`2339 Property 'id' does not exist on type 'Charge'.`:                                                                                                                             true,
		`2339 Property 'id' does not exist on type 'string | Charge'.|Property 'id' does not exist on type 'string'.`:                                                                     false,
		`2339 Property 'id' does not exist on type '{}'.`:                                                                                                                                 false,
		`7006 Parameter 'x' implicitly has an 'any' type.`:                                                                                                                                false,
		`18048 'x' is possibly 'undefined'.`:                                                                                                                                              false,
		`2304 Cannot find name 'x'.`:                                                                                                                                                      false,
		`1005 ';' expected.`:                                                                                                                                                              false,
		`2554 Expected 2 arguments, but got 1.`:                                                                                                                                           true,
	} {
		code, rest, _ := strings.Cut(text, " ")
		out := "main.ts(3,4): error TS" + code + ": " + strings.ReplaceAll(rest, "|Ty", "\n  Ty")
		out = strings.ReplaceAll(out, ".|Prop", ".\n  Prop") + "\n"
		found := parseOutput("types/x.d.ts(1,1): error TS2322: not of the code\n" + out + "Found 1 error.\n")
		if len(found) != 1 || found[0].Line != 3 || found[0].Column != 4 {
			t.Fatalf("%s: %+v", text, found)
		}
		if got := len(filterRefused(found, types)) == 1; got != want {
			t.Errorf("%s: refused %v", text, got)
		}
	}
}
