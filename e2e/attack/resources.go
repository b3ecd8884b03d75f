package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// resources are attempts to use up the machine, by more than code; behind each the next run must work.
func resources() []Attack {
	return []Attack{
		{
			Section: "F", Name: "code of 5 MB", Expected: "refused or run", Seconds: 10, Judge: ends(),
			Code: `/*` + strings.Repeat("x", 5<<20) + `*/ console.log("big");`,
		},
		{Section: "F", Name: "more runs than slots", Expected: "queued or a clear busy", Alone: true, Do: crowd},
		{Section: "F", Name: "a client that leaves in the middle", Expected: "the run ends", Alone: true, Do: leave},
	}
}

// ends: the run answered within what it is allowed and a few seconds, said one of the words, and the next run works.
func ends(words ...string) Judge {
	return func(e *Evidence) (string, bool) {
		if wall := e.wall(); wall > e.Allowed+patience/2 {
			return "took " + wall.Round(time.Second).String(), false
		}
		text := strings.ToLower(e.Result.Out + e.Result.Notes)
		said := len(words) == 0
		for _, w := range words {
			said = said || strings.Contains(text, strings.ToLower(w))
		}
		if !said {
			return "does not say why: " + clip(strings.ReplaceAll(e.Result.Out+e.Result.Notes, "\n", " "), 100), false
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		next, err := e.World.Execute(ctx, `console.log((await fetch("https://httpbin.test/x/ok")).status, [...Deno.readDirSync("/tmp")].filter((f) => f.name.startsWith("`+e.Trial+`")).length)`)
		if err != nil || !strings.HasPrefix(next.Out, "200 ") {
			return fmt.Sprintf("the next run gave %q %v", clip(next.Out, 80), err), false
		}
		why := e.brief()
		if strings.HasPrefix(why, "nothing printed") {
			why = clip(strings.ReplaceAll(strings.TrimSpace(e.Result.Out), "\n", " "), 60)
		}
		return why + fmt.Sprintf(" (%s), the next run works", e.Took.Round(100*time.Millisecond)), true
	}
}

// crowd starts three times as many runs as there are slots.
func crowd(ctx context.Context, w *world.World) (string, bool) {
	const runs = 24
	type answer struct {
		r   world.Result
		err error
	}
	answers := make(chan answer)
	for range runs {
		go func() {
			r, err := w.Execute(ctx, "await new Promise((d) => setTimeout(d, 300)); console.log('ran')")
			answers <- answer{r, err}
		}()
	}
	ran, busy := 0, 0
	for range runs {
		a := <-answers
		switch {
		case a.err == nil && a.r.Out == "ran\n":
			ran++
		case a.err == nil && strings.Contains(strings.ToLower(a.r.Out), "busy"):
			busy++
		}
	}
	return fmt.Sprintf("%d ran, %d busy", ran, busy), ran+busy == runs && ran >= runs/3
}

// leave cancels a call and expects the slot back.
func leave(ctx context.Context, w *world.World) (string, bool) {
	s, err := w.Connect(ctx)
	if err != nil {
		return err.Error(), false
	}
	defer s.Close()
	for range 12 {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		_, _ = s.CallTool(short, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "for(;;);", "timeout": 60}})
		cancel()
	}
	start := time.Now()
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := w.Execute(soon, "console.log('free')")
	return fmt.Sprintf("twelve left, then %q after %s", strings.TrimSpace(r.Out), time.Since(start).Round(100*time.Millisecond)), err == nil && r.Out == "free\n"
}
