// Package probe is the request by which an API is tried: one that changes nothing, with the first of the API's token
// names. Code in the sandbox sends it, and the receipt says what happened.
package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Probe is the request.
type Probe struct {
	API    string `json:"api"`
	Method string `json:"method"`
	URL    string `json:"url"`
	Token  string `json:"token,omitempty"`
	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
}

// New chooses a request that changes nothing: GET, or HEAD or OPTIONS where GET is not allowed. The scheme is https,
// except at another port if the API allows plain http. An API with a broken file is not tried: CodeForge would answer
// with the version before it.
func New(a proxyapi.API, path string) (Probe, error) {
	p := Probe{API: a.Name}
	if a.Stale {
		return p, fmt.Errorf("apis/%s/config.json has a mistake, so the running CodeForge still uses the version before "+
			"it. codeforge api check %s shows the mistake", a.Name, a.Name)
	}
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		notAllowed := a.AllowedMethods != nil && !slices.Contains(a.AllowedMethods, m)
		if !notAllowed && !slices.Contains(a.RestrictedMethods, m) {
			p.Method = m
			break
		}
	}
	if p.Method == "" {
		return p, fmt.Errorf("%s does not allow GET, HEAD or OPTIONS, so there is no harmless request to try", a.Name)
	}
	i := slices.IndexFunc(a.Domains, func(d string) bool { return !strings.HasPrefix(d, "*.") })
	if i < 0 {
		return p, errors.New(a.Name + " has only wildcard domains: there is no host to try")
	}
	scheme := "https"
	if a.AllowHTTP && strings.Contains(a.Domains[i], ":") {
		scheme = "http"
	}
	p.URL = scheme + "://" + a.Domains[i] + "/" + strings.TrimPrefix(path, "/")
	p.addToken(a.Credentials)
	return p, nil
}

// addToken puts the first token name where it may be swapped harmlessly: into a header, a cookie or the query.
func (p *Probe) addToken(tokens []proxyapi.Token) {
	for _, t := range tokens {
		for _, in := range t.In {
			kind, field, _ := strings.Cut(in, ":")
			switch {
			case kind == "header" && (field == "" || strings.EqualFold(field, "Authorization")):
				p.Token, p.Header, p.Value = t.Name, "Authorization", "Bearer "+t.Name
				return
			case kind == "header":
				p.Token, p.Header, p.Value = t.Name, field, t.Name
				return
			case kind == "cookie":
				p.Token, p.Header, p.Value = t.Name, "Cookie", field+"="+t.Name
				return
			case kind == "query" && field != "":
				sep := "?"
				if strings.Contains(p.URL, "?") {
					sep = "&"
				}
				p.Token, p.URL = t.Name, p.URL+sep+field+"="+t.Name
				return
			}
		}
	}
}

// Script is the request as code for the sandbox. Its output is not used.
func (p Probe) Script() string {
	headers := map[string]string{}
	if p.Header != "" {
		headers[p.Header] = p.Value
	}
	quote := func(v any) string {
		text, _ := json.Marshal(v) // strings and maps of strings always marshal
		return string(text)
	}
	return fmt.Sprintf("// test of the API %s\n"+
		"const r = await fetch(%s, { method: %s, headers: %s, redirect: \"manual\" });\n"+
		"await r.body?.cancel();\nconsole.log(r.status);\n", p.API, quote(p.URL), quote(p.Method), quote(headers))
}

// Verdict is the outcome of a probe.
type Verdict struct {
	Request Probe `json:"request"`
	OK      bool  `json:"ok"`
	// Unclear means that the answer of the API does not show whether it accepts the credential.
	Unclear bool     `json:"unclear,omitempty"`
	Status  int      `json:"status,omitempty"`
	Swapped bool     `json:"swapped"`
	Text    string   `json:"text"`
	Hints   []string `json:"hints,omitempty"`
}

// ExplainReceipt explains the receipt of the run. printed is what the run printed, where nothing reached the proxy.
func (p Probe) ExplainReceipt(r proxyapi.Receipt, printed string) Verdict {
	v := Verdict{Request: p}
	for _, h := range r.Hints {
		v.Hints = append(v.Hints, h.VoiceText().Person)
	}
	if len(r.Exchanges) == 0 {
		v.Text = "no request reached the proxy: " + strings.TrimRight(strings.TrimSpace(printed), ".")
		return v
	}
	x := r.Exchanges[0]
	// The script hangs up once it has the status, possibly before the proxy has forwarded the whole answer.
	answered := x.Outcome == proxyapi.OutcomeServed || x.Outcome == proxyapi.OutcomeAborted && x.Status != 0
	v.Status, v.Swapped = x.Status, len(x.Swapped) > 0
	swap := "no credential was needed"
	switch {
	case v.Swapped:
		swap = p.Token + " was swapped for the credential"
	case p.Token != "":
		swap = p.Token + " was not swapped"
	}
	switch {
	case x.Outcome == proxyapi.OutcomeDenied:
		v.Text = "the proxy refused the request (" + x.Code + ")"
		if x.Code == "rule_refused" || x.Code == "operation_unknown" {
			v.Hints = append(v.Hints, "Name a path that the API permits: codeforge api test "+p.API+" --path PATH")
		}
	case !answered && len(v.Hints) > 0:
		v.Text = "the API could not be reached (" + x.Code + ")"
	case !answered:
		v.Text = "the API could not be reached (" + x.Code + "): check the host name, the network, the certificate " +
			"(ca_file for your own authority) and the proxy's log"
	case x.Status == http.StatusUnauthorized:
		v.Text = swap + ", and the API does not accept it (401): check the credential, and how the API expects it"
	case x.Status == http.StatusForbidden:
		v.Text = swap + ", and the API forbids this request (403): the credential may lack a permission, " +
			"or the test may need another path (--path)"
	case x.Status >= http.StatusInternalServerError:
		v.Text = fmt.Sprintf("%s, and the API answered with a server error (%d)", swap, x.Status)
	case p.Token != "" && !v.Swapped:
		v.Text = swap + ": check \"in\" in config.json"
	case v.Swapped && x.Status >= http.StatusMultipleChoices: // many APIs send this before they check the credential
		v.Unclear = true
		v.Text = fmt.Sprintf("%s, and the API answered %d, which does not show whether it accepts the credential: "+
			"try a path that needs it, with --path PATH", swap, x.Status)
	default:
		v.OK = true
		v.Text = fmt.Sprintf("%s, and the API answered (%d)", swap, x.Status)
	}
	return v
}
