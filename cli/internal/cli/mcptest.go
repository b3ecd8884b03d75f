package cli

import (
	"context"
	_ "embed" // mcptest.js
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// serverTrial is the result of mcp test.
type serverTrial struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Tools int    `json:"tools"`
	// Called is the tool that was called. Failure is the error of the server or the tool, in its words.
	Called  string `json:"called,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Reached are the hosts in "domains" that the server contacted. Wanted are other hosts that it tried, Telemetry those
	// among them that it does not need.
	Reached   []string `json:"reached"`
	Wanted    []string `json:"wanted"`
	Telemetry []string `json:"telemetry"`
	// Failed are requests to hosts in "domains" that failed, or that the service or the proxy refused: HOST (why).
	Failed []string `json:"failed"`
	// Unused are the token names that the proxy did not swap.
	Unused []string `json:"unused"`
	// Log has the server's last lines, if the trial failed.
	Log []string `json:"log,omitempty"`
}

// maxLogLines bounds the lines of a server's log in a trial's result.
const maxLogLines = 5

// telemetry are hosts, or parents of hosts, that only collect usage data.
var telemetry = []string{
	"ingest.sentry.io", "ingest.us.sentry.io", "ingest.de.sentry.io", "segment.io", "segment.com", "posthog.com",
	"mixpanel.com", "amplitude.com", "google-analytics.com", "googletagmanager.com", "datadoghq.com", "datadoghq.eu",
	"honeycomb.io", "statsig.com", "statsigapi.net", "launchdarkly.com", "bugsnag.com", "rollbar.com",
	"applicationinsights.azure.com", "services.visualstudio.com", "newrelic.com", "rudderstack.com", "heap.io",
	"featureassets.org", "prodregistryv2.org", "scarf.sh", "logfire.pydantic.dev", "nr-data.net", "logs.netdata.cloud",
}

// isTelemetry reports whether a host only collects usage data.
func isTelemetry(host string) bool {
	first, _, _ := strings.Cut(host, ".")
	return first == "telemetry" || first == "analytics" || first == "stats" ||
		slices.ContainsFunc(telemetry, func(t string) bool { return host == t || strings.HasSuffix(host, "."+t) })
}

// testServer restarts a server, lists its tools, calls one that changes nothing, and prints the server's needs.
func (o *mcpOptions) testServer(ctx context.Context, e *Env, name string) error {
	a, err := o.findServer(e, name)
	if err != nil {
		return err
	}
	var args map[string]any
	if json.Unmarshal([]byte(o.arguments), &args) != nil || args == nil {
		return usageError("mcp test: --arguments is not an object; want JSON like '{\"query\": \"x\"}'")
	}
	op, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return err
	}
	// A fresh start shows the server's first requests and its log from the beginning.
	if err := op.Restart(ctx, name); err != nil {
		return err
	}
	began := time.Now()
	out, r, err := o.evaluateExpression(ctx, e, "mcp test "+name, name, tryExpression,
		map[string]any{"tool": o.tool, "args": args})
	if err != nil {
		return err
	}
	t := serverTrial{
		Name: name, Reached: []string{}, Wanted: []string{}, Telemetry: []string{}, Failed: []string{}, Unused: []string{},
	}
	var got struct {
		Tools  int
		Called string
		Failed string
	}
	if out.Error == nil {
		_ = json.Unmarshal(out.Value, &got) // the JSON of tryExpression
	} else {
		got.Failed = out.Error.Message
	}
	t.Tools, t.Called, t.Failure = got.Tools, got.Called, safetext.OneLine(got.Failed)
	var exchanges []proxyapi.Exchange
	if r.Receipt != nil {
		for _, x := range r.Receipt.Exchanges {
			exchanges = append(exchanges, x.Caused...)
		}
	}
	exchanges = append(exchanges, o.listRequests(ctx, e, name, began)...)
	lines, _ := op.Log(ctx, name) // the log is optional
	t.diagnose(a, exchanges, lines)
	err = printValue(e, o.json, t, true, func() { t.printTrial(e) })
	if err == nil && len(t.Wanted) > 0 && (o.write || !o.json && term.IsTerminal(int(e.Stdin.Fd()))) {
		err = o.addHosts(ctx, e, a, t)
	}
	if err == nil && !t.OK {
		return silentError(ExitFailed)
	}
	return err
}

// tryExpression lists the tools and calls one: the requested one, else the first that claims to change nothing and
// needs no argument.
//
//go:embed mcptest.js
var tryExpression string

// settle is the time in which the server's requests get recorded.
const settle = time.Second

// listRequests returns the requests that a server has sent since a time.
func (o *mcpOptions) listRequests(ctx context.Context, e *Env, name string, since time.Time) []proxyapi.Exchange {
	rec, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return nil
	}
	timing.WaitFor(ctx, settle)
	var all []proxyapi.Exchange
	run := proxyapi.ServerPrefix + name
	logs := logsOptions{filter: operatorapi.ExchangeFilter{Run: run, Since: since}}
	_, _ = logs.listExchanges(ctx, rec, func(x proxyapi.Exchange) {
		// The filter is a prefix, so it also finds the requests of a server with a longer name.
		if x.Run == run {
			all = append(all, x)
		}
	})
	return all
}

// barred matches Deno's error for a host that is not in "domains". Such a request never reaches the proxy.
var barred = regexp.MustCompile(`(?:getaddrinfo E[A-Z]+|[Rr]equires net access to) "?([a-z0-9](?:[a-z0-9-]*[a-z0-9])?` +
	`(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+)(?::(\d+))?`)

// diagnose draws the conclusions from the exchanges and the log.
func (t *serverTrial) diagnose(a *catalog.API, exchanges []proxyapi.Exchange, lines []operatorapi.Line) {
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	addWanted := func(host string) {
		if name, _, _ := strings.Cut(host, ":"); isTelemetry(name) {
			add(&t.Telemetry, host)
		} else {
			add(&t.Wanted, host)
		}
	}
	var swapped, untrusting []string
	for _, x := range exchanges {
		host := x.Host
		if h, port, err := net.SplitHostPort(host); err == nil && (port == "443" || port == "80") {
			host = h
		}
		for _, s := range x.Swapped {
			add(&swapped, s.Name)
		}
		switch {
		// A program that distrusts the CA ends the TLS handshake itself.
		case x.Code == "handshake_failed":
			add(&untrusting, host)
		case x.Outcome == proxyapi.OutcomeDenied && len(x.APIs) == 0:
			addWanted(host)
		case x.Outcome == proxyapi.OutcomeServed && (x.Status == 401 || x.Status == 403):
			add(&t.Reached, host)
			add(&t.Failed, fmt.Sprintf("%s (answered %d: the key, or what it may do)", host, x.Status))
		case x.Outcome == proxyapi.OutcomeServed, x.Outcome == proxyapi.OutcomeAborted && x.Status/100 == 2:
			add(&t.Reached, host) // or a stream that the server read until it was stopped
		case x.Code != "":
			add(&t.Failed, host+" ("+x.Code+")")
		}
	}
	for _, host := range untrusting {
		// The server accepted the CA for a host that it reached.
		if !slices.Contains(t.Reached, host) {
			add(&t.Failed, host+" (the server rejects CodeForge's CA, so CodeForge cannot insert the key)")
		}
	}
	for _, c := range a.Credentials {
		// Without a request, no credential could be swapped.
		if len(t.Reached) > 0 && !slices.Contains(swapped, c.Name) {
			t.Unused = append(t.Unused, c.Name)
		}
	}
	said := t.Failure
	for _, l := range lines {
		said += "\n" + l.Text
	}
	for _, m := range barred.FindAllStringSubmatch(said, -1) {
		host := m[1]
		if m[2] != "" && m[2] != "443" {
			host += ":" + m[2]
		}
		if !a.CoversHost(host) {
			addWanted(host)
		}
	}
	t.OK = t.Failure == "" && len(t.Wanted) == 0 && len(t.Failed) == 0
	if !t.OK {
		for _, l := range lines[max(0, len(lines)-maxLogLines):] {
			t.Log = append(t.Log, l.Text)
		}
	}
}

// printTrial shows the result.
func (t *serverTrial) printTrial(e *Env) {
	p := newPainter(e, e.Stdout)
	word := p(terminal.Green, "ok")
	if !t.OK {
		word = p(terminal.Red, "not yet")
	}
	fmt.Fprintf(e.Stdout, "%s: %s, %s", t.Name, word, countNoun(t.Tools, "tool"))
	if t.Called != "" {
		fmt.Fprintf(e.Stdout, "; called %s", safetext.OneLine(t.Called))
	}
	fmt.Fprintln(e.Stdout)
	for _, row := range []struct {
		title string
		list  []string
	}{
		{"reached", t.Reached}, {"failed", t.Failed}, {"not in domains", t.Wanted}, {"telemetry", t.Telemetry},
		{"not swapped", t.Unused},
	} {
		if len(row.list) > 0 {
			fmt.Fprintf(e.Stdout, "  %-18s %s\n", row.title, safetext.OneLine(strings.Join(row.list, ", ")))
		}
	}
	if t.Failure != "" {
		fmt.Fprintf(e.Stdout, "  %-18s %s\n", "it says", t.Failure)
	}
	for _, line := range t.Log {
		fmt.Fprintf(e.Stdout, "  %-18s %s\n", "its log", safetext.OneLine(line))
	}
	if t.Called == "" && t.Tools > 0 {
		fmt.Fprintln(e.Stdout, "No read-only tool without arguments was found: --tool NAME --arguments JSON calls a tool.")
	}
}

// addHosts adds the wanted hosts to "domains".
func (o *mcpOptions) addHosts(ctx context.Context, e *Env, a *catalog.API, t serverTrial) error {
	if !o.write {
		question := fmt.Sprintf("Add %s to the domains of %s?", safetext.OneLine(strings.Join(t.Wanted, ", ")), a.Name)
		if err := askYes(ctx, e, question, ""); err != nil {
			return nil // the user has seen the hosts
		}
	}
	domains := []string{}
	for _, h := range a.Hosts {
		// The host of the server's URL is in Hosts, but code must not reach it through domains.
		if h.String() != a.ServerHost {
			domains = append(domains, h.String())
		}
	}
	for _, host := range t.Wanted {
		if _, err := catalog.ParseHostPattern(host); err != nil {
			return errors.New("a host is not a name: " + safetext.OneLine(host))
		}
		domains = append(domains, host)
	}
	if err := apidir.SetDomains(o.apis, a.Name, domains); err != nil {
		return err
	}
	if !o.json {
		fmt.Fprintf(e.Stdout, "Wrote them to %s. Try again: codeforge mcp test %s\n",
			safetext.OneLine(o.apis+"/"+a.Name+"/config.json"), a.Name)
	}
	return nil
}
