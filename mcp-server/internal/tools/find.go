package tools

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// results is the largest number of results of a search. The first typed results show types; the others are one line
	// each.
	results = 16
	typed   = 3
	// maxCost bounds all results together, and maxTyped each result with types, in tokens.
	maxCost  = 640 // with headers and notes, 95 of a hundred answers stay below 700
	maxTyped = 140
	// An answer fits badly if its best result has less than weakShare of the question's words, and a similarity below
	// weakMeaning.
	weakShare   = 0.45
	weakMeaning = 0.5
	// maxQuestion bounds a question, in bytes.
	maxQuestion = 1000
)

// indexCache caches the indexes of tools, skills, and APIs without a document.
type indexCache struct {
	mu     sync.Mutex
	tools  map[string]toolIndex // by server
	skills *search.Index
	listed []skill.Skill // the skills that are indexed
	apis   *search.Index
	bare   []proxyapi.API // the APIs that are indexed
}

type toolIndex struct {
	tools []toolsignature.Tool
	index *search.Index
}

// searchSource is a searchable collection: exactly one of doc, server, skills and apis is set.
type searchSource struct {
	index  *search.Index
	doc    *apidoc.Document
	server string
	tools  []toolsignature.Tool
	skills []skill.Skill
	apis   []proxyapi.API // APIs without a document, or servers that have never started
	store  *skill.Store   // the store of the skills
}

// listSources returns all sources, or the sources of one API.
func (s *Surface) listSources(ctx context.Context, cat proxyapi.Catalog, only string) []searchSource {
	var out []searchSource
	for _, d := range s.listDocuments(ctx) {
		if only == "" || d.Name == only {
			out = append(out, searchSource{index: d.Index, doc: d})
		}
	}
	s.finder.mu.Lock()
	defer s.finder.mu.Unlock()
	var bare []proxyapi.API
	for _, api := range cat.APIs {
		if only != "" && api.Name != only {
			continue
		}
		known := false
		// A server that never ran has no index, and counts as bare.
		if api.Server != nil && s.cfg.Servers != nil {
			var tools []toolsignature.Tool
			if tools, known = s.cfg.Servers.KnownTools(api.Name); known {
				out = append(out, searchSource{index: s.finder.ofTools(api.Name, tools), server: api.Name, tools: tools})
			}
		}
		if !known && !slices.ContainsFunc(out, func(p searchSource) bool { return p.doc != nil && p.doc.Name == api.Name }) {
			bare = append(bare, api)
		}
	}
	// The indexes of removed servers would stay in memory otherwise.
	maps.DeleteFunc(s.finder.tools, func(server string, _ toolIndex) bool {
		return !slices.ContainsFunc(cat.APIs, func(a proxyapi.API) bool { return a.Name == server })
	})
	// Skills belong to no API, and an API without a document has no entries beside itself.
	if only != "" {
		return out
	}
	if len(bare) > 0 {
		out = append(out, searchSource{index: s.finder.ofAPIs(bare), apis: bare})
	}
	if l, err := s.cfg.Skills.ListSkills(); err == nil {
		out = append(out, searchSource{index: s.finder.ofSkills(l.Skills), skills: l.Skills, store: s.cfg.Skills})
	}
	return out
}

// listDocuments returns the documents with known operations.
func (s *Surface) listDocuments(ctx context.Context) []*apidoc.Document {
	ctx, cancel := context.WithTimeout(ctx, firstCatalog)
	defer cancel()
	return s.cfg.Library.WaitForDocuments(ctx)
}

// ofTools returns the index of a server's tools. The caller holds the lock.
func (f *indexCache) ofTools(server string, tools []toolsignature.Tool) *search.Index {
	same := func(a, b toolsignature.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.InputSchema, b.InputSchema)
	}
	// Building an index takes time, and most searches find the tools unchanged.
	if old, ok := f.tools[server]; ok && slices.EqualFunc(old.tools, tools, same) {
		return old.index
	}
	b := search.NewBuilder(server)
	for _, t := range tools {
		kind := search.Kind(0)
		search.EachWord(t.Name, func(w string) {
			if kind == 0 {
				kind = search.VerbKind(w)
			}
		})
		first := toolsignature.FirstSentence(t.Description)
		// Each field is bounded: a server that fills a description with words must not lead every search.
		b.AddEntry(search.IndexEntry{Kind: kind, Meaning: server + ". " + t.Name + ". " + first, Fields: []search.Field{
			{Text: t.Name, Weight: 3.2, Bound: 4},
			{Text: first, Weight: 2.4, Bound: 10},
			{Text: t.Description, Weight: 0.5, Bound: 20, Most: 100},
			{Text: toolsignature.ArgumentsType(t.InputSchema), Weight: 0.3, Most: 60},
		}})
	}
	if f.tools == nil {
		f.tools = map[string]toolIndex{}
	}
	f.tools[server] = toolIndex{tools, b.BuildIndex()}
	return f.tools[server].index
}

// ofSkills returns the index of the skills. The caller holds the lock.
func (f *indexCache) ofSkills(list []skill.Skill) *search.Index {
	same := func(a, b skill.Skill) bool { return a.Name == b.Name && a.Description == b.Description }
	if f.skills == nil || !slices.EqualFunc(f.listed, list, same) {
		b := search.NewBuilder("skill")
		for _, k := range list {
			b.AddEntry(nameAndText(k.Name, k.Description))
		}
		f.skills, f.listed = b.BuildIndex(), list
	}
	return f.skills
}

// nameAndText returns an entry with a name, a text and more words.
func nameAndText(name, text string, more ...string) search.IndexEntry {
	return search.IndexEntry{Meaning: name + ". " + text, Fields: []search.Field{
		{Text: name, Weight: 3.2, Bound: 4}, {Text: text, Weight: 2.4, Bound: 10},
		{Text: strings.Join(more, " "), Weight: 1.2},
	}}
}

// ofAPIs returns the index of APIs by their configuration. The caller holds the lock.
func (f *indexCache) ofAPIs(list []proxyapi.API) *search.Index {
	same := func(a, b proxyapi.API) bool {
		return a.Name == b.Name && a.Description == b.Description && slices.Equal(a.Domains, b.Domains)
	}
	if f.apis == nil || !slices.EqualFunc(f.bare, list, same) {
		b := search.NewBuilder("")
		for _, a := range list {
			more := a.Domains
			if a.Server != nil {
				more = append(slices.Clone(more), a.Server.Package, a.Server.URL)
			}
			b.AddEntry(nameAndText(a.Name, a.Description, more...))
		}
		f.apis, f.bare = b.BuildIndex(), list
	}
	return f.apis
}

// findRequest is a request to list_apis: an operation by its name, or a query.
type findRequest struct {
	api, query, operation string
	explain               bool
}

// answerQuery answers a query, or shows an operation, a tool, a skill or a type in full. It returns "" for a query
// about an API that has no document.
func (s *Surface) answerQuery(ctx context.Context, cat proxyapi.Catalog, r findRequest) string {
	places := s.listSources(ctx, cat, r.api)
	if r.operation != "" {
		return s.showAll(cat, places, r.operation)
	}
	if r.api != "" && len(places) == 0 && !s.cfg.Library.IsBehind() {
		return ""
	}
	hits := search.Search(listIndexes(places), safetext.CutText(r.query, maxQuestion, ""), results)
	notes := strings.Join(s.findNotes(cat, places, r.api, hits), "\n")
	switch {
	case len(hits) == 0:
		return "No match. " + notes
	case r.explain:
		return explainHits(places, hits)
	}
	return strings.TrimRight(showResults(cat, places, hits)+"\n"+notes, "\n")
}

func listIndexes(places []searchSource) []*search.Index {
	var out []*search.Index
	for _, p := range places {
		out = append(out, p.index)
	}
	return out
}

// explainHits returns the scores of the results, one line each.
func explainHits(places []searchSource, hits []search.Hit) string {
	var b strings.Builder
	b.WriteString("score  words  meaning  intent  share\n")
	for _, h := range hits {
		p := sourceOf(places, h)
		fmt.Fprintf(&b, "%5.2f  %5.2f  %7.2f  %6.2f  %4.0f%%  %s%s\n", h.Score, h.Words, h.Meaning, h.Intent, 100*h.Share,
			strings.TrimSpace(h.Index.Name()+" "), " "+p.resultTitle(h.Entry))
	}
	return strings.TrimRight(b.String(), "\n")
}

func sourceOf(places []searchSource, h search.Hit) searchSource {
	return places[slices.IndexFunc(places, func(p searchSource) bool { return p.index == h.Index })]
}

// showResults returns the results, grouped by source.
func showResults(cat proxyapi.Catalog, places []searchSource, hits []search.Hit) string {
	var b strings.Builder
	cost, last, imported := 0, (*search.Index)(nil), false
	for _, h := range groupHits(hits) {
		p := sourceOf(places, h.Hit)
		// Only the best results are worth the tokens for types.
		detail := apidoc.Plain
		if h.place < typed {
			detail = apidoc.Long
		}
		text := p.showResult(h.Entry, detail)
		// The least detail is always shown, so that a result with large types is not lost.
		for ; detail > apidoc.Plain && estimateTokens(text) > maxTyped; text = p.showResult(h.Entry, detail) {
			detail--
		}
		if p.index != last {
			header := p.sourceHeader(cat)
			if p.doc != nil && !imported && p.doc.ImportLine() != "" {
				header = strings.TrimSuffix(header, "\n") + "  " + p.doc.ImportLine() + "\n"
			}
			text = header + text
		}
		if cost += estimateTokens(text); cost > maxCost {
			break
		}
		imported = imported || p.doc != nil
		last = p.index
		b.WriteString(text + "\n")
	}
	return b.String()
}

// placedHit is a hit and its rank among all hits, from 0.
type placedHit struct {
	search.Hit
	place int
}

// groupHits moves the hits of each index behind the best hit of that index.
func groupHits(hits []search.Hit) []placedHit {
	var out []placedHit
	done := map[*search.Index]bool{}
	for _, first := range hits {
		if done[first.Index] {
			continue
		}
		done[first.Index] = true
		for i, h := range hits {
			if h.Index == first.Index {
				out = append(out, placedHit{h, i})
			}
		}
	}
	return out
}

// sourceHeader returns the line above the results of one source: how code reaches it, or who wrote the text.
func (p searchSource) sourceHeader(cat proxyapi.Catalog) string {
	switch {
	case p.doc != nil:
		return p.doc.HostAndTokens(tokenNames(cat, p.doc.Name)) + "\n"
	case p.server != "":
		return "# " + p.server + "  " + serversWords + "\n"
	}
	return ""
}

// resultTitle returns the name with which a model asks for all of a result.
func (p searchSource) resultTitle(entry int) string {
	switch {
	case p.doc != nil:
		return p.doc.Label(entry)
	case p.tools != nil:
		return p.server + "." + toolsignature.WordsForModel(p.tools[entry].Name, maxQuestion)
	case p.apis != nil:
		return p.apis[entry].Name
	}
	return p.skills[entry].Name
}

// showResult returns one result.
func (p searchSource) showResult(entry int, detail apidoc.Detail) string {
	switch {
	case p.doc != nil:
		return p.doc.ShowResult(entry, detail)
	case p.apis != nil:
		return apiLine(p.apis[entry])
	case p.tools != nil:
		line := p.tools[entry].ShortLine()
		if detail == apidoc.Long {
			if long := p.tools[entry].SignatureLine(); len(long) <= 400 {
				line = long
			}
		}
		return p.callableLine(p.tools[entry], line)
	}
	line := skillLine(p.skills[entry])
	if detail != apidoc.Plain {
		line += exportSignatures(p.store, p.skills[entry], maxBrief)
	}
	return line
}

// apiLine returns the line for an API without a document: its configuration, and how code reaches the API.
func apiLine(a proxyapi.API) string {
	line := fmt.Sprintf("API %s  %s", a.Name, toolsignature.CleanLine(a.Description, 120))
	for _, t := range a.Credentials {
		line += fmt.Sprintf("  %s (%s)", t.Name, strings.Join(t.In, ", "))
	}
	if a.Server != nil {
		return line + fmt.Sprintf("  MCP server: list_apis({\"api\": %q}) starts it and lists its tools; "+
			"then await mcp%s.<tool>({...})", a.Name, memberAccess(a.Name))
	}
	if len(a.Domains) > 0 {
		line += "  fetch(\"" + chooseScheme(a) + "://" + a.Domains[0] + "/...\")"
	}
	if a.Reference != "" {
		line += "  " + a.Reference
	}
	return line
}

// chooseScheme returns the scheme that the hosts of an API most likely speak. Only hosts without TLS need "allow_http".
func chooseScheme(a proxyapi.API) string {
	if a.AllowHTTP {
		return "http"
	}
	return "https"
}

// callableLine returns a tool's line with the name by which code calls the tool.
func (p searchSource) callableLine(t toolsignature.Tool, line string) string {
	name := t.ShownName()
	return "TOOL mcp" + memberAccess(p.server) + memberAccess(name) + strings.TrimPrefix(line, name)
}

// skillLine returns a skill's line in a search.
func skillLine(k skill.Skill) string {
	return fmt.Sprintf("SKILL /skills/%s  %s", skill.FileName(k.Name), describeForModel(k))
}

// exported matches the exports of a module in TypeScript or Python.
var exported = regexp.MustCompile(`(?m)^(?:(?:async )?def [^_].+|class [^_].+|` +
	`export (?:default )?(?:async )?(?:function\*?|const|class|type|interface) .+)`)

// exportSignatures returns the first lines of a skill's exports, at most most.
func exportSignatures(store *skill.Store, k skill.Skill, most int) string {
	// A module whose description addresses its reader may do the same in its code.
	if store == nil || toolsignature.IsAddressedToReader(k.Description) {
		return ""
	}
	_, source, err := store.ReadSkill(k.Name)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, line := range exported.FindAllString(source, most) {
		line = strings.TrimRight(strings.TrimPrefix(toolsignature.WordsForModel(line, maxExport), "export "), " {:")
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// maxExports and maxBrief are the largest numbers of a skill's signatures in full and in a search result. maxExport
// bounds each signature, in characters.
const maxExports, maxBrief, maxExport = 20, 2, 160

// describeForModel returns a skill's description for a model. A run that obeyed a hostile text may have written the
// description.
func describeForModel(k skill.Skill) string {
	if toolsignature.IsAddressedToReader(k.Description) {
		return "(no description: it addresses its reader)"
	}
	return k.Description
}

// estimateTokens estimates the number of tokens of a text, rather too high than too low.
func estimateTokens(s string) int {
	// Weights are sixteenths of a token, chosen too high rather than too low.
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

// tokenNames returns the token names of an API.
func tokenNames(cat proxyapi.Catalog, api string) []string {
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

// findNotes returns further facts about a search that the model must know.
func (s *Surface) findNotes(cat proxyapi.Catalog, places []searchSource, only string, hits []search.Hit) []string {
	var notes, dark []string
	if s.cfg.Library.IsBehind() {
		notes = append(notes, "Operations of APIs are still being read: ask again in a few seconds.")
	}
	// Both must be low: a good match may share few words with the question.
	if len(hits) > 0 && hits[0].Share < weakShare && hits[0].Meaning < weakMeaning {
		note := "No good match."
		if p := sourceOf(places, hits[0]); p.doc != nil {
			note += fmt.Sprintf(" Groups of %s: %s.", p.doc.Name, clipNames(strings.Join(p.doc.OperationGroups(), ", "), 240))
		}
		notes = append(notes, note)
	}
	for _, api := range cat.APIs {
		if api.Server != nil && (only == "" || api.Name == only) &&
			!slices.ContainsFunc(places, func(p searchSource) bool { return p.server == api.Name }) {
			dark = append(dark, api.Name)
		}
	}
	if len(dark) > 0 {
		notes = append(notes, "Not searched, because their tools are not known yet: "+
			clipNames(strings.Join(dark, ", "), 160)+`. list_apis({"api": "name"}) starts a server.`)
	}
	return notes
}

// clipNames cuts a list of names.
func clipNames(s string, most int) string { return safetext.CutText(s, most, "…") }

// maxNear is the largest number of names offered for an unknown name.
const maxNear = 5

// showAll returns everything about an operation, a tool, a skill or a type, from every API that has it.
func (s *Surface) showAll(cat proxyapi.Catalog, places []searchSource, name string) string {
	var found []string
	for _, p := range places {
		switch {
		case p.doc != nil:
			text, ok := "", false
			if i, is := p.doc.FindOperation(name); is {
				text, ok = p.doc.ShowAll(i), true
			} else {
				text, ok = p.doc.FullType(name)
			}
			if ok {
				found = append(found, p.sourceHeader(cat)+text)
			}
		case p.tools != nil:
			for _, t := range p.tools {
				full := p.server + "." + t.Name
				// All three spellings of a tool's name are accepted.
				if name == full || name == t.Name || name == "mcp."+full {
					found = append(found, p.sourceHeader(cat)+p.callableLine(t, t.SignatureLine())+"\n"+
						toolsignature.WordsForModel(t.Description, toolsignature.MaxText)+resultTypeOf(t))
				}
			}
		case p.skills != nil:
			for _, k := range p.skills {
				if file := skill.FileName(k.Name); name == k.Name || name == file || name == "/skills/"+file {
					found = append(found, skillLine(k)+exportSignatures(p.store, k, maxExports))
				}
			}
		}
	}
	if len(found) > 0 {
		// Several APIs may use the same name; four answers are enough to choose from.
		return strings.Join(found[:min(len(found), 4)], "\n\n")
	}
	name = safetext.CutText(name, maxQuestion, "")
	text := fmt.Sprintf("No operation, tool, skill or type is called %q.", toolsignature.CleanLine(name, 80))
	var near []string
	for _, h := range search.Search(listIndexes(places), name, maxNear) {
		near = append(near, toolsignature.WordsForModel(sourceOf(places, h).resultTitle(h.Entry), maxQuestion))
	}
	if len(near) > 0 {
		text += " The nearest: " + strings.Join(near, ", ") + "."
	}
	return text + " list_apis({\"query\": \"...\"}) searches."
}

// resultTypeOf returns the type of a tool's result, or "" if the tool declares none.
func resultTypeOf(t toolsignature.Tool) string {
	if len(t.OutputSchema) == 0 {
		return ""
	}
	return "\n  answers " + toolsignature.ArgumentsType(t.OutputSchema)
}

// operationGroups returns the groups of one API's operations, or "" if its operations are unknown.
func (s *Surface) operationGroups(ctx context.Context, api string) string {
	for _, d := range s.listDocuments(ctx) {
		if d.Name == api {
			return fmt.Sprintf("%d operations at %s, found by list_apis({\"api\": %q, \"query\": \"...\"}). Groups: %s",
				d.OperationCount(), d.Head.Server, api, strings.Join(d.OperationGroups(), ", "))
		}
	}
	return ""
}

// maxMisses is the largest number of remarks on requests that match no operation. maxErrors bounds the failed requests
// that are examined.
const (
	maxMisses = 2
	maxErrors = 8
)

// suggestOperations suggests the intended operations for requests that failed with a client error. It does not wait for
// documents.
func (s *Surface) suggestOperations(r proxyapi.Receipt) []string {
	var out []string
	looked := 0
	now, cancel := context.WithCancel(context.Background())
	// A context that has ended keeps Docs from waiting for documents that are still being read.
	cancel()
	for _, x := range r.Exchanges {
		switch x.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		default:
			continue
		}
		// A refused request never reached the API, so its status is CodeForge's.
		if looked++; x.Outcome != proxyapi.OutcomeServed || len(out) == maxMisses || looked > maxErrors {
			continue
		}
		for _, d := range s.cfg.Library.WaitForDocuments(now) {
			if !slices.Contains(x.APIs, d.Name) {
				continue
			}
			if miss := d.ExplainMiss(x.Method, x.URL, x.Status); miss != "" && !slices.Contains(out, miss) {
				out = append(out, miss)
			}
		}
	}
	return out
}
