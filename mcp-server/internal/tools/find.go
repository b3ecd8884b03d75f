package tools

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// results is the largest number of results of a search. The first long results show all types, the first typed ones
	// their input. The others are one line each.
	results = 16
	long    = 3
	typed   = 5
	// maxCost bounds all results together, and maxTyped each result with types, in tokens.
	maxCost  = 630 // with headers and notes, 95 of a hundred answers stay below 700
	maxTyped = 140
	// An answer fits badly if its best result has less than weakShare of the question's words, and a similarity below
	// weakMeaning.
	weakShare   = 0.45
	weakMeaning = 0.5
	// maxQuestion bounds a question, in bytes.
	maxQuestion = 1000
)

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
				out = append(out, searchSource{index: s.finder.indexTools(api.Name, tools), server: api.Name, tools: tools})
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
		out = append(out, searchSource{index: s.finder.indexAPIs(bare), apis: bare})
	}
	if l, err := s.cfg.Skills.ListSkills(); err == nil {
		out = append(out, searchSource{index: s.finder.indexSkills(l.Skills), skills: l.Skills, store: s.cfg.Skills})
	}
	return out
}

// listDocuments returns the documents with known operations.
func (s *Surface) listDocuments(ctx context.Context) []*apidoc.Document {
	ctx, cancel := context.WithTimeout(ctx, firstCatalog)
	defer cancel()
	return s.cfg.Library.WaitForDocuments(ctx)
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
	return convert.Each(places, func(p searchSource) *search.Index { return p.index })
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
	// A context that has ended keeps WaitForDocuments from waiting for documents that are still being read.
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
