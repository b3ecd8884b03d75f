package tools

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
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

// indexTools returns the index of a server's tools. The caller holds the lock.
func (f *indexCache) indexTools(server string, tools []toolsignature.Tool) *search.Index {
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
		meaning := []search.WeightedText{{Text: server + ". " + t.Name + ". " + first, Weight: 1}}
		b.AddEntry(search.IndexEntry{Kind: kind, Meaning: meaning, Fields: []search.Field{
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

// indexSkills returns the index of the skills. The caller holds the lock.
func (f *indexCache) indexSkills(list []skill.Skill) *search.Index {
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

func nameAndText(name, text string, more ...string) search.IndexEntry {
	return search.IndexEntry{Meaning: []search.WeightedText{{Text: name + ". " + text, Weight: 1}}, Fields: []search.Field{
		{Text: name, Weight: 3.2, Bound: 4}, {Text: text, Weight: 2.4, Bound: 10},
		{Text: strings.Join(more, " "), Weight: 1.2},
	}}
}

// indexAPIs returns the index of APIs by their configuration. The caller holds the lock.
func (f *indexCache) indexAPIs(list []proxyapi.API) *search.Index {
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
