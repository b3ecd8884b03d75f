package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// None imports a document without a credential.
const None = "none"

// security chooses how requests authenticate.
func (im *importer) security() error {
	defined := im.root.At("components", "securitySchemes")
	if im.swagger {
		defined = im.root.Get("securityDefinitions")
	}
	ways := map[string]document.Way{}
	var names []string
	for _, m := range defined.Maps() {
		if _, twice := ways[m.Key]; !twice && len(names) < maxSchemes {
			ways[m.Key] = im.way(m.Key, im.refs.resolve(m.Node))
			names = append(names, m.Key)
		}
	}
	if im.o.Scheme == None {
		return im.tokens(document.Way{})
	}
	if im.o.Scheme != "" {
		return im.chosen(ways, names)
	}
	options := im.options(ways, names)
	if len(options) == 0 {
		if len(im.o.Tokens) > 0 { // the document names no way, so the usual one is used
			return im.tokens(document.Bearer("bearer"))
		}
		return nil
	}
	best := options[0]
	if best.Why != "" {
		return &document.Refused{Found: fmt.Sprintf("the way to authenticate %s: %s", document.Line(best.Name, 60), best.Why),
			Want: "--scheme none, to import without a credential"}
	}
	for _, w := range options[1:] {
		if name := document.Line(w.Name, 60); w.Why == "" && len(im.out.Other) < maxOther {
			im.out.Other = append(im.out.Other, name)
		}
	}
	return im.tokens(best)
}

const (
	maxSchemes = 100
	maxOther   = 5
)

func (im *importer) tokens(w document.Way) error {
	s, err := w.Scheme(im.o.Name, im.o.Tokens)
	s.Name = document.Line(s.Name, 60)
	im.out.Scheme = s
	return err
}

// chosen handles --scheme.
func (im *importer) chosen(ways map[string]document.Way, names []string) error {
	var all []document.Way
	for name := range strings.SplitSeq(im.o.Scheme, "+") {
		w, ok := ways[name]
		if !ok {
			return &document.Refused{Found: fmt.Sprintf("--scheme %s", document.Line(im.o.Scheme, 60)),
				Want: "one of " + document.Line(strings.Join(append(names, None), ", "), 300)}
		}
		all = append(all, w)
	}
	w := all[0]
	if len(all) > 1 {
		w = document.And(all)
	}
	if w.Why != "" {
		return &document.Refused{Found: fmt.Sprintf("--scheme %s: %s", document.Line(w.Name, 60), w.Why),
			Want: "another scheme, or none"}
	}
	return im.tokens(w)
}

// options returns the ways that the document allows, the best first.
func (im *importer) options(ways map[string]document.Way, names []string) []document.Way {
	count := map[string]int{}
	found := map[string]document.Way{}
	var order []string
	add := func(requirements *jsonread.Node) {
		for _, r := range atMost(requirements.Items(), maxShared) {
			var all []document.Way
			known := true
			for _, m := range atMost(r.Node.Maps(), maxAnd+1) {
				w, ok := ways[m.Key]
				known = known && ok && len(all) < maxAnd
				all = append(all, w)
			}
			// An empty requirement makes authentication optional.
			if !known || len(all) == 0 {
				continue
			}
			w := all[0]
			if len(all) > 1 {
				w = document.And(all)
			}
			if count[w.Name]++; count[w.Name] == 1 {
				found[w.Name] = w
				order = append(order, w.Name)
			}
		}
	}
	general := im.root.Get("security")
	im.each(func(_ string, _ string, item, op *jsonread.Node) {
		// The requirements of an operation replace the general ones.
		if own := op.Get("security"); own != nil {
			add(own)
		} else {
			add(general)
		}
	})
	if len(order) == 0 {
		add(general)
	}
	if len(order) == 0 { // the document does not choose, so all are options
		for _, name := range names {
			found[name] = ways[name]
			order = append(order, name)
		}
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	out := make([]document.Way, 0, len(order))
	for _, name := range order {
		out = append(out, found[name])
	}
	weight := func(w document.Way) int { // a way of few operations comes after a way of most
		n := w.Rank
		if w.Why != "" {
			n += 100
		}
		if count[w.Name]*2 < most {
			n += 50
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b document.Way) int { return weight(a) - weight(b) })
	return out
}

const maxAnd = 5

// way reads one security scheme.
func (im *importer) way(name string, s *jsonread.Node) document.Way {
	lower := strings.ToLower
	switch lower(s.Str("type")) {
	case "oauth2", "openidconnect":
		return document.Bearer(name)
	case "basic":
		return document.Basic(name)
	case "http":
		switch scheme := lower(s.Str("scheme")); scheme {
		case "bearer", "":
			return document.Bearer(name)
		case "basic":
			return document.Basic(name)
		case "digest", "hoba", "mutual", "negotiate", "ntlm", "scram-sha-1", "scram-sha-256", "vapid", "dpop", "privatetoken":
			return document.Refuse(name, "it is "+scheme+", where each request is computed with the credential")
		default:
			return document.Header(name, "Authorization", document.Line(s.Str("scheme"), 40)+" ")
		}
	case "mutualtls":
		return document.Refuse(name, "it is a client certificate (mutual TLS)")
	case "apikey":
		return im.apiKey(name, s)
	}
	return document.Refuse(name, fmt.Sprintf("it is of the unknown type %q", document.Line(s.Str("type"), 40)))
}

func (im *importer) apiKey(name string, s *jsonread.Node) document.Way {
	description := strings.ToLower(s.Str("description"))
	signed := strings.Contains(strings.ToLower(s.Str("x-amazon-apigateway-authtype")), "sigv4") ||
		strings.Contains(description, "signature") && strings.EqualFold(s.Str("name"), "Authorization")
	if signed {
		return document.Refuse(name, "requests are signed with the credential")
	}
	switch strings.ToLower(s.Str("in")) {
	case "header":
		prefix := ""
		if strings.EqualFold(s.Str("name"), "Authorization") && strings.Contains(description, "bearer") {
			prefix = "Bearer "
		}
		return document.Header(name, s.Str("name"), prefix)
	case "query":
		return document.Query(name, s.Str("name"))
	case "cookie":
		return document.Refuse(name, "it is sent in a cookie, where CodeForge puts no credential")
	}
	return document.Refuse(name, "the document does not say where it is sent")
}
