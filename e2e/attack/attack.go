// Package attack is the attack suite: what hostile code in the sandbox, or a hostile upstream, tries, and what must
// happen. Each Attack is one small attempt with its expectation; Suite lists them all. They run against a whole
// CodeForge with canary credentials, and every output is searched for every canary in every encoded form.
//
// What code in the sandbox tries is TypeScript or Python, in testdata; its README.md has the format. The runner and the
// judges are Go, and so are all other attacks: calls and bytes from outside the sandbox (endpoint, costs, docker,
// skills, terminal), several runs or clients at once (neighbours, resources, limits), what a person is shown (shown,
// approvals, plans), tasks for the intruder (escaped, memory), programs that deno check cannot accept (imports), and a
// ClientHello that crypto/tls makes (hosts). Suite lists both kinds.
//
// An attack that could not be mounted counts as not held: where a credential must be scrubbed, the upstream must have
// received it first.
package attack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/turn"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// width is how many attacks run at the same time, and how many slots there are for them.
const width = 8

// Attack is one attempt.
type Attack struct {
	// Section is the letter of the section of the threat model.
	Section string
	Name    string
	// Expected says in a few words what must happen.
	Expected string
	// Language is Code's, TypeScript if it is empty.
	Language string
	// Code runs in the sandbox behind the prelude. TRIAL in it is replaced by a mark that the upstream finds again, and
	// REVERSED_HTTPBIN_TOKEN by that credential backwards: a value that code has got hold of.
	Code string
	// APIs narrows the run; none means all.
	APIs []string
	// Seconds is the run's timeout; zero means 20.
	Seconds int
	// Judge decides on what happened.
	Judge Judge
	// Do, when set, replaces Code: the attack comes from outside the sandbox.
	Do func(ctx context.Context, w *world.World) (seen string, held bool)
	// YOLO runs it where hosts in no API are open.
	YOLO bool
	// Unredacted runs it where no string is redacted and no payload logged: redaction decodes every body first.
	Unredacted bool
	// Escaped runs Code, a task for cmd/intruder, with the intruder in the interpreter's place.
	Escaped bool
	// Token runs it where a bearer token is set.
	Token bool
	// Tenants runs it where there are the tenants of TokensFile.
	Tenants bool
	// Root means that only root can mount it: as another user of the machine, or on a socket that others cannot reach.
	Root bool
	// Chain names attacks that run one after the other: they are about the same thing.
	Chain string
	// Alone keeps other attacks from running beside it: it takes what they need.
	Alone bool
	// Weighed measures from outside how much memory it takes.
	Weighed bool
	// Forks means that it exhausts the processes of a user who also runs other packages' slots.
	Forks bool
	// Only names the modes in which the attack exists, all if it is empty.
	Only []world.Mode
	// NoPod says why the attack does not exist in Kubernetes. It does if NoPod is empty.
	NoPod string

	byAnswers bool // see canShare
}

// Evidence is what there is to judge after an attack.
type Evidence struct {
	World  *world.World
	Trial  string
	Result world.Result
	// Failed is why execute_code itself failed, or nil.
	Failed error
	// Arrived are the trial's requests at the upstream.
	Arrived []upstream.Seen
	Took    time.Duration
	// Allowed is the run's timeout.
	Allowed time.Duration
	// Weight is what an attack that is Weighed took.
	Weight Weight
}

// Judge says in a few words what was seen, and whether the defence held.
type Judge func(e *Evidence) (seen string, held bool)

// Outcome is one row of the table.
type Outcome struct {
	Attack Attack
	Seen   string
	Held   bool
	// Took is how long everything took, including the check of what remained.
	Took time.Duration
	// Detail is for the log of an attack that was not held.
	Detail string
}

// Suite is every attack: those of the files, then those of Go.
func Suite() []Attack {
	var all []Attack
	for _, section := range [][]Attack{
		fromFiles(),
		hosts(), escaped(), docker(), endpoint(), strangers(), resources(), memory(), proxyMemory(), imports(), neighbours(), skills(),
		terminals(), approvals(), shown(), toolCalls(), limits(), plans(), canaries(), costs(), tenants(),
	} {
		all = append(all, section...)
	}
	return all
}

// patience is how much longer than its run's timeout an attack may take, on a machine that is busy with others.
const patience = time.Minute

// What the tests of all packages take turns to use.
const (
	// Memory is the machine's, which the measurement of a Weighed attack includes.
	Memory = "memory"
	// Processes are those that a user may have.
	Processes = "processes"
)

// Run mounts one attack.
func Run(ctx context.Context, w *world.World, a Attack) Outcome {
	for what, shared := range map[string]bool{Memory: a.Weighed, Processes: a.Forks} {
		if !shared {
			continue
		}
		release, err := turn.Take(ctx, what)
		if err != nil {
			return Outcome{Attack: a, Seen: err.Error()}
		}
		defer release()
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(a.Seconds)*time.Second)
	defer cancel()
	if a.Do != nil {
		seen, held := a.Do(ctx, w)
		return Outcome{Attack: a, Seen: seen, Held: held, Took: time.Since(start)}
	}
	seconds := cmp.Or(a.Seconds, 20)
	e := &Evidence{World: w, Trial: mark(), Allowed: time.Duration(seconds) * time.Second}
	code := strings.ReplaceAll(a.Code, "TRIAL", e.Trial)
	for name, c := range w.Canaries {
		code = strings.ReplaceAll(code, "REVERSED_"+name, backwards(c.Value()))
	}
	if !a.Escaped {
		code = prelude(a.Language) + code
	}
	var g *gauge
	if a.Weighed {
		g = startGauge()
	}
	session, err := w.ConnectAs(ctx, nil, "2025-11-25") // of its own: an alarm freezes it
	if err != nil {
		return Outcome{Attack: a, Seen: err.Error()}
	}
	defer session.Close()
	e.Result, e.Failed = w.Do(ctx, session, world.Run{Code: code, APIs: a.APIs, Timeout: seconds, Language: a.Language})
	if g != nil {
		e.Weight = g.end()
	}
	e.Took = time.Since(start)
	e.Arrived = w.Upstream.Seen(e.Trial)
	seen, held := judge(a, e)
	return Outcome{
		Attack: a, Seen: seen, Held: held, Took: time.Since(start),
		Detail: e.detail(),
	}
}

// detail is the evidence in print, a few kilobytes whatever arrived.
func (e *Evidence) detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "result %s\nfailed %v\narrived %d\n", clip(e.Result.JSON, 3000), e.Failed, len(e.Arrived))
	for _, s := range e.Arrived[:min(len(e.Arrived), 5)] {
		fmt.Fprintf(&b, "  %s %s %s %s body %q\n", s.Method, s.Host, clip(s.Target, 200), clip(fmt.Sprint(s.Header), 500), clip(string(s.Body[:min(len(s.Body), 201)]), 200))
	}
	return b.String()
}

// judge looks for canaries before it asks the attack's own Judge.
func judge(a Attack, e *Evidence) (string, bool) {
	if where := e.World.Leak(e.Result.JSON); where != "" {
		return "LEAK: " + where, false
	}
	if where := misplaced(e.World, e.Arrived); where != "" {
		return "SENT: " + where, false
	}
	if alarm := e.Result.Receipt.Alarm; alarm != nil && alarm.Kind == proxyapi.AlarmCredential && strings.Contains(a.Code, "REVERSED_") {
		for _, s := range e.Arrived {
			if where := e.World.Leak(s.Target + fmt.Sprint(s.Header) + string(s.Body)); where != "" {
				return "SENT: " + where, false
			}
		}
		return fmt.Sprintf("the alarm ended the run; %d arrived, without it", len(e.Arrived)), true
	}
	if why := e.misfired(); why != "" && !a.Escaped {
		return "MISFIRED: " + why, false
	}
	if a.Judge == nil {
		return "no judge", false
	}
	return a.Judge(e)
}

// home says at which hosts a credential may arrive, as the Host header and the port of the connection say.
var home = map[string][]string{
	"HTTPBIN":    {upstream.HTTPBin, upstream.H2},
	"OTHER":      {upstream.Other},
	"STRICT":     {upstream.Strict},
	"ALLOWED":    {"b.wild.test"},
	"DOCUMENTED": {"c.wild.test"},
	"RULED":      {"d.wild.test"},
	"PLAIN":      {upstream.Plain},
	"WILD":       {upstream.Wild},
	"SHARED":     {upstream.Shared},

	"PORTS":     {upstream.Ports},
	"DEVPORT":   {upstream.Ports + ":3000"},
	"ALTPORT":   {upstream.Ports + ":3001"},
	"PLAINPORT": {upstream.Ports + ":3002"},

	// The rebinding name leads to the upstream every other time.
	"FORBIDDEN": {upstream.Rebind},
}

// misplaced names a credential that arrived at a host that it does not belong to.
func misplaced(w *world.World, seen []upstream.Seen) string {
	for _, s := range seen {
		raw, err := json.Marshal(s)
		if err != nil {
			return err.Error()
		}
		data := append(raw, s.Body...)
		if w.Leak(string(data)) == "" {
			continue
		}
		for name, c := range w.Canaries {
			prefix, _, _ := strings.Cut(name, "_")
			if contains(home[prefix], s.Host) && strings.HasSuffix(s.Local, portOf(s.Host, s.Local)) {
				continue
			}
			if where := c.Find(data); where != "" {
				return fmt.Sprintf("%s to %s at %s", where, s.Host, s.Local)
			}
		}
	}
	return ""
}

// portOf is the end of the address at which a request for a host arrives: its port, or 443 or 80.
func portOf(host, local string) string {
	if _, port, ok := strings.Cut(host, ":"); ok {
		return ":" + port
	}
	if strings.HasSuffix(local, ":80") {
		return ":80"
	}
	return ":443"
}

// backwards hides a credential from the search of what is logged of the code.
func backwards(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "..."
}

// mark is a name for a trial that nothing else contains.
func mark() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return "trial" + hex.EncodeToString(b)
}
