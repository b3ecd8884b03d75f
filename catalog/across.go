package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// newProblem returns the Problem for a mistake in an API's config.json.
func newProblem(a *API, field, found, want string) Problem {
	return Problem{API: a.Name, File: "apis/" + a.Name + "/config.json", Field: field, Found: found, Want: want}
}

// refuseAPI rejects the new version of an API because of a mistake.
func (l *loadState) refuseAPI(a *API, field, found, want string) {
	p := newProblem(a, field, found, want)
	l.problems = append(l.problems, p)
	l.rejectVersion(a.Name, a, p.String())
}

func (l *loadState) addWarning(a *API, field, found, want string) {
	p := newProblem(a, field, found, want)
	p.Severity = Warning
	l.problems = append(l.problems, p)
}

func (l *loadState) listAPIs() []*API {
	return slices.SortedFunc(maps.Values(l.fresh), func(x, y *API) int { return strings.Compare(x.Name, y.Name) })
}

// checkAcrossAPIs resolves conflicts between APIs. Each step replaces a new version by the old one or removes an old
// one, so the loop terminates. An old version may cause the next conflict.
func (l *loadState) checkAcrossAPIs() {
	for l.rejectDuplicateTokens() || l.rejectDisclosures() || l.rejectForeignTokens() ||
		l.rejectMisleadingPlaceholders() || l.rejectBadSources() {
	}
	// The warnings come last: they must describe the final set of APIs.
	l.warnEqualValues()
	l.warnUnknownServers()
	l.warnSharedVariables()
	l.warnTwoRegistries()
}

// rejectDuplicateTokens resolves token names that two APIs declare. The name belongs to the API that had it before this
// load, or else to the first API by name. The new version of the other API is rejected. An API that loses one name in a
// pass loses no other name in it. rejectDuplicateTokens reports whether there was a conflict.
func (l *loadState) rejectDuplicateTokens() (found bool) {
	owner, lost := map[string]*API{}, map[*API]bool{}
	for _, a := range l.listAPIs() {
		for _, c := range a.Credentials {
			first := owner[c.Name]
			if first == nil || lost[first] {
				owner[c.Name] = a
				continue
			}
			keeps, loses := first, a
			// Otherwise a new API could take a credential's name away from an API in use.
			if l.hadToken(a.Name, c.Name) {
				keeps, loses = a, first
			}
			l.refuseAPI(loses, "credentials."+c.Name, "a token name that apis/"+keeps.Name+" has too",
				"a token name that no other API has")
			lost[loses], owner[c.Name], found = true, keeps, true
			if loses == a {
				break
			}
		}
	}
	return found
}

// rejectMisleadingPlaceholders rejects a placeholder that contains the name of another credential of any API: one text
// would stand for two credentials. It reports whether there was such a placeholder.
func (l *loadState) rejectMisleadingPlaceholders() (found bool) {
	all := l.listCredentials()
	names := convert.Each(all, func(c ownedCredential) string { return c.Name })
	search, rejected := newDictionary(names).newSearch(), map[*API]bool{}
	for _, c := range all {
		var inside []int
		search.scanText(c.Placeholder, func(name int) { inside = append(inside, name) })
		for _, i := range inside {
			search.found[i] = false // other placeholders may contain the name too
			o := all[i]
			if strings.Contains(c.Name, o.Name) || rejected[c.api] || rejected[o.api] {
				continue
			}
			// The placeholder was loaded before the name.
			if l.isUnchanged(c.api) {
				l.refuseAPI(o.api, "credentials."+o.Name, "a token name in the placeholder of "+c.Name, "another token name")
				rejected[o.api] = true
			} else {
				l.refuseAPI(c.api, "credentials."+c.Name+".placeholder", "the token name "+o.Name+" too",
					"a text with one token name in it")
				rejected[c.api] = true
			}
			found = true
		}
	}
	return found
}

// rejectForeignTokens rejects a server whose settings contain the token name of another API. The name would never be
// swapped there, so the server would not get the credential. rejectForeignTokens reports whether there was such a
// server.
func (l *loadState) rejectForeignTokens() (found bool) {
	owner := map[string]*API{}
	for _, c := range l.listCredentials() {
		owner[c.Name] = c.api
	}
	for _, a := range l.listAPIs() {
		if a.Server == nil || l.isUnchanged(a) {
			continue
		}
		if name := findForeignName(a, owner); name != "" {
			l.refuseAPI(a, "mcp", "the token name "+name+" of apis/"+owner[name].Name,
				"token names of this API: a server gets the credentials of no other")
			found = true
		}
	}
	return found
}

// warnUnknownServers warns of names in exclusive_with that are not MCP servers.
func (l *loadState) warnUnknownServers() {
	for _, a := range l.listAPIs() {
		if a.Server == nil {
			continue
		}
		for i, name := range a.Server.ExclusiveWith {
			if other := l.fresh[name]; other == nil || other.Server == nil || other == a {
				l.addWarning(a, fmt.Sprintf("mcp.exclusive_with[%d]", i), strconv.Quote(name)+", which is not another MCP server",
					"the name of an API with mcp")
			}
		}
	}
}

// hadToken reports whether the API had the token name before this load.
func (l *loadState) hadToken(api, token string) bool {
	old := l.o.Previous.API(api)
	return old != nil && slices.ContainsFunc(old.Credentials, func(c Credential) bool { return c.Name == token })
}

type ownedCredential struct {
	Credential
	api *API
}

func (l *loadState) listCredentials() []ownedCredential {
	var all []ownedCredential
	for _, a := range l.listAPIs() {
		for _, c := range a.Credentials {
			all = append(all, ownedCredential{c, a})
		}
	}
	return all
}

// listSecrets lists every secret of every credential, as the value of the credential.
func (l *loadState) listSecrets() []ownedCredential {
	var all []ownedCredential
	for _, c := range l.listCredentials() {
		for _, s := range c.AllSecrets() {
			o := c
			o.Value = s
			all = append(all, o)
		}
	}
	return all
}

// rejectBadSources rejects an API whose fetch uses a token name that no API with the fetch's host has, or that needs
// itself. It reports whether there was such an API.
func (l *loadState) rejectBadSources() (found bool) {
	byName := map[string]ownedCredential{}
	for _, c := range l.listCredentials() {
		byName[c.Name] = c
	}
	for _, c := range l.listCredentials() {
		f, ok := c.Mint.(*Fetch)
		// An earlier step of this pass may have replaced the API.
		if !ok || l.fresh[c.api.Name] != c.api {
			continue
		}
		wrong, want := findUnfitToken(c.Name, f, byName)
		if wrong == "" {
			continue
		}
		l.refuseAPI(c.api, "credentials."+c.Name+".fetch.headers", wrong, want)
		found = true
	}
	return found
}

// findUnfitToken returns the mistake in the token names that the fetch of a credential uses, or "".
func findUnfitToken(of string, f *Fetch, byName map[string]ownedCredential) (found, want string) {
	host, err := serverHost(f.URL)
	if err != nil {
		return "", ""
	}
	seen := map[string]bool{}
	for _, name := range f.Uses {
		used, known := byName[name]
		switch {
		// With an underscore the word is most likely a misspelt token name.
		case !known && strings.Contains(name, "_"):
			return "the token name " + strictjson.CutQuote(name) + ", which no API has",
				"the name of a credential of an API with the host"
		case !known: // an ordinary word
		case !used.api.CoversHost(host.String()):
			return "the token name " + name + " of apis/" + used.api.Name + ", which does not have the host of url",
				"a credential of an API with that host in domains"
		case needsCredential(name, of, byName, seen):
			return "the token name " + name + ", which is fetched with " + of + " itself",
				"a credential that does not need this one"
		}
	}
	return "", ""
}

// needsCredential reports whether obtaining one credential requires another. seen holds the credentials that do not
// require it.
func needsCredential(name, other string, byName map[string]ownedCredential, seen map[string]bool) bool {
	if name == other {
		return true
	}
	f, ok := byName[name].Mint.(*Fetch)
	if seen[name] || !ok {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(f.Uses, func(used string) bool { return needsCredential(used, other, byName, seen) })
}

// rejectDisclosures rejects an API whose public part contains a credential of any API, because code could then read the
// credential. It also rejects an API whose credential is the token name of another, because code could then send it. An
// API that is rejected in a pass is skipped for the rest of the pass. rejectDisclosures reports whether an API was
// rejected.
func (l *loadState) rejectDisclosures() (found bool) {
	apis := l.listAPIs()
	if !slices.ContainsFunc(apis, func(a *API) bool { return !l.isUnchanged(a) }) {
		return false
	}
	all, fresh := l.listSecrets(), []ownedCredential{}
	for _, c := range all {
		if !l.isUnchanged(c.api) {
			fresh = append(fresh, c)
		}
	}
	// The previous load has checked any two unchanged APIs against each other.
	indexAll, indexFresh := newCredentialIndex(all), newCredentialIndex(fresh)
	rejected := map[*API]bool{}
	for _, a := range apis {
		index := indexAll
		if l.isUnchanged(a) {
			index = indexFresh
		}
		for _, f := range index.listDisclosures(a) {
			c := f.ownedCredential
			switch {
			case rejected[a] || rejected[c.api]:
				continue
			case !l.isUnchanged(a):
				l.rejectVersion(a.Name, a, f.problem.String())
				rejected[a] = true
			// The text was there before the credential.
			default:
				f.problem = newProblem(c.api, "credentials."+c.Name, "a credential that apis/"+a.Name+" shows to the model",
					"another credential")
				l.rejectVersion(c.api.Name, c.api, f.problem.String())
				rejected[c.api] = true
			}
			l.problems = append(l.problems, f.problem)
			found = true
		}
	}
	return found
}

// isUnchanged reports whether an API is as before this load: its folder did not change, or the API is stale.
func (l *loadState) isUnchanged(a *API) bool {
	old := l.o.Previous.API(a.Name)
	// The digest includes the credentials, so that a new value counts as a change.
	return a.Stale != "" || old != nil && old.digest == a.digest
}

func (l *loadState) warnEqualValues() {
	first := map[string]string{}
	for _, c := range l.listCredentials() {
		// A minted credential has no fixed value to compare.
		if c.Value.IsEmpty() {
			continue
		}
		other, dup := first[c.Value.Reveal()]
		if !dup {
			first[c.Value.Reveal()] = c.Name
			continue
		}
		l.addWarning(c.api, "credentials."+c.Name, "the same credential as "+other,
			"one token name per credential: a response cannot tell which of them it shows")
	}
}

// warnTwoRegistries warns about a package that two MCP servers take from different registries. It is installed once.
func (l *loadState) warnTwoRegistries() {
	first := map[string]*API{}
	for _, a := range l.listAPIs() {
		if a.Server == nil || a.Server.Package == "" || a.Server.Registry == "" {
			continue
		}
		pkg := a.Server.PackageToInstall()
		other := first[pkg]
		switch {
		case other == nil:
			first[pkg] = a
		case strings.TrimRight(other.Server.Registry, "/") != strings.TrimRight(a.Server.Registry, "/"):
			l.addWarning(a, "mcp.registry", "another registry for "+pkg+" than in apis/"+other.Name+
				": CodeForge installs a package once, from the registry of the server that needs it first", "one registry for both")
		}
	}
}
