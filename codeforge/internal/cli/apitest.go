package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// probe is the harmless request of api test.
type probe struct {
	API    string `json:"api"`
	Method string `json:"method"`
	URL    string `json:"url"`
	Token  string `json:"token,omitempty"`
	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
}

// verdict is the result of a probe.
type verdict struct {
	Request probe    `json:"request"`
	OK      bool     `json:"ok"`
	Status  int      `json:"status,omitempty"`
	Swapped bool     `json:"swapped"`
	Text    string   `json:"text"`
	Hints   []string `json:"hints,omitempty"`
}

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
	r, err := execute(ctx, e, c, "", p.script(), []string{name}, 0)
	if err != nil {
		return err
	}
	v := judge(p, r)
	if o.json {
		err = printJSON(e.Stdout, v)
	} else {
		printVerdict(e, v)
	}
	if err == nil && !v.OK {
		return silent(ExitFailed)
	}
	return err
}

// newProbe chooses a request that changes nothing: GET, or HEAD or OPTIONS where GET is not allowed.
func newProbe(a *catalog.API, path string) (probe, error) {
	p := probe{API: a.Name}
	for _, m := range []string{"GET", "HEAD", "OPTIONS"} {
		notAllowed := a.Methods.Allowed != nil && !slices.Contains(a.Methods.Allowed, m)
		if !notAllowed && !slices.Contains(a.Methods.Restricted, m) {
			p.Method = m
			break
		}
	}
	if p.Method == "" {
		return p, fmt.Errorf("%s allows none of GET, HEAD and OPTIONS: there is no harmless request to try", a.Name)
	}
	host, scheme := "", ""
	for _, h := range a.Hosts {
		if text := h.String(); !strings.HasPrefix(text, "*.") {
			host, scheme = text, a.Scheme(h)
			break
		}
	}
	if host == "" {
		return p, fmt.Errorf("%s has only wildcard domains: there is no host to try", a.Name)
	}
	p.URL = scheme + "://" + host + "/" + strings.TrimPrefix(path, "/")
	p.addToken(a.Credentials)
	return p, nil
}

// addToken puts the first token name where it may be swapped harmlessly: into a header or the query.
func (p *probe) addToken(creds []catalog.Credential) {
	for _, c := range creds {
		for _, s := range c.Surfaces {
			switch {
			case s.Kind == catalog.SurfaceHeader && s.Field == "":
				p.Token, p.Header, p.Value = c.Name, "Authorization", "Bearer "+c.Name
				return
			case s.Kind == catalog.SurfaceHeader:
				p.Token, p.Header, p.Value = c.Name, s.Field, c.Name
				if strings.EqualFold(s.Field, "Authorization") {
					p.Value = "Bearer " + c.Name
				}
				return
			case s.Kind == catalog.SurfaceQuery && s.Field != "":
				sep := "?"
				if strings.Contains(p.URL, "?") {
					sep = "&"
				}
				p.Token, p.URL = c.Name, p.URL+sep+s.Field+"="+c.Name
				return
			}
		}
	}
}

// script is the request as code for the sandbox. Its output is not used: the receipt says what happened.
func (p probe) script() string {
	headers := map[string]string{}
	if p.Header != "" {
		headers[p.Header] = p.Value
	}
	quote := func(v any) string {
		text, _ := json.Marshal(v) // strings and maps of strings always marshal
		return string(text)
	}
	return fmt.Sprintf("const r = await fetch(%s, { method: %s, headers: %s, redirect: \"manual\" });\n"+
		"await r.body?.cancel();\nconsole.log(r.status);\n", quote(p.URL), quote(p.Method), quote(headers))
}

// judge explains the receipt.
func judge(p probe, r server.Result) verdict {
	v := verdict{Request: p}
	if r.Receipt != nil {
		for _, h := range r.Receipt.Hints {
			v.Hints = append(v.Hints, h.Voice().Person)
		}
	}
	if r.Receipt == nil || len(r.Receipt.Exchanges) == 0 {
		v.Text = "no request reached the proxy: " +
			strings.TrimRight(strings.TrimSpace(r.Output+" "+strings.Join(r.Notes, " ")), ".")
		return v
	}
	x := r.Receipt.Exchanges[0]
	// The script hangs up once it has the status, possibly before the proxy has forwarded the whole answer.
	answered := x.Outcome == controlapi.OutcomeServed || x.Outcome == controlapi.OutcomeAborted && x.Status != 0
	v.Status, v.Swapped = x.Status, len(x.Swapped) > 0
	swap := "no credential was needed"
	switch {
	case v.Swapped:
		swap = p.Token + " was swapped for the credential"
	case p.Token != "":
		swap = p.Token + " was not swapped"
	}
	switch {
	case x.Outcome == controlapi.OutcomeDenied:
		v.Text = "the proxy refused the request (" + x.Code + ")"
	case !answered:
		v.Text = "the API could not be reached (" + x.Code + "): check the host name, the network, the certificate " +
			"(ca_file for an authority of your own) and the proxy's log"
	case x.Status == 401:
		v.Text = swap + ", and the API does not accept it (401): check the credential, and how the API expects it"
	case x.Status == 403:
		v.Text = swap + ", and the API forbids this request (403): the credential may lack a permission, " +
			"or the test may need another path (--path)"
	case x.Status >= 500:
		v.Text = fmt.Sprintf("%s, and the API answered with a server error (%d)", swap, x.Status)
	case p.Token != "" && !v.Swapped:
		v.Text = swap + ": check \"in\" in config.json"
	default:
		v.OK = true
		v.Text = fmt.Sprintf("%s, and the API answered (%d)", swap, x.Status)
		if x.Status == 404 || x.Status == 405 {
			v.Text += "; the path may not exist, try another one with --path PATH"
		}
	}
	return v
}

func printVerdict(e *Env, v verdict) {
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
