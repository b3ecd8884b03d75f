package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/probe"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// test tries one API through the running CodeForge.
func (o *apiOptions) test(ctx context.Context, e *Env, name string) error {
	found, cat := inspect(e, o.apis)
	a := cat.API(name)
	if a == nil {
		for _, f := range found {
			if f.API == name {
				return fmt.Errorf("%s does not load: codeforge api check %s shows why", name, name)
			}
		}
		return fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, o.apis)
	}
	if !a.Active {
		return fmt.Errorf("%s is not active: set \"active\": true in apis/%s/config.json", name, name)
	}
	p, err := newProbe(a, o.path)
	if err != nil {
		return err
	}
	c, err := o.target.config(e)
	if err != nil {
		return err
	}
	r, err := execute(ctx, e, c, server.Run{Code: p.Script(), APIs: []string{name}})
	if err != nil {
		return err
	}
	var receipt controlapi.Receipt
	if r.Receipt != nil {
		receipt = *r.Receipt
	}
	v := p.Judge(receipt, r.Output+" "+strings.Join(r.Notes, " "))
	return shown(e, o.json, v, v.OK, func() { printVerdict(e, v) })
}

// newProbe chooses a request that changes nothing.
func newProbe(a *catalog.API, path string) (probe.Probe, error) {
	p := public(a).API
	p.AllowHTTP = a.AllowHTTP
	return probe.New(p, path)
}

func printVerdict(e *Env, v probe.Verdict) {
	p := newPainter(e, e.Stdout)
	word := p(terminal.Green, "ok")
	if !v.OK {
		word = p(terminal.Red, "failed")
	}
	fmt.Fprintf(e.Stdout, "%s %s\n%s: %s.\n", v.Request.Method, visible.Line(v.Request.URL), word, visible.Line(v.Text))
	for _, h := range v.Hints {
		fmt.Fprintf(e.Stdout, "hint: %s\n", visible.Line(h))
	}
}
