package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchDaemons: a daemon that hangs, or whose socket is gone, is named after three rounds without an answer. One that
// misses two rounds, and one that answers late, are not.
func TestWatchDaemons(t *testing.T) {
	gone := errors.New("no such file")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	answer := func(context.Context) error { return nil }
	for name, row := range map[string]struct {
		ask   func(round int) func(context.Context) error
		want  string
		after time.Duration
	}{
		"hangs":          {func(int) func(context.Context) error { return hang }, "sandboxd does not answer: context deadline exceeded", 45 * time.Second},
		"socket is gone": {func(int) func(context.Context) error { return func(context.Context) error { return gone } }, "sandboxd does not answer: no such file", 15 * time.Second},
		"misses two of three": {func(round int) func(context.Context) error {
			if round%3 == 0 {
				return answer
			}
			return hang
		}, "", time.Hour},
		"answers late": {func(int) func(context.Context) error {
			return func(context.Context) error { time.Sleep(9 * time.Second); return nil }
		}, "", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began, round := time.Now(), 0
				err := watchDaemons(ctx, []livenessProbe{{"egress-proxy", answer}, {"sandboxd", func(ctx context.Context) error {
					round++
					return row.ask(round)(ctx)
				}}})
				text := ""
				if err != nil {
					text = err.Error()
				}
				if took := time.Since(began); !strings.Contains(text, row.want) || (err == nil) != (row.want == "") || took != row.after {
					t.Errorf("%v after %s, want %q after %s", err, took, row.want, row.after)
				}
			})
		})
	}
}
