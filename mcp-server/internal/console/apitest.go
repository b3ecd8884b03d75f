package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// testTime bounds the test of an API.
const testTime = 20 * time.Second

// tested is the result of a test of an API.
type tested struct {
	OK    bool         `json:"ok"`
	Steps []testedStep `json:"steps"`
	// Text says more: hints of the proxy, or why there was no test.
	Text string `json:"text,omitempty"`
}

type testedStep struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// testAPI sends one request that changes nothing to an API, from a run that has no other, as codeforge api test does.
func (c *Console) testAPI(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), testTime)
	defer cancel()
	apis := c.cfg.Catalog().APIs
	i := slices.IndexFunc(apis, func(a controlapi.API) bool { return a.Name == r.PathValue("name") })
	if i < 0 {
		return nil, &told{http.StatusConflict, "This API is not active."}
	}
	code, why := probe(apis[i])
	if why != "" {
		return tested{Text: why}, nil
	}
	o, err := c.cfg.Execute(ctx, execution.Request{
		Session: "console", Code: code, APIs: []string{apis[i].Name}, Timeout: testTime,
	})
	if err != nil {
		return tested{Text: "It could not be run: " + err.Error()}, nil
	}
	return judge(o.Receipt, len(apis[i].Credentials) > 0), nil
}

// probe is code that sends a request that changes nothing, or why there is none.
func probe(a controlapi.API) (code, why string) {
	if a.Server != nil {
		return "", "An MCP server is tested in a terminal: codeforge mcp test " + a.Name
	}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	i := slices.IndexFunc(methods, func(m string) bool {
		return !slices.Contains(a.RestrictedMethods, m) &&
			(len(a.AllowedMethods) == 0 || slices.Contains(a.AllowedMethods, m))
	})
	j := slices.IndexFunc(a.Domains, func(d string) bool { return !strings.HasPrefix(d, "*.") })
	if i < 0 || j < 0 {
		return "", "There is no harmless request to try: it allows none of GET, HEAD and OPTIONS, or has only wildcard " +
			"domains."
	}
	scheme := "https://"
	if a.AllowHTTP {
		scheme = "http://"
	}
	url, headers := scheme+a.Domains[j]+"/", map[string]string{}
	if len(a.Credentials) > 0 && len(a.Credentials[0].In) > 0 {
		name := a.Credentials[0].Name
		kind, field, _ := strings.Cut(a.Credentials[0].In[0], ":")
		switch {
		case kind == "header" && (field == "" || strings.EqualFold(field, "Authorization")):
			headers["Authorization"] = "Bearer " + name
		case kind == "header":
			headers[field] = name
		case kind == "query" && field != "":
			url += "?" + field + "=" + name
		}
	}
	quote := func(v any) string {
		text, _ := json.Marshal(v) // strings and maps of strings always marshal
		return string(text)
	}
	return fmt.Sprintf("// Test of the API %s, from the console\nconst r = await fetch(%s, { method: %s, headers: %s, "+
		"redirect: \"manual\" });\nawait r.body?.cancel();\nconsole.log(r.status);\n",
		a.Name, quote(url), quote(methods[i]), quote(headers)), ""
}

// judge tells what the receipt says.
func judge(rec controlapi.Receipt, named bool) tested {
	var out tested
	step := func(ok bool, text string) {
		out.Steps = append(out.Steps, testedStep{ok, text})
	}
	for _, h := range rec.Hints {
		out.Text = strings.TrimSpace(out.Text + " " + h.Voice().Person)
	}
	if len(rec.Exchanges) == 0 {
		step(false, "no request reached the proxy")
		return out
	}
	x := rec.Exchanges[0]
	served := x.Outcome == controlapi.OutcomeServed
	switch {
	case x.Outcome == controlapi.OutcomeDenied:
		step(false, "the proxy refused it: "+x.Code)
	case !served:
		step(false, "no answer: "+x.Code)
	default:
		step(true, "the name resolves, and the certificate is right")
	}
	for _, s := range x.Swapped {
		step(true, s.Name+" became its key in "+s.In)
	}
	if named && served && len(x.Swapped) == 0 {
		step(false, "no name became its key")
	}
	refused := x.Status == http.StatusUnauthorized || x.Status == http.StatusForbidden
	if served {
		step(!refused, strconv.Itoa(x.Status)+" in "+strconv.Itoa(int(x.Milliseconds))+" ms")
		if x.Sanitized > 0 {
			step(true, strconv.Itoa(x.Sanitized)+" keys in the answer were turned back into names")
		} else {
			step(true, "no key in the answer")
		}
	}
	if refused {
		out.Text = strings.TrimSpace("The API does not accept the key, or asks for more. " + out.Text)
	}
	out.OK = !slices.ContainsFunc(out.Steps, func(s testedStep) bool { return !s.OK })
	return out
}
