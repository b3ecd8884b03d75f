package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// ruleProposal describes an API's past requests as rules.
type ruleProposal struct {
	API      string    `json:"api"`
	Since    time.Time `json:"since,omitzero"`
	Requests int       `json:"requests"`
	Runs     int       `json:"runs"`
	// Rules are the rules that permit the served requests, the most used first.
	Rules []proposedRule `json:"rules"`
	// Now are the current rules, each with the number of requests that it decides by method and path.
	Now []proposedRule `json:"now,omitempty"`
	// Unused are the places of token names in which the proxy never swapped one.
	Unused []string `json:"unused,omitempty"`
}

// proposedRule is a rule and the number of its requests.
type proposedRule struct {
	Rule     json.RawMessage `json:"rule,omitempty"`
	Text     string          `json:"text"`
	Requests int             `json:"requests"`
}

// showProposal shows rules that permit the recorded requests beside the current rules. It changes nothing.
func (o *apiOptions) showProposal(ctx context.Context, e *Env, name string) error {
	_, cat := inspectConfig(e, o.apis)
	a := cat.API(name)
	if a == nil {
		return fmt.Errorf("there is no API %q in %s that loads; codeforge api list lists them", name, o.apis)
	}
	since, err := parseSince(o.since, time.Now())
	if err != nil {
		return err
	}
	audit := auditOptions{target: o.target}
	src, err := audit.openLedger(ctx, e)
	if err != nil {
		return err
	}
	var list []proxyapi.Exchange
	err = ledger.EachRecord(src, ledger.Query{Since: since, Run: o.ofRun}, func(r ledger.Record) error {
		if x := r.Exchange; x != nil && x.Outcome == proxyapi.OutcomeServed && slices.Contains(x.APIs, name) {
			list = append(list, *x)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p := proposeRules(a, list)
	p.Since = since
	return printValue(e, o.json, p, true, func() { printProposal(e, p) })
}

// proposeRules makes the rules for served requests.
func proposeRules(a *catalog.API, list []proxyapi.Exchange) ruleProposal {
	p := ruleProposal{API: a.Name, Requests: len(list), Rules: []proposedRule{}}
	runs, used := map[string]bool{}, map[string]bool{}
	counts := map[requestShape]int{}
	now := make([]int, len(a.Rules))
	for _, x := range list {
		runs[x.Run] = true
		for _, s := range x.Swapped {
			used[s.Name+" in "+s.In] = true
			// The surface header covers every header, such as header:X-Api-Key.
			used[s.Name+" in "+strings.SplitN(s.In, ":", 2)[0]] = true //nolint:mnd // the kind of the place
		}
		u, err := url.Parse(x.URL)
		if err != nil {
			continue
		}
		if !strings.Contains(u.Path, "*") { // in a rule, "*" would match more than the request
			counts[requestShape{x.Method, u.EscapedPath()}]++
		}
		if r, err := catalog.FindRule(a.Rules, x.Method, u.EscapedPath(), nil); err == nil && r != nil {
			now[slices.IndexFunc(a.Rules, func(o catalog.Rule) bool { return o.String() == r.String() })]++
		}
	}
	p.Runs = len(runs)
	for r, n := range groupShapes(counts) {
		text, _ := json.Marshal(apidir.Rule{Methods: []string{r.method}, Path: r.path, Then: "allow"}) // texts
		p.Rules = append(p.Rules, proposedRule{text, "allow " + r.method + " " + r.path, n})
	}
	slices.SortFunc(p.Rules, func(x, y proposedRule) int {
		return cmp.Or(y.Requests-x.Requests, strings.Compare(x.Text, y.Text))
	})
	for i, r := range a.Rules {
		p.Now = append(p.Now, proposedRule{Text: r.String(), Requests: now[i]})
	}
	for _, c := range a.Credentials {
		for _, s := range c.Surfaces {
			if at := c.Name + " in " + s.String(); !used[at] {
				p.Unused = append(p.Unused, at)
			}
		}
	}
	return p
}

// requestShape is a method and a path in which "*" stands for a segment.
type requestShape struct{ method, path string }

// manyValues is the number of different values from which a segment counts as variable.
const manyValues = 3

// groupShapes groups requests by the shape of their paths. Segments that look like ids become "*", and so do segments
// with at least manyValues different values.
func groupShapes(counts map[requestShape]int) map[requestShape]int {
	out := map[requestShape]int{}
	longest := 0
	for r, n := range counts {
		segments := strings.Split(r.path, "/")
		longest = max(longest, len(segments))
		for i, s := range segments {
			if isID(s) {
				segments[i] = "*"
			}
		}
		out[requestShape{r.method, strings.Join(segments, "/")}] += n
	}
	// The second pass joins routes that differ in one segment, from left to right.
	for at := range longest {
		values := map[requestShape][]requestShape{} // by their common route
		for r := range out {
			segments := strings.Split(r.path, "/")
			if at == 0 || at >= len(segments) || segments[at] == "" {
				continue
			}
			segments[at] = "*"
			common := requestShape{r.method, strings.Join(segments, "/")}
			values[common] = append(values[common], r)
		}
		for common, all := range values {
			if len(all) < manyValues {
				continue
			}
			sum := 0
			for _, r := range all {
				sum += out[r]
				delete(out, r)
			}
			out[common] += sum
		}
	}
	return out
}

// isID reports whether a path segment looks like an identifier: a number, hexadecimal digits, or letters with digits
// that are too long for a word and its version.
func isID(s string) bool {
	const least = 8
	digits, hex := 0, 0
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			digits++
			hex++
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == '-':
			hex++
		}
	}
	switch {
	case digits == 0:
		return false
	case digits == len(s):
		return true
	}
	return len(s) >= least && (hex == len(s) || digits >= 2) //nolint:mnd // api2 has one
}

func printProposal(e *Env, p ruleProposal) {
	paint := newPainter(e, e.Stdout)
	fmt.Fprintf(e.Stdout, "%s of %s, served for %s. No file was changed: put the rules that you want into "+
		"apis/%s/config.json.\n",
		countNoun(p.Requests, "request"), countNoun(p.Runs, "run"), safetext.OneLine(p.API), safetext.OneLine(p.API))
	if p.Requests == 0 {
		return
	}
	fmt.Fprintln(e.Stdout, `  "rules":`)
	for _, r := range p.Now {
		fmt.Fprintln(e.Stdout, paint(terminal.Red, fmt.Sprintf("- %-60s %d", safetext.OneLine(r.Text), r.Requests)))
	}
	for _, r := range p.Rules {
		fmt.Fprintln(e.Stdout, paint(terminal.Green, fmt.Sprintf("+ %-60s %d", safetext.OneLine(string(r.Rule))+",",
			r.Requests)))
	}
	printEach(e.Stdout, "  not used: ", p.Unused)
	fmt.Fprintln(e.Stdout, "The ledger has no bodies: add conditions on fields, and \"graphql\", by hand. "+
		"\"then\": \"approve\" asks you first.")
}
