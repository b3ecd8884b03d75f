package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
)

// mistake returns the Problem for a mistake in an API's config.json.
func mistake(a *API, field, found, want string) Problem {
	return Problem{API: a.Name, File: "apis/" + a.Name + "/config.json", Field: field, Found: found, Want: want}
}

// refuse rejects the new version of an API because of a mistake.
func (l *loader) refuse(a *API, field, found, want string) {
	p := mistake(a, field, found, want)
	l.problems = append(l.problems, p)
	l.reject(a.Name, a, p.String())
}

func (l *loader) warn(a *API, field, found, want string) {
	p := mistake(a, field, found, want)
	p.Severity = Warning
	l.problems = append(l.problems, p)
}

// sorted lists the APIs of the load by name.
func (l *loader) sorted() []*API {
	var apis []*API
	for _, a := range l.fresh {
		apis = append(apis, a)
	}
	slices.SortFunc(apis, func(x, y *API) int { return strings.Compare(x.Name, y.Name) })
	return apis
}

// across resolves conflicts between APIs. Each step replaces a new version by the old one or removes an old one, so the
// loop terminates. An old version may cause the next conflict.
func (l *loader) across() {
	for l.conflict() || l.disclosure() || l.foreign() || l.misleading() || l.sources() {
	}
	// The warnings come last: they must describe the final set of APIs.
	l.duplicates()
	l.servers()
}

// conflict resolves token names that two APIs declare. The name belongs to the API that had it before this load, or
// else to the first API by name. The new version of the other API is rejected. An API that loses one name in a pass
// loses no other name in it. conflict reports whether there was a conflict.
func (l *loader) conflict() (found bool) {
	owner, lost := map[string]*API{}, map[*API]bool{}
	for _, a := range l.sorted() {
		for _, c := range a.Credentials {
			first := owner[c.Name]
			if first == nil || lost[first] {
				owner[c.Name] = a
				continue
			}
			keeps, loses := first, a
			// Otherwise a new API could take a credential's name away from an API in use.
			if l.had(a.Name, c.Name) {
				keeps, loses = a, first
			}
			l.refuse(loses, "credentials."+c.Name, "a token name that apis/"+keeps.Name+" has too",
				"a token name that no other API has")
			lost[loses], owner[c.Name], found = true, keeps, true
			if loses == a {
				break
			}
		}
	}
	return found
}

// misleading rejects a placeholder that contains the name of another credential of any API: one text would stand for
// two credentials. It reports whether there was such a placeholder.
func (l *loader) misleading() (found bool) {
	all := l.credentials()
	for _, c := range all {
		if c.Placeholder == "" {
			continue
		}
		i := slices.IndexFunc(all, func(o owned) bool {
			return o.Name != c.Name && strings.Contains(c.Placeholder, o.Name) && !strings.Contains(c.Name, o.Name)
		})
		if i < 0 {
			continue
		}
		// The placeholder was there before the name.
		if l.unchanged(c.api) {
			l.refuse(all[i].api, "credentials."+all[i].Name, "a token name in the placeholder of "+c.Name, "another token name")
		} else {
			l.refuse(c.api, "credentials."+c.Name+".placeholder", "the token name "+all[i].Name+" too",
				"a text with one token name in it")
		}
		return true
	}
	return false
}

// foreign rejects a server whose settings contain the token name of another API. The name would never be swapped there,
// so the server would not get the credential. foreign reports whether there was such a server.
func (l *loader) foreign() (found bool) {
	owner := map[string]*API{}
	for _, c := range l.credentials() {
		owner[c.Name] = c.api
	}
	for _, a := range l.sorted() {
		if a.Server == nil || l.unchanged(a) {
			continue
		}
		if name := foreignName(a, owner); name != "" {
			l.refuse(a, "mcp", "the token name "+name+" of apis/"+owner[name].Name,
				"token names of this API: a server gets the credentials of no other")
			found = true
		}
	}
	return found
}

// servers warns of names in exclusive_with that are not MCP servers.
func (l *loader) servers() {
	for _, a := range l.sorted() {
		if a.Server == nil {
			continue
		}
		for i, name := range a.Server.ExclusiveWith {
			if other := l.fresh[name]; other == nil || other.Server == nil || other == a {
				l.warn(a, fmt.Sprintf("mcp.exclusive_with[%d]", i), strconv.Quote(name)+", which is not another MCP server",
					"the name of an API with mcp")
			}
		}
	}
}

// had reports whether the API had the token name before this load.
func (l *loader) had(api, token string) bool {
	old := l.o.Previous.API(api)
	return old != nil && slices.ContainsFunc(old.Credentials, func(c Credential) bool { return c.Name == token })
}

// owned is a credential and its API.
type owned struct {
	Credential
	api *API
}

func (l *loader) credentials() []owned {
	var all []owned
	for _, a := range l.sorted() {
		for _, c := range a.Credentials {
			all = append(all, owned{c, a})
		}
	}
	return all
}

// secrets lists every secret of every credential, as the value of the credential.
func (l *loader) secrets() []owned {
	var all []owned
	for _, c := range l.credentials() {
		for _, s := range c.Secrets() {
			o := c
			o.Value = s
			all = append(all, o)
		}
	}
	return all
}

// sources rejects an API whose fetch uses a token name that no API with the fetch's host has, or that needs itself. It
// reports whether there was such an API.
func (l *loader) sources() (found bool) {
	byName := map[string]owned{}
	for _, c := range l.credentials() {
		byName[c.Name] = c
	}
	for _, c := range l.credentials() {
		f, ok := c.Mint.(*Fetch)
		// An earlier step of this pass may have replaced the API.
		if !ok || l.fresh[c.api.Name] != c.api {
			continue
		}
		wrong, want := unfit(c.Name, f, byName)
		if wrong == "" {
			continue
		}
		l.refuse(c.api, "credentials."+c.Name+".fetch.headers", wrong, want)
		found = true
	}
	return found
}

// unfit returns the mistake in the token names that the fetch of a credential uses, or "".
func unfit(of string, f *Fetch, byName map[string]owned) (found, want string) {
	host, err := serverHost(f.URL)
	if err != nil {
		return "", ""
	}
	for _, name := range f.Uses {
		used, known := byName[name]
		switch {
		// With an underscore the word is most likely a misspelt token name.
		case !known && strings.Contains(name, "_"):
			return "the token name " + strictjson.Cut(name) + ", which no API has",
				"the name of a credential of an API with the host"
		case !known: // an ordinary word
		case !covers(used.api.Hosts, host):
			return "the token name " + name + " of apis/" + used.api.Name + ", which does not have the host of url",
				"a credential of an API with that host in domains"
		case needs(name, of, byName, nil):
			return "the token name " + name + ", which is fetched with " + of + " itself",
				"a credential that does not need this one"
		}
	}
	return "", ""
}

// needs reports whether obtaining one credential requires another. seen prevents endless recursion.
func needs(name, other string, byName map[string]owned, seen []string) bool {
	if name == other {
		return true
	}
	f, ok := byName[name].Mint.(*Fetch)
	if slices.Contains(seen, name) || !ok {
		return false
	}
	seen = append(seen, name)
	return slices.ContainsFunc(f.Uses, func(used string) bool { return needs(used, other, byName, seen) })
}

// disclosure rejects an API whose public part contains a credential of any API, because code could then read the
// credential. It also rejects an API whose credential is the token name of another, because code could then send it. An
// API that is rejected in a pass is skipped for the rest of the pass. disclosure reports whether an API was rejected.
func (l *loader) disclosure() (found bool) {
	apis := l.sorted()
	if !slices.ContainsFunc(apis, func(a *API) bool { return !l.unchanged(a) }) {
		return false
	}
	all, fresh := l.secrets(), []owned{}
	for _, c := range all {
		if !l.unchanged(c.api) {
			fresh = append(fresh, c)
		}
	}
	// The previous load has checked any two unchanged APIs against each other.
	indexAll, indexFresh := newCredentialIndex(all), newCredentialIndex(fresh)
	rejected := map[*API]bool{}
	for _, a := range apis {
		index := indexAll
		if l.unchanged(a) {
			index = indexFresh
		}
		for _, f := range index.disclosedBy(a) {
			c := f.owned
			switch {
			case rejected[a] || rejected[c.api]:
				continue
			case !l.unchanged(a):
				l.reject(a.Name, a, f.problem.String())
				rejected[a] = true
			// The text was there before the credential.
			default:
				f.problem = mistake(c.api, "credentials."+c.Name, "a credential that apis/"+a.Name+" shows to the model",
					"another credential")
				l.reject(c.api.Name, c.api, f.problem.String())
				rejected[c.api] = true
			}
			l.problems = append(l.problems, f.problem)
			found = true
		}
	}
	return found
}

// unchanged reports whether an API is as before this load: its folder did not change, or the API is stale.
func (l *loader) unchanged(a *API) bool {
	old := l.o.Previous.API(a.Name)
	// The digest includes the credentials, so that a new value counts as a change.
	return a.Stale != "" || old != nil && old.digest == a.digest
}

// duplicates warns of credentials with the same value.
func (l *loader) duplicates() {
	first := map[string]string{}
	for _, c := range l.credentials() {
		// A minted credential has no fixed value to compare.
		if c.Value.Empty() {
			continue
		}
		other, dup := first[c.Value.Reveal()]
		if !dup {
			first[c.Value.Reveal()] = c.Name
			continue
		}
		l.warn(c.api, "credentials."+c.Name, "the same credential as "+other,
			"one token name per credential: a response cannot tell which of them it shows")
	}
}
