package attack

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// sharers is the largest number of attacks in one interpreter. Their output must stay below OUTPUT_LIMIT.
const sharers = 8

// byAnswers matches judges that need only the run's output and the requests that arrived.
var byAnswers = regexp.MustCompile(`^(refused|swapped|scrubbed|notEchoed|nothingWhole|never|once|unknownBoundary)\([^()]*\)$|^(twoReadings|overrideUnsent|macked|signed\(\)|signatureHidden|unsigned)$|^unswapped\("\w+", false\)$`)

// ownProgram matches code that cannot run in a function beside other attacks.
var ownProgram = regexp.MustCompile(`(?m)^import |REVERSED_|Deno\.exit|globalThis|addEventListener\("(error|unhandled)`)

// canShare reports whether the attack may run in one interpreter with others. Its code must be TypeScript that only
// reaches the proxy, about requests (A), answers (B) or signatures (M). It must have the usual timeout and a judge of byAnswers.
func (a Attack) canShare() bool {
	return strings.Contains("ABM", a.Section) && a.Do == nil && a.Language == "" && a.byAnswers && a.Seconds == 0 && a.Chain == "" && len(a.Only) == 0 &&
		!a.Alone && !a.Weighed && !a.Forks && !a.Root && !a.Escaped && !a.Token && !a.Tenants &&
		a.WhyModesDiffer() == "" && !ownProgram.MatchString(a.Code)
}

// groupSharers returns groups of attacks that share an interpreter, as indices. All attacks of a group have the same
// APIs.
func groupSharers(attacks []Attack) [][]int {
	open := map[string][]int{}
	var groups [][]int
	for i, a := range attacks {
		if !a.canShare() {
			continue
		}
		key := strings.Join(a.APIs, " ")
		if open[key] = append(open[key], i); len(open[key]) == sharers {
			groups = append(groups, open[key])
			delete(open, key)
		}
	}
	for _, group := range open {
		groups = append(groups, group)
	}
	return groups
}

// mountShared mounts the attacks that share interpreters. It returns the outcomes of the attacks that held, by index.
func mountShared(ctx context.Context, w *world.World, attacks []Attack) map[int]Outcome {
	all := map[int]Outcome{}
	seats := make(chan struct{}, width)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, group := range groupSharers(attacks) {
		seats <- struct{}{}
		wg.Go(func() {
			members := make([]Attack, len(group))
			for n, i := range group {
				members[n] = attacks[i]
			}
			held := mountTogether(ctx, w, members)
			mu.Lock()
			for n, o := range held {
				all[group[n]] = o
			}
			mu.Unlock()
			<-seats
		})
	}
	wg.Wait()
	return all
}

// mountTogether mounts a group of attacks in one run, one after the other. It returns the outcomes of the attacks that
// held, by their place in the group. Mount the others alone, because a neighbour may have caused their outcome.
func mountTogether(ctx context.Context, w *world.World, group []Attack) map[int]Outcome {
	start := time.Now()
	seconds := 20 * len(group)
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(seconds)*time.Second)
	defer cancel()
	trials := make([]string, len(group))
	for i := range group {
		trials[i] = mark()
	}
	session, err := w.ConnectAs(ctx, nil, "2025-11-25")
	if err != nil {
		return nil
	}
	defer session.Close()
	r, err := w.Do(ctx, session, world.Run{Code: joinCode(group, trials), APIs: group[0].APIs, Timeout: seconds})
	if err != nil || r.IsError || r.Receipt.Alarm != nil {
		return nil
	}
	held := map[int]Outcome{}
	for i, a := range group {
		e := &Evidence{World: w, Trial: trials[i], Allowed: time.Duration(seconds) * time.Second, Result: r}
		if e.Result.Out = outputOf(r.Out, trials[i]); !e.isAnswered() {
			continue
		}
		e.Arrived, e.Took = w.Upstream.Seen(e.Trial), time.Since(start)/time.Duration(len(group))
		if seen, ok := judge(a, e); ok {
			held[i] = Outcome{Attack: a, Seen: seen, Held: true, Took: e.Took}
		}
	}
	return held
}

// joinCode returns one program with several attacks. The program prints the trial of each attack before and after it.
func joinCode(group []Attack, trials []string) string {
	var b strings.Builder
	b.WriteString(prelude(""))
	for i, a := range group {
		fmt.Fprintf(&b, "\nconsole.log(%q);\ntry {\nawait (async () => {\n%s\n})();\nconsole.log(%q);\n} catch { /* it has no end */ }\n",
			"begin "+trials[i], strings.ReplaceAll(a.Code, "TRIAL", trials[i]), "end "+trials[i])
	}
	return b.String()
}

// outputOf returns the output of one attack of joinCode, or "" if the attack did not reach its end.
func outputOf(out, trial string) string {
	_, after, _ := strings.Cut(out, "begin "+trial+"\n")
	own, _, ended := strings.Cut(after, "end "+trial)
	if !ended {
		return ""
	}
	return own
}

// isAnswered reports whether the code printed only answers. An earlier attack may have broken the connection of a
// failed request.
func (e *Evidence) isAnswered() bool {
	lines := e.lines()
	return len(lines) > 0 && !slices.ContainsFunc(lines, func(l line) bool { return l.Status == 0 })
}
