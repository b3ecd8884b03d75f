package catalog

import (
	"slices"
	"strings"
)

// credentialIndex finds the credentials in the public part of an API.
type credentialIndex struct {
	all              []ownedCredential
	values, lower    *dictionary
	byValue, byLower map[string][]int // credentials by value, and by value in lower case
	byName           map[string]int   // by token name
}

func newCredentialIndex(all []ownedCredential) *credentialIndex {
	x := &credentialIndex{
		all: all, byValue: map[string][]int{}, byLower: map[string][]int{}, byName: map[string]int{},
	}
	var values, lower []string
	for i, c := range all {
		v := c.Value.Reveal()
		l := strings.ToLower(v)
		values, lower = append(values, v), append(lower, l)
		x.byValue[v], x.byLower[l] = append(x.byValue[v], i), append(x.byLower[l], i)
		if _, known := x.byName[c.Name]; !known {
			x.byName[c.Name] = i
		}
	}
	x.values, x.lower = newDictionary(values), newDictionary(lower)
	return x
}

// disclosureFinding is a credential that an API discloses, and the place.
type disclosureFinding struct {
	ownedCredential
	problem Problem
	at      int
}

// listDisclosures lists the credentials that an API discloses, each with the first place, in the order of the
// credentials.
func (x *credentialIndex) listDisclosures(a *API) []disclosureFinding {
	out := map[int]Problem{}
	note := func(i int, file, field, found, want string) {
		// One place is enough for a message.
		if _, known := out[i]; known {
			return
		}
		p := Problem{API: a.Name, File: "apis/" + a.Name + "/" + file, Field: field, Found: found, Want: want}
		if found == "" {
			p.Found, p.Want = "the credential of "+x.all[i].Name+", where the model reads it", "text without it"
		}
		out[i] = p
	}
	for _, mine := range a.Credentials {
		for _, s := range mine.AllSecrets() {
			if i, known := x.byName[s.Reveal()]; known {
				note(i, "config.json", "credentials."+mine.Name, "the token name "+x.all[i].Name, "the credential")
			}
		}
	}
	values := x.values.newSearch()
	scan := func(text, file, field, found, want string) {
		values.scanText(text, func(word int) {
			for _, i := range x.byValue[x.all[word].Value.Reveal()] {
				note(i, file, field, found, want)
			}
		})
	}
	x.searchDocuments(a, note)
	scan(a.Description, "config.json", "description", "", "")
	scan(a.Reference, "config.json", "reference", "", "")
	for _, text := range serverTexts(a.Server) {
		scan(text, "config.json", "mcp", "", "")
	}
	if a.Operations != nil {
		scan(a.Operations.Source, "config.json", "operations", "", "")
	}
	const found, want = "a token name, or the folder's name, that contains a credential", "names without it"
	scan(a.Name, "config.json", "credentials", found, want)
	for _, mine := range a.Credentials {
		scan(mine.Name, "config.json", "credentials", found, want)
		scan(mine.Placeholder, "config.json", "credentials", "a placeholder that contains a credential", "a text without it")
		scan(mine.Variable, "config.json", "credentials", "a variable that contains a credential", "a name without it")
	}
	// Host names are case-insensitive, so they are compared in lower case.
	hosts := x.lower.newSearch()
	for _, h := range a.Hosts {
		hosts.scanText(h.String(), func(word int) {
			for _, i := range x.byLower[strings.ToLower(x.all[word].Value.Reveal())] {
				note(i, "config.json", "domains", "", "")
			}
		})
	}
	var list []disclosureFinding
	for i, p := range out {
		list = append(list, disclosureFinding{x.all[i], p, i})
	}
	// A map has no order, but messages need a stable one.
	slices.SortFunc(list, func(p, q disclosureFinding) int { return p.at - q.at })
	return list
}
