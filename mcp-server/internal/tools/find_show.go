package tools

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// showResults returns the results, grouped by source. Each has a line. The best have types too, as far as maxCost
// allows.
func showResults(cat proxyapi.Catalog, places []searchSource, hits []search.Hit) string {
	texts, headers, cost := make([]string, len(hits)), map[*search.Index]string{}, 0
	for i, h := range hits {
		p := sourceOf(places, h)
		header := ""
		if _, known := headers[h.Index]; !known {
			header = p.sourceHeader(cat)
			// One import shows how a typed client is used.
			if line := p.importLine(); line != "" && len(headers) == 0 {
				header = strings.TrimSuffix(header, "\n") + "  " + line + "\n"
			}
		}
		least := apidoc.Plain
		if i < long {
			least = apidoc.Short
		}
		texts[i] = p.showWithin(h.Entry, least, maxTyped)
		if cost += estimateTokens(header + texts[i]); cost > maxCost {
			texts = texts[:i]
			break
		}
		headers[h.Index] += header
	}
	for i, h := range hits[:min(len(texts), typed)] {
		most := apidoc.Short
		if i < long {
			most = apidoc.Long
		}
		old := estimateTokens(texts[i])
		text := sourceOf(places, h).showWithin(h.Entry, most, min(maxTyped, maxCost-cost+old))
		if size := estimateTokens(text); size > old {
			texts[i], cost = text, cost+size-old
		}
	}
	var b strings.Builder
	for i, first := range hits[:len(texts)] {
		header, left := headers[first.Index]
		if !left {
			continue
		}
		delete(headers, first.Index)
		b.WriteString(header)
		for j, h := range hits[i:len(texts)] {
			if h.Index == first.Index {
				b.WriteString(texts[i+j])
			}
		}
	}
	return b.String()
}

// showWithin returns one result with as much detail as most tokens allow, and always with its line.
func (p searchSource) showWithin(entry int, detail apidoc.Detail, most int) string {
	text := p.showResult(entry, detail) + "\n"
	for ; detail > apidoc.Plain && estimateTokens(text) > most; text = p.showResult(entry, detail) + "\n" {
		detail--
	}
	return text
}

// importLine returns the import of a document's typed client, or "".
func (p searchSource) importLine() string {
	if p.doc == nil {
		return ""
	}
	return p.doc.ImportLine()
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
