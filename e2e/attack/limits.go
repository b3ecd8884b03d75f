package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// WithLimits adds an API with limits for each attack on them, so that none spends what is another's.
func WithLimits(apis []world.API) []world.API {
	var reached map[string]any
	for _, a := range apis {
		if a.Name == "httpbin" {
			reached = a.Config
		}
	}
	for _, label := range []string{
		"parallel", "sums", "aborted", "unpaid", "announced", "promised", "broken", "unwaited", "calm", "fitting", "runs",
	} {
		apis = append(apis, world.API{Name: "limited-" + label, Config: map[string]any{
			"description": "limits", "domains": []string{label + "." + upstream.Limited},
			"allow_private": reached["allow_private"], "ca_file": reached["ca_file"],
			"limits": map[string]any{"writes": "3/d", "sum": map[string]any{"path": "/anything/pay", "field": "amount", "max": "100/d"}},
		}})
	}
	return apis
}

// limits are the attempts to spend a limit twice that several runs make together; testdata/P has the others.
func limits() []Attack {
	return []Attack{
		planned("a limit spent twice: by runs at once", "no more than the limit sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial := mark()
			code := strings.ReplaceAll(`await Promise.all(Array.from({ length: 10 }, (_, i) =>
  fetch("https://runs.limited.test/anything/x?t=TRIAL&i=" + i, { method: "POST", body: "x" }).then((r) => r.text())));`, "TRIAL", trial)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { _, _ = w.Execute(ctx, code) })
			}
			all.Wait()
			n := len(w.Upstream.Seen(trial))
			return fmt.Sprintf("%d arrived", n), n == 3
		}),
	}
}

// within: what arrived of the trial's requests, heads without a body too, is not more than a number.
func within(most int) Judge {
	return func(e *Evidence) (string, bool) {
		return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), len(e.Arrived) <= most && len(e.lines()) > 0
	}
}
