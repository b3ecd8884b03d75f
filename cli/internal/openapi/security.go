package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// None imports a document without a credential.
const None = "none"

// chooseScheme chooses how requests authenticate.
func (im *docImporter) chooseScheme() error {
	defined := im.root.FollowKeys("components", "securitySchemes")
	if im.swagger {
		defined = im.root.GetValue("securityDefinitions")
	}
	ways := map[string]document.AuthWay{}
	var names []string
	for _, m := range defined.ObjectMembers() {
		if _, twice := ways[m.Key]; !twice && len(names) < maxSchemes {
			ways[m.Key] = im.readWay(m.Key, im.refs.followRefs(m.Node))
			names = append(names, m.Key)
		}
	}
	if im.o.Scheme == None {
		return im.setTokens(document.AuthWay{})
	}
	if im.o.Scheme != "" {
		return im.applyChosen(ways, names)
	}
	options := im.listWays(ways, names)
	if len(options) == 0 {
		if len(im.o.Tokens) > 0 { // the document names no way, so the usual one is used
			return im.setTokens(document.BearerWay("bearer"))
		}
		return nil
	}
	best := options[0]
	if best.Why != "" {
		return &document.UnsupportedError{Found: fmt.Sprintf("the way to authenticate %s: %s",
			document.CleanLine(best.Name, 60),
			best.Why),
			Want: "--scheme none, to import without a credential"}
	}
	for _, w := range options[1:] {
		if name := document.CleanLine(w.Name, 60); w.Why == "" && len(im.out.Other) < maxOther {
			im.out.Other = append(im.out.Other, name)
		}
	}
	return im.setTokens(best)
}

const (
	maxSchemes = 100
	maxOther   = 5
)

func (im *docImporter) setTokens(w document.AuthWay) error {
	s, err := w.NameTokens(im.o.Name, im.o.Tokens)
	s.Name = document.CleanLine(s.Name, 60)
	im.out.Scheme = s
	return err
}

// applyChosen handles --scheme.
func (im *docImporter) applyChosen(ways map[string]document.AuthWay, names []string) error {
	var all []document.AuthWay
	for name := range strings.SplitSeq(im.o.Scheme, "+") {
		w, ok := ways[name]
		if !ok {
			return &document.UnsupportedError{Found: fmt.Sprintf("--scheme %s", document.CleanLine(im.o.Scheme, 60)),
				Want: "one of " + document.CleanLine(strings.Join(append(names, None), ", "), 300)}
		}
		all = append(all, w)
	}
	w := all[0]
	if len(all) > 1 {
		w = document.CombineWays(all)
	}
	if w.Why != "" {
		return &document.UnsupportedError{Found: fmt.Sprintf("--scheme %s: %s", document.CleanLine(w.Name, 60), w.Why),
			Want: "another scheme, or none"}
	}
	return im.setTokens(w)
}

// listWays returns the ways that the document allows, the best first.
func (im *docImporter) listWays(ways map[string]document.AuthWay, names []string) []document.AuthWay {
	count := map[string]int{}
	found := map[string]document.AuthWay{}
	var order []string
	add := func(requirements *jsonread.Node) {
		for _, r := range takeAtMost(requirements.ListItems(), maxShared) {
			var all []document.AuthWay
			known := true
			for _, m := range takeAtMost(r.Node.ObjectMembers(), maxAnd+1) {
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
				w = document.CombineWays(all)
			}
			if count[w.Name]++; count[w.Name] == 1 {
				found[w.Name] = w
				order = append(order, w.Name)
			}
		}
	}
	general := im.root.GetValue("security")
	im.eachOperation(func(_ string, _ string, item, op *jsonread.Node) {
		// The requirements of an operation replace the general ones.
		if own := op.GetValue("security"); own != nil {
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
	out := convert.Each(order, func(name string) document.AuthWay { return found[name] })
	weight := func(w document.AuthWay) int { // a way of few operations comes after a way of most
		n := w.Rank
		if w.Why != "" {
			n += 100
		}
		if count[w.Name]*2 < most {
			n += 50
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b document.AuthWay) int { return weight(a) - weight(b) })
	return out
}

const maxAnd = 5

// readWay reads one security scheme.
func (im *docImporter) readWay(name string, s *jsonread.Node) document.AuthWay {
	lower := strings.ToLower
	switch lower(s.TextOf("type")) {
	case "oauth2", "openidconnect":
		return document.BearerWay(name)
	case "basic":
		return document.BasicWay(name)
	case "http":
		switch scheme := lower(s.TextOf("scheme")); scheme {
		case "bearer", "":
			return document.BearerWay(name)
		case "basic":
			return document.BasicWay(name)
		case "digest", "hoba", "mutual", "negotiate", "ntlm", "scram-sha-1", "scram-sha-256", "vapid", "dpop", "privatetoken":
			return document.UnusableWay(name, "it is "+scheme+", where each request is computed with the credential")
		default:
			return document.HeaderWay(name, "Authorization", document.CleanLine(s.TextOf("scheme"), 40)+" ")
		}
	case "mutualtls":
		return document.UnusableWay(name, "it is a client certificate (mutual TLS)")
	case "apikey":
		return im.apiKey(name, s)
	}
	return document.UnusableWay(name, fmt.Sprintf("it is of the unknown type %q",
		document.CleanLine(s.TextOf("type"), 40)))
}

func (im *docImporter) apiKey(name string, s *jsonread.Node) document.AuthWay {
	if strings.EqualFold(s.TextOf("x-amazon-apigateway-authtype"), "awsSigv4") {
		return document.AWSWay(name)
	}
	description := strings.ToLower(s.TextOf("description"))
	if strings.Contains(description, "signature") && strings.EqualFold(s.TextOf("name"), "Authorization") {
		return document.UnusableWay(name, "requests are signed with the credential")
	}
	switch strings.ToLower(s.TextOf("in")) {
	case "header":
		prefix := ""
		if strings.EqualFold(s.TextOf("name"), "Authorization") && strings.Contains(description, "bearer") {
			prefix = "Bearer "
		}
		return document.HeaderWay(name, s.TextOf("name"), prefix)
	case "query":
		return document.QueryWay(name, s.TextOf("name"))
	case "cookie":
		return document.CookieWay(name, s.TextOf("name"))
	}
	return document.UnusableWay(name, "the document does not say where it is sent")
}
