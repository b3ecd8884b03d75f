package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/probe"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// testAPI tests one API through the running CodeForge.
func (o *apiOptions) testAPI(ctx context.Context, e *Env, name string) error {
	found, cat := inspectConfig(e, o.apis)
	for _, f := range found {
		if f.API == name && f.Severity == "error" {
			return fmt.Errorf("%s does not load: codeforge api check %s shows why", name, name)
		}
	}
	a := cat.API(name)
	if a == nil {
		return fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, o.apis)
	}
	if !a.Active {
		return fmt.Errorf("%s is not active: set \"active\": true in apis/%s/config.json", name, name)
	}
	if a.Internal {
		return fmt.Errorf("%s is closed to code: apis/%s/config.json has \"internal\": true", name, name)
	}
	c, err := o.target.newConfig(e)
	if err != nil {
		return err
	}
	// The user may have written the file a moment ago.
	if o.waitForLoad(ctx, e, name, true) == notLoaded {
		return fmt.Errorf("the running CodeForge has not loaded %s: codeforge check lists mistakes", name)
	}
	p, err := probe.New(hideSecrets(a).API, cmp.Or(o.path, choosePath(a)))
	if err != nil {
		return err
	}
	r, err := executeRun(ctx, e, c, mcpclient.Run{Code: p.Script(), APIs: []string{name}}, "")
	if err != nil {
		return err
	}
	var receipt proxyapi.Receipt
	if r.Receipt != nil {
		receipt = *r.Receipt
	}
	v := p.ExplainReceipt(receipt, r.Output+" "+strings.Join(r.Notes, " "))
	return printValue(e, o.json, v, v.OK, func() { printVerdict(e, v) })
}

// choosePath returns a path that the rules of an API let pass: "/", or the constant beginning of a rule's path.
func choosePath(a *catalog.API) string {
	for _, r := range append([]catalog.Rule{{Path: "/"}}, a.Rules...) {
		path, _, _ := strings.Cut(cmp.Or(r.Path, "/"), "*")
		if newExplanation(a, http.MethodGet, path).Verdict == "allowed" {
			return path
		}
	}
	return "/"
}

func printVerdict(e *Env, v probe.Verdict) {
	p := newPainter(e, e.Stdout)
	word := p(terminal.Green, "ok")
	switch {
	case v.Unclear:
		word = p(terminal.Yellow, "unclear")
	case !v.OK:
		word = p(terminal.Red, "failed")
	}
	fmt.Fprintf(e.Stdout, "%s %s\n%s: %s.\n", v.Request.Method, safetext.OneLine(v.Request.URL), word,
		safetext.OneLine(v.Text))
	for _, h := range v.Hints {
		fmt.Fprintf(e.Stdout, "hint: %s\n", safetext.OneLine(h))
	}
}
