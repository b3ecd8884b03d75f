package cli

import (
	"context"
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
	// among them that it does not need. Untrusting are hosts for which it rejected CodeForge's CA.
	Reached    []string `json:"reached"`
	Wanted     []string `json:"wanted"`
	Telemetry  []string `json:"telemetry"`
	Untrusting []string `json:"untrusting"`
	// Failed are requests to hosts in "domains" that failed, or that the service or the proxy refused: HOST (why).
	Failed []string `json:"failed"`
	// Swapped are the token names that the proxy swapped, Unused the others.
	Swapped []string `json:"swapped"`
	Unused  []string `json:"unused"`
	// Variables are the unset variables that the server asks for. Shapes are the prefixes that it expects of a key.
	Variables []string `json:"variables"`
	Shapes    []string `json:"shapes"`
	// Advice is the advice to the user, one sentence each.
	Advice []string `json:"advice"`
}

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
		Name: name, Reached: []string{}, Wanted: []string{}, Telemetry: []string{}, Untrusting: []string{},
		Failed: []string{}, Swapped: []string{}, Unused: []string{}, Variables: []string{}, Shapes: []string{},
		Advice: []string{},
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
const tryExpression = `(async () => {
  const late = new Promise((_, no) => setTimeout(() => no(new Error("no answer within 45 seconds")), 45_000));
  const tools = await Promise.race([mcp[name].$tools(), late]);
  const pick = tool || tools.find((t) => t.annotations?.readOnlyHint && !t.inputSchema?.required?.length)?.name;
  const got = { tools: tools.length, called: pick ?? "", failed: "" };
  if (pick) {
    try {
      await Promise.race([mcp[name][pick](args), late]);
    } catch (e) {
      got.failed = String(e.message ?? e).slice(0, 2000);
    }
  }
  return got;
})().finally(() => setTimeout(() => Deno.exit(0), 100))`

// settle is the time in which the server's requests get recorded.
const settle = time.Second

// listRequests returns the requests that a server has sent since a time.
func (o *mcpOptions) listRequests(ctx context.Context, e *Env, name string, since time.Time) []proxyapi.Exchange {
	rec, err := o.target.openRecord(ctx, e)
	if err != nil {
		return nil
	}
	defer rec.Close()
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

var (
	// variable matches the name of a variable that holds a key.
	variable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET|PAT|PASSWORD)\b`)
	// shape matches a program's description of a key's prefix.
	shape = regexp.MustCompile("(?i)(?:start|begin)(?:s|ning)? with [\"'`]?" +
		"([A-Za-z][A-Za-z0-9]{1,15}[_-](?:[a-z]{2,8}[_-])?)")
	// barred matches Deno's error for a host that is not in "domains". Such a request never reaches the proxy.
	barred = regexp.MustCompile(`(?:getaddrinfo E[A-Z]+|[Rr]equires net access to) "?([a-z0-9](?:[a-z0-9-]*[a-z0-9])?` +
		`(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+)(?::(\d+))?`)
	// untrusted matches a program's error for an untrusted certificate.
	untrusted = regexp.MustCompile(`(?i)UnknownIssuer|self[- ]signed certificate|unable to (?:get local|verify)|` +
		`unknown authority|CERTIFICATE_VERIFY_FAILED|invalid peer certificate`)
)

// diagnose draws the conclusions from the exchanges and the log.
func (t *serverTrial) diagnose(a *catalog.API, exchanges []proxyapi.Exchange, lines []operatorapi.Line) {
	add := func(list *[]string, s string) {
		if s != "" && !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for _, x := range exchanges {
		host := x.Host
		if h, port, err := net.SplitHostPort(host); err == nil && (port == "443" || port == "80") {
			host = h
		}
		for _, s := range x.Swapped {
			add(&t.Swapped, s.Name)
		}
		switch {
		// A program that distrusts the CA ends the TLS handshake itself.
		case x.Code == "handshake_failed":
			add(&t.Untrusting, host)
		case x.Outcome == proxyapi.OutcomeDenied && len(x.APIs) == 0 && isTelemetry(host):
			add(&t.Telemetry, host)
		case x.Outcome == proxyapi.OutcomeDenied && len(x.APIs) == 0:
			add(&t.Wanted, host)
		case x.Outcome == proxyapi.OutcomeServed && (x.Status == 401 || x.Status == 403):
			add(&t.Reached, host)
			add(&t.Failed, fmt.Sprintf("%s (answered %d: the key, or what it may do)", host, x.Status))
		case x.Outcome == proxyapi.OutcomeServed, x.Outcome == proxyapi.OutcomeAborted && x.Status/100 == 2:
			add(&t.Reached, host) // or a stream that the server read until it was stopped
		case x.Code != "":
			add(&t.Failed, host+" ("+x.Code+")")
		}
	}
	// The server accepted the CA for a host that it reached.
	t.Untrusting = slices.DeleteFunc(t.Untrusting, func(h string) bool { return slices.Contains(t.Reached, h) })
	for _, c := range a.Credentials {
		if !slices.Contains(t.Swapped, c.Name) {
			t.Unused = append(t.Unused, c.Name)
		}
	}
	said := t.Failure
	for _, l := range lines {
		said += "\n" + l.Text
	}
	given := slices.ContainsFunc(a.Credentials, func(c catalog.Credential) bool {
		return strings.Contains(fmt.Sprint(a.Server.Env, a.Server.Args, a.Server.Command, a.Server.Headers), c.Name)
	})
	for _, v := range variable.FindAllString(said, -1) {
		if given {
			break // it has the key, so the text is about other variables
		}
		_, set := a.Server.Env[v]
		token := slices.ContainsFunc(a.Credentials, func(c catalog.Credential) bool { return c.Name == v })
		if !set && !token {
			add(&t.Variables, v)
		}
	}
	for _, m := range barred.FindAllStringSubmatch(said, -1) {
		host := m[1]
		if m[2] != "" && m[2] != "443" {
			host += ":" + m[2]
		}
		switch {
		case a.CoversHost(host):
		case isTelemetry(m[1]):
			add(&t.Telemetry, host)
		default:
			add(&t.Wanted, host)
		}
	}
	for _, m := range shape.FindAllStringSubmatch(said, -1) {
		add(&t.Shapes, m[1])
	}
	t.OK = t.Failure == "" && len(t.Wanted) == 0 && len(t.Untrusting) == 0 && len(t.Failed) == 0
	t.addAdvice(a, untrusted.MatchString(said))
}

func (t *serverTrial) addAdvice(a *catalog.API, distrust bool) {
	say := func(format string, args ...any) { t.Advice = append(t.Advice, fmt.Sprintf(format, args...)) }
	if len(t.Wanted) > 0 {
		list, _ := json.Marshal(t.Wanted) // texts
		say("it wants hosts that are not in \"domains\": %s. Add the hosts of the service", list)
	}
	if len(t.Telemetry) > 0 {
		say("%s only collect statistics: refused, which is harmless", strings.Join(t.Telemetry, ", "))
	}
	for _, v := range t.Variables {
		if len(a.Credentials) == 0 {
			say("it asks for %s: codeforge mcp rm %s, then codeforge mcp add %s --env %s with the same command",
				v, a.Name, a.Name, v)
		} else {
			say("it speaks of %s, which is not set: if that is where it wants the key, mcp.env gets \"%s\": \"%s\"", v, v,
				a.Credentials[0].Name)
		}
	}
	for _, s := range t.Shapes {
		if len(a.Credentials) > 0 {
			c := a.Credentials[0].Name
			say("it wants a key that begins with %s: give %s the placeholder \"%s%s\", and put that into mcp instead",
				s, c, s, c)
		}
	}
	if len(t.Untrusting) > 0 || distrust {
		say("it does not accept CodeForge's CA, so CodeForge cannot swap for it: a server that pins certificates does not " +
			"work here")
	}
	if len(t.Unused) > 0 && t.Called != "" && len(t.Reached) > 0 {
		say("%s was not swapped in what it sent: see \"in\" in config.json and codeforge logs", strings.Join(t.Unused, ", "))
	}
	if t.Called == "" && t.Tools > 0 {
		say("no read-only tool without arguments was found: --tool NAME --arguments JSON calls a tool")
	}
	if t.Tools == 0 && t.Failure == "" {
		say("it lists no tools; some servers list only the tools that the key permits")
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
		{"reached", t.Reached}, {"failed", t.Failed}, {"wanted", t.Wanted}, {"telemetry", t.Telemetry},
		{"no trust in the CA", t.Untrusting}, {"swapped", t.Swapped}, {"asks for", t.Variables},
	} {
		if len(row.list) > 0 {
			fmt.Fprintf(e.Stdout, "  %-18s %s\n", row.title, safetext.OneLine(strings.Join(row.list, ", ")))
		}
	}
	if t.Failure != "" {
		fmt.Fprintf(e.Stdout, "  %-18s %s\n", "it says", t.Failure)
	}
	for _, line := range t.Advice {
		fmt.Fprintf(e.Stdout, "- %s.\n", safetext.OneLine(line))
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
