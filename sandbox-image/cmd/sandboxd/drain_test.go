package main

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/rig"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// TestDrain: told to end with --drain, sandboxd gives no lease any more and lets the run end; without, it ends the run.
func TestDrain(t *testing.T) {
	for drain, reason := range map[string]runapi.Reason{"1m": runapi.Exited, "0s": runapi.Cancelled} {
		t.Run(drain, func(t *testing.T) {
			w := rig.StartWorld(t, rig.Options{Mode: rig.Container, Args: []string{"--drain", drain}})
			l, err := w.Client.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			began := make(chan struct{})
			type ended struct {
				runapi.Exit
				error
			}
			end := make(chan ended, 1)
			go func() {
				exit, err := w.Client.Run(t.Context(), runapi.RunRequest{
					Generation: l.Generation, Run: "drained", Language: runapi.LanguageTypeScript, Permissions: w.Hash, TimeoutMS: 30_000,
					Code: "console.log('here'); await new Promise((r) => setTimeout(r, 3000)); console.log('still')",
				}, func(runapi.Event) {
					select {
					case <-began:
					default:
						close(began)
					}
				})
				end <- ended{exit, err}
			}()
			<-began
			if err := w.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if reason == runapi.Exited {
				time.Sleep(200 * time.Millisecond)
				if _, err := w.Client.Acquire(t.Context()); !errors.Is(err, runapi.ErrBusy) {
					t.Errorf("a lease while it drains: %v", err)
				}
			}
			if e := <-end; e.error != nil || e.Reason != reason {
				t.Errorf("the run: %+v", e)
			}
			if reason == runapi.Exited {
				_ = w.Client.Release(t.Context(), l.Generation) // which lets sandboxd end at once
			}
		})
	}
}
