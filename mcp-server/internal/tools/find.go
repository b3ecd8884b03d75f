package tools

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

const (
	// results is how many results a search shows, and maxCost what they may cost at most, in tokens.
	results = 8
	maxCost = 860
	// weakShare is the share of a question's words below which nothing fits well.
	weakShare = 0.45
	// maxQuestion bounds a question, in bytes.
	maxQuestion = 1000
)

// finder keeps the indexes of tools and skills.
type finder struct {
	mu     sync.Mutex
	tools  map[string]toolIndex // by server
	skills *search.Index
	listed []skill.Skill // that skills is of
}

type toolIndex struct {
	tools []signature.Tool
	index *search.Index
}

// source is where something can be found: exactly one of doc, server and skills is set.
type source struct {
	index  *search.Index
	doc    *apidoc.Doc
	server string
	tools  []signature.Tool
	skills []skill.Skill
}

// places are all of them, or those of one API.
func (s *Surface) places(ctx context.Context, cat controlapi.Catalog, only string) []source {
	var out []source
	for _, d := range s.docs(ctx) {
		if only == "" || d.Name == only {
			out = append(out, source{index: d.Index, doc: d})
		}
	}
	s.finder.mu.Lock()
	defer s.finder.mu.Unlock()
	for _, api := range cat.APIs {
		if api.Server == nil || s.cfg.Servers == nil || only != "" && api.Name != only {
			continue
		}
		if tools, known := s.cfg.Servers.Tools(api.Name); known {
			out = append(out, source{index: s.finder.ofTools(api.Name, tools), server: api.Name, tools: tools})
		}
	}
	maps.DeleteFunc(s.finder.tools, func(server string, _ toolIndex) bool {
		return !slices.ContainsFunc(cat.APIs, func(a controlapi.API) bool { return a.Name == server })
	})
	if l, err := s.cfg.Skills.List(); err == nil && only == "" {
		out = append(out, source{index: s.finder.ofSkills(l.Skills), skills: l.Skills})
	}
	return out
}

// docs are the operations that are known.
func (s *Surface) docs(ctx context.Context) []*apidoc.Doc {
	ctx, cancel := context.WithTimeout(ctx, firstCatalog)
	defer cancel()
	return s.cfg.Library.Docs(ctx)
}

// ofTools is the index of a server's tools. The caller holds the lock.
func (f *finder) ofTools(server string, tools []signature.Tool) *search.Index {
	same := func(a, b signature.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.InputSchema, b.InputSchema)
	}
	if old, ok := f.tools[server]; ok && slices.EqualFunc(old.tools, tools, same) {
		return old.index
	}
	b := search.NewBuilder(server)
	for _, t := range tools {
		kind := search.Kind(0)
		search.Words(t.Name, func(w string) {
			if kind == 0 {
				kind = search.Verb(w)
			}
		})
		b.Add(kind,
			search.Field{Text: t.Name, Weight: 3.2, Bound: 4},
			search.Field{Text: signature.FirstSentence(t.Description), Weight: 2.4, Bound: 10},
			search.Field{Text: t.Description, Weight: 0.5, Bound: 20, Most: 100},
			search.Field{Text: signature.Arguments(t.InputSchema), Weight: 0.3, Most: 60})
	}
	if f.tools == nil {
		f.tools = map[string]toolIndex{}
	}
	f.tools[server] = toolIndex{tools, b.Index()}
	return f.tools[server].index
}

// ofSkills is the index of the skills. The caller holds the lock.
func (f *finder) ofSkills(list []skill.Skill) *search.Index {
	same := func(a, b skill.Skill) bool { return a.Name == b.Name && a.Description == b.Description }
	if f.skills == nil || !slices.EqualFunc(f.listed, list, same) {
		b := search.NewBuilder("skill")
		for _, k := range list {
			b.Add(0, search.Field{Text: k.Name, Weight: 3.2, Bound: 4},
				search.Field{Text: k.Description, Weight: 2.4, Bound: 10})
		}
		f.skills, f.listed = b.Index(), list
	}
	return f.skills
}

// find answers a question, or shows an operation, a tool or a type in full.
func (s *Surface) find(ctx context.Context, cat controlapi.Catalog, only, query, operation string) string {
	places := s.places(ctx, cat, only)
	if operation != "" {
		return s.full(ctx, cat, places, only, operation)
	}
	query = visible.Cut(query, maxQuestion, "")
	var indexes []*search.Index
	for _, p := range places {
		indexes = append(indexes, p.index)
	}
	hits := search.Search(indexes, query, results)
	notes := s.findNotes(cat, places, only, hits)
	if len(hits) == 0 {
		return "Nothing was found. " + strings.Join(notes, " ")
	}
	return strings.TrimRight(show(cat, places, hits)+"\n"+strings.Join(notes, "\n"), "\n")
}

// show is the results, those of one place together.
func show(cat controlapi.Catalog, places []source, hits []search.Hit) string {
	var b strings.Builder
	cost, last := 0, (*search.Index)(nil)
	for _, h := range together(hits) {
		p := places[slices.IndexFunc(places, func(p source) bool { return p.index == h.Index })]
		text := ""
		for detail := apidoc.DetailAt(h.place); ; detail-- {
			text = p.show(h.Entry, detail)
			if detail == apidoc.Plain || cost+tokens(text) <= maxCost*(h.place+3)/(results+2) {
				break
			}
		}
		if p.index != last {
			text = p.header(cat) + text
		}
		if cost += tokens(text); cost > maxCost {
			continue
		}
		last = p.index
		b.WriteString(text + "\n")
	}
	return b.String()
}

// placed is a hit and its place among all, counted from 0.
type placed struct {
	search.Hit
	place int
}

// together puts the hits of one index after its best one.
func together(hits []search.Hit) []placed {
	var out []placed
	done := map[*search.Index]bool{}
	for _, first := range hits {
		if done[first.Index] {
			continue
		}
		done[first.Index] = true
		for i, h := range hits {
			if h.Index == first.Index {
				out = append(out, placed{h, i})
			}
		}
	}
	return out
}

// header is over the results of one place: how it is reached, or whose words they are.
func (p source) header(cat controlapi.Catalog) string {
	switch {
	case p.doc != nil:
		return p.doc.Header(tokenNames(cat, p.doc.Name)) + "\n"
	case p.server != "":
		return "# " + p.server + "  " + serversWords + "\n"
	}
	return ""
}

// show is one result.
func (p source) show(entry int, detail apidoc.Detail) string {
	switch {
	case p.doc != nil:
		return p.doc.Show(entry, detail)
	case p.tools != nil:
		line := p.tools[entry].ShortLine()
		if detail == apidoc.Long {
			if long := p.tools[entry].Line(); len(long) <= 400 {
				line = long
			}
		}
		return p.callable(p.tools[entry], line)
	}
	return skillLine(p.skills[entry])
}

// callable is the line of a tool as code calls it.
func (p source) callable(t signature.Tool, line string) string {
	name := t.Shown()
	return "TOOL mcp" + member(p.server) + member(name) + strings.TrimPrefix(line, name)
}

// skillLine is a skill as a search shows it.
func skillLine(k skill.Skill) string {
	return fmt.Sprintf("SKILL /skills/%s  %s", skill.File(k.Name), told(k))
}

// told is a skill's description as a model reads it. A run may have written it that obeyed a hostile text.
func told(k skill.Skill) string {
	if signature.Addressing(k.Description) {
		return "(no description: it addresses its reader)"
	}
	return k.Description
}

// tokens is about how many tokens a text costs, rather too many than too few.
func tokens(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r == ' ':
			n += 1
		case r < 0x80:
			n += 5
		default:
			n += 22
		}
	}
	return n/16 + 1
}

// tokenNames are the token names of an API.
func tokenNames(cat controlapi.Catalog, api string) []string {
	var out []string
	for _, a := range cat.APIs {
		if a.Name == api {
			for _, t := range a.Credentials {
				out = append(out, t.Name)
			}
		}
	}
	return out
}

// findNotes say what else the model must know of a search.
func (s *Surface) findNotes(cat controlapi.Catalog, places []source, only string, hits []search.Hit) []string {
	var notes, dark, plain []string
	if s.cfg.Library.Behind() {
		notes = append(notes, "Operations of APIs are still being read: ask again in a few seconds.")
	}
	if len(hits) > 0 && hits[0].Share < weakShare {
		note := "Nothing fits well."
		if i := slices.IndexFunc(places, func(p source) bool { return p.index == hits[0].Index && p.doc != nil }); i >= 0 {
			groups := places[i].doc.Groups()
			note += fmt.Sprintf(" Groups of %s: %s.", places[i].doc.Name, clip(strings.Join(groups, ", "), 240))
		}
		notes = append(notes, note)
	}
	for _, api := range cat.APIs {
		switch {
		case only != "" && api.Name != only, slices.ContainsFunc(places, func(p source) bool { return p.holds(api.Name) }):
		case api.Server != nil:
			dark = append(dark, api.Name)
		case api.Operations == "":
			plain = append(plain, api.Name)
		}
	}
	if len(dark) > 0 {
		notes = append(notes, "Not searched, because their tools are not known yet: "+
			clip(strings.Join(dark, ", "), 160)+`. list_apis({"api": "name"}) starts a server.`)
	}
	if len(plain) > 0 && (len(hits) == 0 || hits[0].Share < weakShare) {
		notes = append(notes, "Without a list of operations: "+clip(strings.Join(plain, ", "), 160)+".")
	}
	return notes
}

func (p source) holds(api string) bool { return p.doc != nil && p.doc.Name == api || p.server == api }

// clip cuts a list of names.
func clip(s string, most int) string { return visible.Cut(s, most, "…") }

// maxNear is with how many names one that is unknown is compared.
const maxNear = 30_000

// full is all of an operation, a tool or a type, in whatever API has it.
func (s *Surface) full(ctx context.Context, cat controlapi.Catalog, places []source, only, name string) string {
	var found []string
	var near []string
	for _, p := range places {
		switch {
		case p.doc != nil:
			text, ok := "", false
			if i, is := p.doc.Find(name); is {
				text, ok = p.doc.Full(i), true
			} else {
				text, ok = p.doc.FullType(name)
			}
			if ok {
				found = append(found, p.header(cat)+text)
			}
			for i := range min(p.doc.Len(), max(0, maxNear-len(near))) {
				near = append(near, p.doc.Key(i))
			}
		case p.tools != nil:
			for _, t := range p.tools {
				full := p.server + "." + t.Name
				if name == full || name == t.Name || name == "mcp."+full {
					found = append(found, p.header(cat)+p.callable(t, t.Line())+"\n"+
						signature.Words(t.Description, signature.MaxText)+answers(t))
				}
				near = append(near, full)
			}
		}
	}
	if len(found) > 0 {
		return strings.Join(found[:min(len(found), 4)], "\n\n")
	}
	if len(name) > maxQuestion {
		name = name[:maxQuestion]
	}
	text := fmt.Sprintf("No operation, tool or type is called %q.", signature.Clean(name, 80))
	if n := typo.Nearest(name, len(name)/3, near); n != "" {
		text += " The nearest is " + signature.Words(n, maxQuestion) + "."
	}
	return text + " list_apis({\"query\": \"...\"}) searches."
}

// answers is what a tool answers, if it says so.
func answers(t signature.Tool) string {
	if len(t.OutputSchema) == 0 {
		return ""
	}
	return "\n  answers " + signature.Arguments(t.OutputSchema)
}

// groups are the parts of one API, or empty if its operations are not known.
func (s *Surface) groups(ctx context.Context, api string) string {
	for _, d := range s.docs(ctx) {
		if d.Name == api {
			return fmt.Sprintf("%d operations at %s, found by list_apis({\"api\": %q, \"query\": \"...\"}). Groups: %s",
				d.Len(), d.Head.Server, api, strings.Join(d.Groups(), ", "))
		}
	}
	return ""
}

// maxMisses is how many requests that are no operation are remarked on, maxErrors how many answers are looked at.
const (
	maxMisses = 2
	maxErrors = 8
)

// misses says of requests that were answered with an error what operation they should have been. It waits for nothing.
func (s *Surface) misses(r controlapi.Receipt) []string {
	var out []string
	looked := 0
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, x := range r.Exchanges {
		switch x.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		default:
			continue
		}
		if looked++; x.Outcome != controlapi.OutcomeServed || len(out) == maxMisses || looked > maxErrors {
			continue
		}
		for _, d := range s.cfg.Library.Docs(now) {
			if !slices.Contains(x.APIs, d.Name) {
				continue
			}
			if miss := d.Miss(x.Method, x.URL, x.Status); miss != "" && !slices.Contains(out, miss) {
				out = append(out, miss)
			}
		}
	}
	return out
}
