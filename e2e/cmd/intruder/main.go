// Command intruder replaces the interpreter in a sandbox, to show what hostile code could do that has escaped from
// Deno's permissions. It runs exactly as the interpreter does, makes the attempts that the "code" names, and prints a
// line of JSON for each: {"held": bool, "seen": "..."}. As "intruder serve" it is a hostile MCP server.
//
// The code is JSON: {"attempts": ["..."], "trial": "...", "backwards": ["..."]}. No attempts means all that every run
// must withstand.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// task is the parsed code.
type task struct {
	Attempts []string `json:"attempts"`
	Trial    string   `json:"trial"`
	// Backwards are strings that no readable file may contain, backwards: the code itself is kept in the history of runs.
	Backwards []string `json:"backwards"`
	// Secrets are the same, forwards.
	Secrets []string `json:"-"`

	path string // of an attempt that has one
}

// verdict is one line of output.
type verdict struct {
	Held bool   `json:"held"`
	Seen string `json:"seen"`
}

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "--version":
		fmt.Println("deno 2.9.6 (stable, release, x86_64-unknown-linux-gnu)")
		return
	case len(os.Args) > 1 && os.Args[1] == "eval": // sandboxd's trial of the resolver
		fmt.Println("resolved")
		return
	case len(os.Args) == 2 && os.Args[1] == "sleep":
		time.Sleep(10 * time.Minute)
		return
	case len(os.Args) == 2 && os.Args[1] == "serve":
		exit(serve(context.Background()))
	case len(os.Args) == 3 && os.Args[1] == "attempt":
		exit(asked(os.Args[2]))
	case len(os.Args) == 3 && os.Args[1] == "weigh":
		weigh(os.Args[2])
		return
	case len(os.Args) == 3 && os.Args[1] == "linger":
		linger(os.Args[2])
		return
	}
	exit(run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "intruder:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run implements the interpreter's side of the warm start, like warm.js.
func run() error {
	if _, err := os.Stdout.Write([]byte{runner.ReadyByte}); err != nil {
		return err
	}
	for order := [1]byte{}; order[0] != runner.GoByte && order[0] != runner.ServersByte; {
		if n, _ := os.Stdin.Read(order[:]); n != 1 {
			return nil
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // the rest of the order: its pipe may be as small as a page
	text, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("reading the task: %w", err)
	}
	t.Secrets = forwards(t.Backwards)
	enc := json.NewEncoder(os.Stdout)
	for _, a := range append(attempts, bombs()...) {
		if len(t.Attempts) == 0 && !a.asked || contains(t.Attempts, a.name) {
			held, seen := a.try(t)
			if err := enc.Encode(verdict{held, a.name + ": " + seen}); err != nil {
				return err
			}
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}
