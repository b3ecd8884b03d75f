package catalog

import (
	"slices"
	"strings"
)

// words are credentials as an API could show them.
type words struct {
	all            []owned
	values, lower  *dictionary
	equal, equalIn map[string][]int // credentials by value, and by value in lower case
	named          map[string]int   // by token name
}

func newWords(all []owned) *words {
	w := &words{all: all, equal: map[string][]int{}, equalIn: map[string][]int{}, named: map[string]int{}}
	var values, lower []string
	for i, c := range all {
		v := c.Value.Reveal()
		values, lower = append(values, v), append(lower, strings.ToLower(v))
		w.equal[v] = append(w.equal[v], i)
		w.equalIn[strings.ToLower(v)] = append(w.equalIn[strings.ToLower(v)], i)
		if _, is := w.named[c.Name]; !is {
			w.named[c.Name] = i
		}
	}
	w.values, w.lower = newDictionary(values), newDictionary(lower)
	return w
}

// finding is a credential that an API shows, and where.
type finding struct {
	owned
	problem Problem
	at      int
}

// shownBy lists the credentials that an API shows, each at the first of its places, in the order of the credentials.
func (w *words) shownBy(a *API) []finding {
	out := map[int]Problem{}
	note := func(i int, file, field, found, want string) {
		if _, known := out[i]; known {
			return
		}
		p := Problem{API: a.Name, File: "apis/" + a.Name + "/" + file, Field: field, Found: found, Want: want}
		if found == "" {
			p.Found, p.Want = "the credential of "+w.all[i].Name+", where the model reads it", "a text without it"
		}
		out[i] = p
	}
	for _, mine := range a.Credentials {
		if i, is := w.named[mine.Value.Reveal()]; is {
			note(i, "config.json", "credentials."+mine.Name, "the token name "+w.all[i].Name, "the credential")
		}
	}
	in := w.values.search()
	look := func(text, file, field, found, want string) {
		in.in(text, func(word int) {
			for _, i := range w.equal[w.all[word].Value.Reveal()] {
				note(i, file, field, found, want)
			}
		})
	}
	look(a.Types, "types.d.ts", "", "", "")
	look(a.Description, "config.json", "description", "", "")
	look(a.Reference, "config.json", "reference", "", "")
	for _, text := range a.Server.texts() {
		look(text, "config.json", "mcp", "", "")
	}
	const found, want = "a token name, or the folder's name, that holds a credential", "names without it"
	look(a.Name, "config.json", "credentials", found, want)
	for _, mine := range a.Credentials {
		look(mine.Name, "config.json", "credentials", found, want)
		look(mine.Placeholder, "config.json", "credentials", "a placeholder that holds a credential", "a text without it")
	}
	hosts := w.lower.search()
	for _, h := range a.Hosts {
		hosts.in(h.String(), func(word int) {
			for _, i := range w.equalIn[strings.ToLower(w.all[word].Value.Reveal())] {
				note(i, "config.json", "domains", "", "")
			}
		})
	}
	var list []finding
	for i, p := range out {
		list = append(list, finding{w.all[i], p, i})
	}
	slices.SortFunc(list, func(x, y finding) int { return x.at - y.at })
	return list
}
