package main

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestDrain: told to end with --drain, sandboxd gives no lease any more and lets the run end; without, it ends the run.
func TestDrain(t *testing.T) {
	for drain, reason := range map[string]sandboxapi.Reason{"1m": sandboxapi.Exited, "0s": sandboxapi.Cancelled} {
		t.Run(drain, func(t *testing.T) {
			w := StartWorld(t, Options{Mode: Container, Args: []string{"--drain", drain}})
			l, err := w.Client.Acquire(t.Context(), sandboxapi.LeaseRequest{})
			if err != nil {
				t.Fatal(err)
			}
			began := make(chan struct{})
			type ended struct {
				sandboxapi.Exit
				error
			}
			end := make(chan ended, 1)
			go func() {
				exit, err := w.Client.Run(t.Context(), sandboxapi.RunRequest{
					Generation: l.Generation, Run: "drained", Language: sandboxapi.LanguageTypeScript, Permissions: w.Hash, TimeoutMS: 30_000,
					Code: "console.log('here'); await new Promise((r) => setTimeout(r, 3000)); console.log('still')",
				}, func(sandboxapi.Event) {
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
			if reason == sandboxapi.Exited {
				time.Sleep(200 * time.Millisecond)
				if _, err := w.Client.Acquire(t.Context(), sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrBusy) {
					t.Errorf("a lease while it drains: %v", err)
				}
			}
			if e := <-end; e.error != nil || e.Reason != reason {
				t.Errorf("the run: %+v", e)
			}
			if reason == sandboxapi.Exited {
				_ = w.Client.Release(t.Context(), l.Generation) // which lets sandboxd end at once
			}
		})
	}
}
