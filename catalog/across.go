package catalog

import (
	"slices"
	"strings"
)

// sorted lists the APIs of the load by name.
func (l *loader) sorted() []*API {
	var apis []*API
	for _, a := range l.fresh {
		apis = append(apis, a)
	}
	slices.SortFunc(apis, func(x, y *API) int { return strings.Compare(x.Name, y.Name) })
	return apis
}

// across settles what is wrong between APIs. Each step turns one new version into an old one or none, so that it comes
// to an end; an old version may bring the next conflict.
func (l *loader) across() {
	for l.conflict() || l.disclosure() {
	}
	l.equals()
}

// conflict settles the first token name that is in two APIs: it belongs to the one that had it before this load, else to
// the first by name. The other is a bad new version, like any other mistake. It reports whether there was one.
func (l *loader) conflict() bool {
	owner := map[string]*API{}
	for _, a := range l.sorted() {
		for _, c := range a.Credentials {
			first := owner[c.Name]
			if first == nil {
				owner[c.Name] = a
				continue
			}
			keeps, loses := first, a
			if l.had(a.Name, c.Name) {
				keeps, loses = a, first
			}
			p := Problem{API: loses.Name, File: "apis/" + loses.Name + "/config.json", Field: "credentials." + c.Name,
				Found: "a token name of apis/" + keeps.Name + " too", Want: "a token name that no other API has"}
			l.problems = append(l.problems, p)
			l.reject(loses.Name, loses, p.String())
			return true
		}
	}
	return false
}

// had reports whether the API had the token name before this load.
func (l *loader) had(api, token string) bool {
	old := l.o.Previous.API(api)
	return old != nil && slices.ContainsFunc(old.Credentials, func(c Credential) bool { return c.Name == token })
}

// owned is a credential and the API it belongs to.
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

// disclosure settles the first API whose public part shows a credential of any API, or whose credential is the token
// name of another: code could then read the one, and send the other. It reports whether there was one.
func (l *loader) disclosure() bool {
	all := l.credentials()
	for _, a := range l.sorted() {
		for _, c := range all {
			p, shows := showing(a, c.Credential)
			switch {
			case !shows || l.settled(a) && l.settled(c.api):
				continue
			case !l.settled(a):
				l.reject(a.Name, a, p.String())
			default: // the text was there before the credential
				p = Problem{API: c.api.Name, File: "apis/" + c.api.Name + "/config.json", Field: "credentials." + c.Name,
					Found: "a credential that apis/" + a.Name + " shows to the model", Want: "another credential"}
				l.reject(c.api.Name, c.api, p.String())
			}
			l.problems = append(l.problems, p)
			return true
		}
	}
	return false
}

// settled reports whether an API is as it was before this load, be it that nothing changed or that it is stale.
func (l *loader) settled(a *API) bool {
	old := l.o.Previous.API(a.Name)
	return a.Stale != "" || old != nil && old.digest == a.sum()
}

// showing says where an API shows a credential.
func showing(a *API, c Credential) (Problem, bool) {
	p := Problem{API: a.Name, File: "apis/" + a.Name + "/config.json", Want: "a text without it",
		Found: "the credential of " + c.Name + ", where the model reads it"}
	value := c.Value.Reveal()
	for _, mine := range a.Credentials {
		if mine.Value.Reveal() == c.Name {
			p.Field, p.Found, p.Want = "credentials."+mine.Name, "the token name "+c.Name, "the credential"
			return p, true
		}
	}
	holds := func(mine Credential) bool { return strings.Contains(mine.Name, value) }
	switch {
	case strings.Contains(a.Types, value):
		p.File = "apis/" + a.Name + "/types.d.ts"
	case strings.Contains(a.Description, value):
		p.Field = "description"
	case strings.Contains(a.Reference, value):
		p.Field = "reference"
	case strings.Contains(a.Name, value), slices.ContainsFunc(a.Credentials, holds):
		p.Field, p.Found, p.Want = "credentials", "a token name, or the folder's name, that holds a credential", "names without it"
	case slices.ContainsFunc(a.Hosts, func(h HostPattern) bool { return strings.Contains(h.String(), strings.ToLower(value)) }):
		p.Field = "domains"
	default:
		return Problem{}, false
	}
	return p, true
}

// equals warns of credentials that have the same value.
func (l *loader) equals() {
	first := map[string]string{}
	for _, c := range l.credentials() {
		other, dup := first[c.Value.Reveal()]
		if !dup {
			first[c.Value.Reveal()] = c.Name
			continue
		}
		l.problems = append(l.problems, Problem{API: c.api.Name, File: "apis/" + c.api.Name + "/config.json", Severity: Warning,
			Field: "credentials." + c.Name, Found: "the same credential as " + other,
			Want: "one token name per credential: a response cannot tell which of them it shows"})
	}
}
