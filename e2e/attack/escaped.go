package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// task is what cmd/intruder takes as code.
func task(trial string, w *world.World, attempts ...string) string {
	t := map[string]any{"attempts": attempts, "trial": trial}
	if w != nil {
		var secrets []string
		for _, c := range w.Canaries {
			secrets = append(secrets, backwards(c.Value()))
		}
		t["backwards"] = secrets
	}
	text, _ := json.Marshal(t)
	return string(text)
}

// escaped are attempts of code that has escaped from Deno, which the kernel, the namespaces and the proxy must stop.
func escaped() []Attack {
	const section = "C"
	one := func(name, expected string) Attack {
		return Attack{Section: section, Name: "escaped: " + name, Expected: expected, Escaped: true, Seconds: 30, Judge: inner, Code: task("TRIAL", nil, name)}
	}
	var list []Attack
	for _, name := range []string{
		"who am I", "no new privileges, seccomp", "setuid", "namespaces", "mounts", "kernel interfaces", "sockets of other kinds", "addresses and routes", "TCP to other ports", "IPv6", "UDP",
		"DNS outside the catalog", "TLS to a host in no API", "sockets of daemons", "other processes", "writable places", "programs from /tmp", "programs from /out", "limits", "terminal", "files of the kernel and the host",
	} {
		list = append(list, one(name, "refused by the kernel or the proxy"))
	}
	fork := one("fork bomb", "bounded; nothing stays")
	stay := one("stay behind", "dead when the run has ended")
	other := one("another slot's address", "refused by the kernel")
	other.Section, other.Only = "A", []world.Mode{world.Docker, world.Kubernetes}
	list = append(list, other)
	skill := one("programs from /skills", "none runs")
	skill.Only, skill.NoPod = []world.Mode{world.Embedded}, "volumes of pods cannot be mounted noexec"
	list = append(list, skill)
	hang := one("stay behind a run that is ended", "dead when the run has ended")
	hang.Code, hang.Seconds = task("TRIAL", nil, "stay behind", "hang"), 3
	fork.Alone, stay.Alone, hang.Alone, fork.Forks = true, true, true, true
	fork.Section, stay.Section, hang.Section = "F", "F", "F"
	fork.Judge, stay.Judge, hang.Judge = gone(verdicts()), gone(verdicts()), gone(ended("time"))
	return append(list, fork, stay, hang,
		Attack{Section: "G", Name: "escaped: a symbolic link to what mcp-server is", Expected: "never followed", NoPod: noSkills, Escaped: true, Alone: true, Do: followed},
		Attack{Section: section, Name: "escaped: files with secrets", Expected: "none", Escaped: true, Do: secretFiles},
		Attack{Section: "A", Name: "escaped: two slots meet", Expected: "they cannot", Escaped: true, Do: meeting},
		// Last: it uses up the generations of a slot.
		Attack{Section: "A", Name: "late messages of an older lease", Expected: "409, no receipt", Escaped: true, Root: true, Alone: true, Do: fences},
	)
}

// inner: every attempt held, by the intruder's own account, and nothing of the trial was passed on.
func inner(e *Evidence) (string, bool) {
	if seen, held := unasked(e); !held && !strings.HasPrefix(seen, "nothing printed") {
		return seen, false
	}
	return verdicts()(e)
}

// ended: the run was ended, and the result says why.
func ended(word string) Judge {
	return func(e *Evidence) (string, bool) {
		text := e.Result.Out + e.Result.Notes
		return clip(strings.ReplaceAll(text, "\n", " "), 100), e.Result.IsError && strings.Contains(strings.ToLower(text), word)
	}
}

// gone adds that no process of the intruder is left, and that its requests have ended.
func gone(j Judge) Judge {
	return func(e *Evidence) (string, bool) {
		seen, held := j(e)
		left, err := busy(e.World)
		if err != nil {
			return err.Error(), false
		}
		if left > 0 {
			return fmt.Sprintf("%d processes are left after the run; %s", left, seen), false
		}
		if !e.quiet() {
			return "requests go on after the run", false
		}
		return seen + ", nothing is left", held
	}
}

// quiet reports whether the trial's requests stop. One may have been in flight when the run ended; a remaining process
// would send several during each try.
func (e *Evidence) quiet() bool {
	for range 3 {
		before := len(e.World.Upstream.Seen(e.Trial))
		time.Sleep(600 * time.Millisecond)
		if len(e.World.Upstream.Seen(e.Trial)) == before {
			return true
		}
	}
	return false
}

// busy counts the intruder's living children.
func busy(w *world.World) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	all, err := w.Processes(ctx)
	n := 0
	for _, line := range all {
		if strings.HasPrefix(line, "intruder ") {
			n++
		}
	}
	return n, err
}

// secretFiles lets the intruder read all it can, and tells it what to search for. Its code holds the credentials, so it
// runs in a world of its own.
func secretFiles(ctx context.Context, w *world.World) (string, bool) {
	e := &Evidence{World: w, Trial: mark()}
	e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Code: task(e.Trial, w, "files with secrets"), Timeout: 30})
	return verdicts()(e)
}

// meeting starts a run that listens and one that tries to find it.
func meeting(ctx context.Context, w *world.World) (string, bool) {
	trial := mark()
	answers := make(chan *Evidence)
	for _, attempt := range []string{"listen", "reach a neighbour"} {
		go func() {
			e := &Evidence{World: w, Trial: trial}
			e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Code: task(trial, nil, attempt), Timeout: 20})
			answers <- e
		}()
	}
	var all []string
	held := true
	for range 2 {
		seen, ok := verdicts()(<-answers)
		all, held = append(all, seen), held && ok
	}
	return strings.Join(all, "; "), held
}

// followed plants a link in /skills that Deno would not let code make, and asks mcp-server for it.
func followed(ctx context.Context, w *world.World) (string, bool) {
	e := &Evidence{World: w, Trial: mark()}
	e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Code: task(e.Trial, nil, "plant a link"), Timeout: 20})
	if seen, planted := verdicts()(e); !planted {
		return "could not be planted: " + seen, false
	}
	said := everything(ctx, w)
	e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Code: task(e.Trial, nil, "uproot the link"), Timeout: 20})
	if seen, gone := verdicts()(e); !gone {
		return "could not be removed: " + seen, false
	}
	if strings.Contains(said, "VmPeak") {
		return "mcp-server shows its own /proc/self/status", false
	}
	return "planted, not shown", alive(ctx, w)
}

// fences sends the proxy registrations and ends of leases out of order, as a crashed or slow component would.
func fences(ctx context.Context, w *world.World) (string, bool) {
	c := w.Control()
	defer c.Close()
	const id, now = slot.ID(3), uint64(1) << 40 // far beyond any generation of this world's leases
	reg := func(g uint64) error {
		return c.RegisterRun(ctx, id, proxyapi.Registration{Generation: g, Run: "late", Deadline: time.Now().Add(time.Minute)})
	}
	end := func(g uint64) error { _, err := c.UnregisterRun(ctx, id, g, proxyapi.Summary{}); return err }
	if err := reg(now); err != nil {
		return "the first registration: " + err.Error(), false
	}
	for name, err := range map[string]error{
		"the same registration again": reg(now), "an older registration": reg(now - 1),
		"the end of an older lease": end(now - 1), "the end of a later lease": end(now + 1),
	} {
		if !errors.Is(err, proxyapi.ErrFenced) {
			return fmt.Sprintf("%s: %v", name, err), false
		}
	}
	if reg(0) == nil || end(0) == nil {
		return "generation 0 was taken", false
	}
	if err := reg(now + 1); err != nil {
		return "a newer registration: " + err.Error(), false
	}
	if err := end(now); !errors.Is(err, proxyapi.ErrFenced) {
		return fmt.Sprintf("the end of the replaced lease: %v", err), false
	}
	if err := end(now + 1); err != nil {
		return "the end of the newer lease: " + err.Error(), false
	}
	if err := reg(now + 1); !errors.Is(err, proxyapi.ErrFenced) {
		return fmt.Sprintf("an ended lease registered again: %v", err), false
	}
	return "eight fenced", true
}
