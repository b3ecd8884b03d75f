package attack

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// still is an upstream that saw these connections.
type still struct{ wires []upstream.Wire }

func (s still) Seen(string) []upstream.Seen { return nil }
func (s still) Asked() []string             { return nil }
func (s still) Forget()                     {}
func (s still) Wires(string) []upstream.Wire {
	return s.wires
}

// evidence is what an attack left: what it printed, and what arrived.
func evidence(printed string, arrived ...upstream.Seen) *Evidence {
	w := &world.World{Canaries: map[string]*canary.Canary{"HTTPBIN_TOKEN": canary.New("HTTPBIN_TOKEN")}, Upstream: still{}}
	return &Evidence{World: w, Trial: "trial1", Result: world.Result{Out: printed, JSON: "{}"}, Arrived: arrived}
}

// spoken is what speak prints of these bytes behind a handshake.
func spoken(text string) string {
	out, _ := json.Marshal(map[string]any{"status": 101, "text": "HTTP/1.1 101\r\n\r\n" + text})
	return string(out) + "\n"
}

// withToken adds a request that arrived with the credential.
func (e *Evidence) withToken() *Evidence {
	e.Arrived = append(e.Arrived, upstream.Seen{
		Host: upstream.HTTPBin, Method: "GET", Target: "/anything?t=trial1",
		Header: http.Header{"Authorization": {"Bearer " + e.World.Canaries["HTTPBIN_TOKEN"].Value()}},
	})
	return e
}

var plainGet = upstream.Seen{Host: upstream.HTTPBin, Method: "GET", Target: "/anything?t=trial1", Header: http.Header{}}

const (
	denied403 = `{"status":403,"code":"host_unknown"}` + "\n"
	answered  = `{"status":200,"text":"HTTPBIN_TOKEN"}` + "\n"
	typo      = `{"error":"fetsch is not defined","kind":"ReferenceError"}` + "\n"
	handshake = "GET /x/ws?t=trial1 HTTP/1.1\r\n\r\n"
	noCall    = `{"error":"x.readd is not a function","kind":"TypeError"}` + "\n"
)

// TestJudges: each judge says no to an attack that succeeded, and to one that was never mounted.
// Promise: checks-can-fail
func TestJudges(t *testing.T) {
	for name, row := range map[string]struct {
		judge Judge
		e     *Evidence
		held  bool
	}{
		"refused: refused":                   {refused(), evidence(denied403), true},
		"refused: by an error":               {refused(), evidence(`{"error":"Requires net access to evil.test"}` + "\n"), true},
		"refused: answered":                  {refused(), evidence(answered), false},
		"refused: arrived":                   {refused(), evidence(denied403, plainGet), false},
		"refused: one of two":                {refused(), evidence(denied403 + answered), false},
		"refused: another code":              {refused("method_restricted"), evidence(denied403), false},
		"refused: an error where a code is":  {refused("host_unknown"), evidence(`{"error":"gone"}` + "\n"), false},
		"refused: nothing printed":           {refused(), evidence(""), false},
		"unswapped: literal":                 {unswapped("HTTPBIN_TOKEN", false), evidence(answered, plainGet), true},
		"unswapped: swapped":                 {unswapped("HTTPBIN_TOKEN", false), evidence(answered).withToken(), false},
		"unswapped: without its hint":        {unswapped("HTTPBIN_TOKEN", true), evidence(answered, plainGet), false},
		"unswapped: nothing printed":         {unswapped("HTTPBIN_TOKEN", false), evidence(""), false},
		"scrubbed: scrubbed":                 {scrubbed("HTTPBIN_TOKEN", true), evidence(answered).withToken(), true},
		"scrubbed: never sent":               {scrubbed("HTTPBIN_TOKEN", true), evidence(answered, plainGet), false},
		"scrubbed: not shown":                {scrubbed("HTTPBIN_TOKEN", true), evidence(`{"status":200}` + "\n").withToken(), false},
		"scrubbed: nothing printed":          {scrubbed("HTTPBIN_TOKEN", false), evidence("").withToken(), false},
		"notEchoed: scrubbed":                {notEchoed("HTTPBIN_TOKEN"), evidence(answered, plainGet), true},
		"notEchoed: not shown":               {notEchoed("HTTPBIN_TOKEN"), evidence(`{"status":200}`+"\n", plainGet), false},
		"notEchoed: never arrived":           {notEchoed("HTTPBIN_TOKEN"), evidence(answered), false},
		"swapped: swapped":                   {swapped("HTTPBIN_TOKEN"), evidence(answered).withToken(), true},
		"swapped: not":                       {swapped("HTTPBIN_TOKEN"), evidence(answered, plainGet), false},
		"verdicts: all":                      {verdicts(), evidence(`{"held":true,"seen":"a"}` + "\n"), true},
		"verdicts: not all":                  {verdicts(), evidence(`{"held":true}` + "\n" + `{"held":false,"seen":"b"}` + "\n"), false},
		"verdicts: none":                     {verdicts(), evidence("done\n"), false},
		"never: only the first":              {never("second"), evidence(answered, plainGet), true},
		"never: the second":                  {never("anything"), evidence(answered, plainGet), false},
		"never: not even the first":          {never("second"), evidence(denied403), false},
		"within: as many":                    {within(1), evidence(answered, plainGet), true},
		"within: more":                       {within(0), evidence(answered, plainGet), false},
		"within: nothing printed":            {within(1), evidence("", plainGet), false},
		"broken: cut":                        {broken, evidence(`{"error":"error reading a body"}` + "\n").withToken(), true},
		"broken: whole":                      {broken, evidence(answered).withToken(), false},
		"survives: nothing arrived":          {survives, evidence(denied403), false},
		"unredacted: it arrived":             {unredacted, evidence(answered, upstream.Seen{Target: "/" + redactMe}), false},
		"unredacted: nothing arrived":        {unredacted, evidence(denied403), false},
		"unasked: answered":                  {unasked, evidence(`{"status":200}` + "\n"), false},
		"unasked: nothing printed":           {unasked, evidence(""), false},
		"overrideUnsent: it arrived":         {overrideUnsent, evidence(denied403, upstream.Seen{Body: []byte("_method=DELETE")}), false},
		"overrideUnsent: refused":            {overrideUnsent, evidence(denied403), true},
		"overrideUnsent: answered":           {overrideUnsent, evidence(answered), false},
		"stuck: answered":                    {stuck, evidence(answered), false},
		"stuck: nothing printed":             {stuck, evidence(""), false},
		"hungUp: closed":                     {hungUp(byeProtocol, ""), evidence(spoken(byeProtocol), plainGet), true},
		"hungUp: something before":           {hungUp(byeProtocol, ""), evidence(spoken("hi"+byeProtocol), plainGet), false},
		"hungUp: another goodbye":            {hungUp(byeProtocol, ""), evidence(spoken(byePolicy), plainGet), false},
		"hungUp: no handshake":               {hungUp(byeProtocol, ""), evidence(denied403), false},
		"unheard: a close":                   {unheard(byeProtocol), evidence(spoken(byeProtocol), plainGet).wire(handshake + "\x88\x82\x00\x00\x00\x00\x03\xea"), true},
		"unheard: something before":          {unheard(byeProtocol), evidence(spoken(byeProtocol), plainGet).wire(handshake + "\x81\x82\x00\x00\x00\x00hi"), false},
		"heard: nothing":                     {heard("x", ""), evidence(answered, plainGet), false},
		"both: the second does not hold":     {both(swapped("HTTPBIN_TOKEN"), verdicts()), evidence(answered).withToken(), false},
		"both: the first does not hold":      {both(verdicts(), swapped("HTTPBIN_TOKEN")), evidence(answered).withToken(), false},
		"unsmuggled: an exchange of the run": {unsmuggled, evidence(answered, plainGet).exchanges("GET /anything"), true},
		"unsmuggled: no exchange":            {unsmuggled, evidence(answered, plainGet), false},
		"unsmuggled: a second request":       {unsmuggled, evidence(answered, plainGet, plainGet).exchanges("GET /anything"), false},
		"unsmuggled: another path": {unsmuggled, evidence(answered, upstream.Seen{Host: upstream.HTTPBin, Method: "GET", Target: "/anything/smuggled?t=trial1"}).
			exchanges("GET /anything", "GET /anything/second"), false},
		"unsmuggled: another method": {unsmuggled, evidence(answered, plainGet).exchanges("POST /anything"), false},
		"unsmuggled: two lengths": {unsmuggled, evidence(answered, upstream.Seen{
			Host: upstream.HTTPBin, Method: "GET", Target: "/anything", Header: http.Header{"Content-Length": {"1", "2"}},
		}).exchanges("GET /anything"), false},
		"asGet: arrived as GET":       {asGet, evidence(answered, plainGet), true},
		"asGet: arrived as DELETE":    {asGet, evidence(answered, upstream.Seen{Method: "DELETE"}), false},
		"asGet: nothing printed":      {asGet, evidence("", plainGet), false},
		"basic: as Bearer":            {basic, evidence(answered).withToken(), false},
		"closed: closed":              {closed, evidence(`{"seen":"closed "}` + "\n"), true},
		"closed: arrived":             {closed, evidence(`{"seen":"closed comment"}` + "\n"), false},
		"closed: not mounted":         {closed, evidence(denied403), false},
		"reached: nothing arrived":    {reached, evidence(denied403), false},
		"documented: never sent":      {documented, evidence(answered, plainGet), false},
		"unsmuggled: nothing printed": {unsmuggled, evidence(""), false},
		"unsmuggled: both framings":   {unsmuggled, evidence(answered).wire("POST /?t=trial1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), false},
	} {
		if seen, held := row.judge(row.e); held != row.held {
			t.Errorf("%s: held %t, seen %q", name, held, seen)
		}
	}
}

func (e *Evidence) exchanges(all ...string) *Evidence {
	for _, x := range all {
		method, path, _ := strings.Cut(x, " ")
		e.Result.Receipt.Exchanges = append(e.Result.Receipt.Exchanges, proxyapi.Exchange{
			Method: method, URL: "https://" + upstream.HTTPBin + path + "?t", Outcome: proxyapi.OutcomeServed,
		})
	}
	return e
}

func (e *Evidence) wire(text string) *Evidence {
	e.World.Upstream = still{[]upstream.Wire{{Bytes: []byte(text)}}}
	return e
}

// TestMisfires: an attack whose own code is wrong, or that nobody judges, does not count as held.
// Promise: checks-can-fail
func TestMisfires(t *testing.T) {
	for name, printed := range map[string]string{
		"a name that is not defined": typo, "what is no function": noCall,
		"uncaught":          "error: Uncaught (in promise) ReferenceError: shwo is not defined\n",
		"uncaught, a call":  "error: Uncaught TypeError: s.sendd is not a function\n",
		"wrong in its text": "error: Uncaught SyntaxError: Unexpected token\n",
	} {
		if seen, held := judge(Attack{Judge: func(*Evidence) (string, bool) { return "", true }}, evidence(printed)); held {
			t.Errorf("%s: held: %s", name, seen)
		}
	}
	if _, held := judge(Attack{}, evidence(denied403)); held {
		t.Error("an attack without a judge held")
	}
	ok := Attack{Judge: refused()}
	for _, printed := range []string{denied403, `{"error":"fetch failed","kind":"TypeError"}` + "\n"} {
		if seen, held := judge(ok, evidence(printed)); !held {
			t.Errorf("a refusal is not held: %s", seen)
		}
	}
}

// nowhere are names that attacks speak of and nobody answers to: that they do not resolve is the point, or they are not
// meant to be asked for.
var nowhere = []string{
	"off.test", "wild.test", "b.wild.test", "c.wild.test", "d.wild.test", "s.wild.test", "localhost", "codeforge.internal", "x.y.wild.test", "redact-me-please.wild.test", "a.redact-me-please.evil.test",
	"metadata.google.internal", "mcp-server", "proxy", "host.docker.internal", "gateway.docker.internal", "test",
}

// TestHostsExist: an attack on a host that no server has would be refused for that alone.
// Promise: checks-can-fail
func TestHostsExist(t *testing.T) {
	named := regexp.MustCompile(`(?:https?|wss?)://(?:[a-z.]+@)?([a-z][a-zA-Z0-9.-]*[a-z])(?::\d+)?[/"]`)
	known := slices.Concat(nowhere, upstream.ForbiddenNames(), []string{
		upstream.HTTPBin, upstream.Other, upstream.Strict, upstream.Plain, upstream.H2, upstream.Wild, upstream.Shared, upstream.Evil, upstream.EvilH2,
		upstream.BadCA, upstream.Wrong, upstream.Expired, upstream.Rebind, upstream.Ports, proxyapi.ServersHost,
	})
	names := map[string]bool{}
	for _, a := range Suite() {
		for _, m := range named.FindAllStringSubmatch(a.Code, -1) {
			host := strings.ToLower(m[1])
			if strings.Contains(m[1], "TRIAL") || strings.Contains(a.Code, "REVERSED_") && strings.HasPrefix(m[1], ".") {
				continue
			}
			if !slices.Contains(known, host) {
				t.Errorf("%s %s: nobody is %q", a.Section, a.Name, host)
			}
		}
		if a.Name == "" || a.Section == "" || a.Expected == "" || (a.Code == "") == (a.Do == nil) || a.Do == nil && a.Judge == nil {
			t.Errorf("%s %s: an attack needs a name, an expectation, and code with a judge or what to do", a.Section, a.Name)
		}
		if names[a.Section+a.Name] {
			t.Errorf("%s %s: there are two of that name", a.Section, a.Name)
		}
		names[a.Section+a.Name] = true
	}
	// Each section has attacks that must succeed in reaching what it attacks, or a defence that is held would look the
	// same.
	for _, section := range []string{"A", "B", "C", "D", "E", "G", "M", "S"} {
		if !slices.ContainsFunc(Suite(), func(a Attack) bool { return a.Section == section && strings.Contains(a.Name, "control: ") }) {
			t.Errorf("section %s has no control", section)
		}
	}
	if len(names) < 700 {
		t.Errorf("%d attacks", len(names))
	}
}

// TestTable: the table tells an attack that held from one that did not and from one that was never mounted.
func TestTable(t *testing.T) {
	row := func(name string, decide Judge, e *Evidence) Outcome {
		a := Attack{Section: "A", Name: name, Expected: "refused", Judge: decide}
		o := Outcome{Attack: a}
		o.Seen, o.Held = judge(a, e)
		return o
	}
	text := renderTable(world.Docker, []Outcome{
		row("resists", refused(), evidence(denied403)),
		row("succeeds", refused(), evidence(answered)),
		row("misfires", refused(), evidence(typo)),
	}, []Attack{{Section: "A", Name: "elsewhere", Expected: "refused", NoPod: "pods share it"}})
	for _, want := range []string{
		`\| A \| resists \| refused \| .* \| held \|`,
		`\| A \| succeeds \| refused \| .* \| \*\*NOT HELD\*\* \|`,
		`\| A \| misfires \| refused \| MISFIRED: .* \| \*\*NOT HELD\*\* \|`,
		`\| A \| elsewhere \| refused \| \| absent: pods share it \|`,
		`docker mode: 3 attacks, 1 absent; A 1 of 3 held; B 0 of 0 held;`,
	} {
		if !regexp.MustCompile(`(?m)` + want).MatchString(text) {
			t.Errorf("no line matches %s in\n%s", want, text)
		}
	}
}
