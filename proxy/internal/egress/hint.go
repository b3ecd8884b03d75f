package egress

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// hintUnswapped explains why token names in a request or in WebSocket messages were not swapped. It leaves out the name
// of a header or field: the sandbox may have chosen it.
func hintUnswapped(host catalog.Host, c *catalog.Catalog, run policy.Run, report interface {
	Swapped() []swap.Swap
	Seen() []swap.SeenName
}) []proxyapi.Hint {
	var out []proxyapi.Hint
	for _, seen := range report.Seen() {
		if seen.Code == swap.CodeUnknown {
			out = append(out, hintUnknownName(host, c, run))
			continue
		}
		api, cred := findOwner(c, seen.Name)
		if api == nil {
			continue
		}
		// A closed run must not learn of other APIs: treat their token names like any other word.
		if run.IsClosed() && !run.CanUse(api.Name) {
			if seen.Where == "header" {
				out = append(out, hintUnknownName(host, c, run))
			}
			continue
		}
		if seen.Code == swap.CodeRepeated {
			if seen.Where == "header" { // elsewhere it is most likely text about the name
				out = append(out, hintSecondHeader(host, api, cred, joinPlaces(toSwaps(report.Swapped()), cred)))
			}
			continue
		}
		text := readertext.NewText("%NAME was not swapped. "+explainCode(seen.Code), "%NAME", seen.Name,
			"%API", api.Name, "%IN", joinTexts(cred.Surfaces), "%HOSTS", joinTexts(api.Hosts),
			"%PLACE", suggestSurface(seen.Where))
		out = append(out, newHint("not_swapped_"+seen.Code, host.String(), text))
	}
	return out
}

// hintSecondHeader returns the hint on a token name in a header if the credential was already put into other places.
func hintSecondHeader(host catalog.Host, api *catalog.API, cred catalog.Credential, places string) proxyapi.Hint {
	return newHint("not_swapped_"+swap.CodeRepeated, host.String(),
		readertext.NewText("%NAME was put in %PLACES, and is unchanged "+
			"where a header has it a second time: each surface is swapped once. For two headers {the user can declare|declare} "+
			"both in its \"in\"{| in apis/%API/config.json}, e.g. [\"header:Authorization\", \"header:apikey\"].",
			"%NAME", cred.Name, "%API", api.Name, "%PLACES", places))
}

func newHint(code, host string, text readertext.Text) proxyapi.Hint {
	h := proxyapi.Hint{Code: code, Text: text.Model, Host: host}
	if text.Person != text.Model {
		h.Person = text.Person
	}
	return h
}

// addMethodToHints adds the method to hints that do not name their host, unless the sandbox invented the method.
func addMethodToHints(n *receipt.Note, host catalog.Host) {
	if !slices.Contains(usualMethods, n.Method) || host.IsZero() || catalog.IsOwnHost(host) {
		return
	}
	for i := range n.Hints {
		if h := &n.Hints[i]; h.Host == n.Host && !strings.Contains(h.Text, n.Host) {
			h.Method = n.Method
		}
	}
}

// hintRemovedHeaders returns the hints on headers that code may rely on and that the proxy removed from a request or
// its response. ranged means that a Range header was removed.
func hintRemovedHeaders(n *receipt.Note, ranged bool, a *upstreamAnswer) (out []proxyapi.Hint) {
	if ranged && n.Outcome == "" {
		out = append(out,
			newHint("range_removed", n.Host, readertext.NewText("left without its Range header, because a part of a "+
				"response can show a part of a credential. The response is the whole content: take the part in code.")))
	}
	switch {
	case !a.scrubbed.HasRemovedETag() && !a.unsigned.HasRemovedETag():
	case a.scrubbed.Count()+a.unsigned.Count() > 0:
		out = append(out, newHint(proxyapi.HintETag, n.Host,
			readertext.NewText("answered with a credential and an ETag. The proxy "+
				"removed the ETag, because it can be a digest of the response.")))
	default:
		out = append(out, newHint(proxyapi.HintETag, n.Host,
			readertext.NewText("answered with an ETag. The proxy removed it, "+
				"because it can be a digest of a response that shows a credential. If %API never shows one, "+
				"{the user can set|set} \"etag\": \"keep\" in {its config.json|apis/%API/config.json}.",
				"%API", strings.Join(n.APIs, ", "))))
	}
	return out
}

// hintRejected explains the most likely meaning of an upstream's 401 or 403. The upstream's message often repeats the
// token name, which scrubbing put there for the credential. So it reads as if the name had not been swapped.
// apis are those of the request.
func hintRejected(n *receipt.Note, w *responseWriter, snap *reload.Snapshot, apis []*catalog.API) []proxyapi.Hint {
	if w.status != http.StatusUnauthorized && w.status != http.StatusForbidden {
		return nil
	}
	// GitHub and Google, for example, answer a request beyond their limits with 403.
	if h := w.Header(); w.status == http.StatusForbidden &&
		(h.Get("Retry-After") != "" || h.Get("X-Ratelimit-Remaining") == "0") {
		return []proxyapi.Hint{newHint("rate_limited", n.Host,
			readertext.NewText("answered 403 with the headers of a rate limit: "+
				"data may be missing. Wait as Retry-After says, or until the limit's reset, then send the request again."))}
	}
	var put []string
	for _, s := range n.Swapped {
		_, cred := findOwner(snap.Rules.Catalog, s.Name)
		text := s.Name + " was put in " + joinPlaces(n.Swapped, cred)
		if s.In == "signature" {
			text = s.Name + " signed the request"
		}
		if !slices.Contains(put, text) {
			put = append(put, text)
		}
	}
	switch {
	case len(put) > 0:
		why := ", so it is probably wrong or expired, or lacks rights{: only the user can change that|}."
		if w.status == http.StatusUnauthorized {
			why = ". Either it is wrong or expired{, which only the user can change|}, or the API wants it in another place " +
				"or with another scheme."
		}
		return []proxyapi.Hint{newHint(proxyapi.HintRejected, n.Host,
			readertext.NewText("answered %STATUS. The credential of %PUT"+why,
				"%STATUS", strconv.Itoa(w.status), "%PUT", strings.Join(put, ", that of ")))}
	case w.status == http.StatusUnauthorized && len(n.Hints) == 0:
		for _, a := range apis {
			if len(a.Credentials) > 0 {
				c := a.Credentials[0]
				return []proxyapi.Hint{newHint(proxyapi.HintRejected, n.Host,
					readertext.NewText("answered 401, and the request had no token "+
						"name. The API %API has %NAME, for: %IN.", "%API", a.Name, "%NAME", c.Name, "%IN", joinTexts(c.Surfaces)))}
			}
		}
	}
	return nil
}

// hintAfter is how long a client must have waited for a missing response to deserve a hint. A client that gives up
// sooner most likely no longer wanted the response.
const hintAfter = time.Second

// hintUnanswered returns the hint for a request if its client or the end of the run gave it up before the response.
func hintUnanswered(host string, began time.Time) []proxyapi.Hint {
	waited := time.Since(began)
	if waited < hintAfter {
		return nil
	}
	return []proxyapi.Hint{newHint("unanswered", host,
		readertext.NewText("had no response after %SECONDS s, when the "+
			"code or the run's timeout gave it up.", "%SECONDS", strconv.FormatFloat(waited.Seconds(), 'f', 1, 64)))}
}

// hintUnknownName returns the hint for a word that stands in a credential's place and looks like a token name, but is
// not one. The hint does not repeat the word, because the sandbox chose it.
func hintUnknownName(host catalog.Host, c *catalog.Catalog, run policy.Run) proxyapi.Hint {
	text := "In the credential's place is a word that looks like a token name but is not one."
	for _, a := range c.ListHolders(host) {
		if run.IsClosed() && !run.CanUse(a.Name) {
			continue
		}
		first := a.Credentials[:min(len(a.Credentials), 12)]
		names := convert.Each(first, func(cr catalog.Credential) string { return cr.Name })
		text += " The API " + a.Name + " has " + strings.Join(names, ", ") + "."
	}
	return proxyapi.Hint{Code: "not_swapped_" + swap.CodeUnknown, Text: text, Host: host.String()}
}

// suggestSurface returns the surface that the user could declare, for a name seen there.
func suggestSurface(where string) string {
	if where == "path" {
		return `"path"`
	}
	return `"` + where + `:<its name>"`
}

// explainCode returns the sentence for a code of package swap.
func explainCode(code string) string {
	switch code {
	case swap.CodeUndeclared:
		return "The API %API declares it for: %IN. Write it there; or {the user can |}add %PLACE to its \"in\"{| in " +
			"apis/%API/config.json}."
	case swap.CodeSink:
		return "It is in a header that servers store or pass on, where no name is swapped. Its places are: %IN."
	case swap.CodeInside:
		return "It must be the whole value, or follow one scheme word as in \"Bearer NAME\"; its places are: %IN."
	case swap.CodeInsecure:
		return "The request was plain http; use https. {The user can allow plain http for the API %API|To allow plain " +
			"http, set \"allow_http\" in apis/%API/config.json}."
	case swap.CodeOther:
		return "It belongs to the API %API, which lacks this host or is not in this run. The hosts of %API are: %HOSTS."
	}
	return "Its places are: %IN."
}

// findOwner returns the API and the credential of a token name, or nil.
func findOwner(c *catalog.Catalog, name string) (*catalog.API, catalog.Credential) {
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			if cr.Name == name {
				return a, cr
			}
		}
	}
	return nil, catalog.Credential{}
}

// joinPlaces lists the places that a credential was put in. It does not name an undeclared header: code chose that
// name, and could put instructions for the model into it.
func joinPlaces(swaps []proxyapi.Swap, c catalog.Credential) string {
	var out []string
	for _, w := range swaps {
		place := w.In
		declared := slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool { return s.String() == place })
		if strings.HasPrefix(place, "header:") && place != "header:Authorization" && !declared {
			place = "another header"
		}
		if w.Name == c.Name && !slices.Contains(out, place) {
			out = append(out, place)
		}
	}
	return strings.Join(out, " and ")
}

func joinTexts[T fmt.Stringer](values []T) string {
	var out []string
	for _, v := range values {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}
