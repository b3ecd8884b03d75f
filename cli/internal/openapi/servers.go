package openapi

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// maxHosts bounds the hosts of a document.
const maxHosts = 50

// chooseServer chooses the server of requests, and collects all hosts.
func (im *docImporter) chooseServer() error {
	if im.o.Server != "" {
		server, host, err := document.ParseServer(im.o.Server)
		if err != nil {
			return document.NewServerError(err.Error(), "with a URL like https://api.example.com/v1")
		}
		im.out.Head.Server, im.out.HTTP = server, strings.HasPrefix(server, "http:")
		im.out.AddHost(host)
		return nil
	}
	var first error
	for _, text := range im.rootServers() {
		server, err := im.resolveServer(text.url, text.variables)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		im.out.Head.Server = cmp.Or(im.out.Head.Server, server)
	}
	switch {
	case im.out.Head.Server == "" && first == nil:
		return document.NewServerError("no server in the document", "https://..., where requests go")
	case im.out.Head.Server == "":
		return first
	case first != nil:
		im.out.AddNote("a server was left out: %v", first)
	}
	return nil
}

// rawServer is a server in the document's form.
type rawServer struct {
	url       string
	variables *jsonread.Node
}

func (im *docImporter) rootServers() []rawServer {
	if !im.swagger {
		return rawServers(im.root)
	}
	host, base := im.root.TextOf("host"), im.root.TextOf("basePath")
	if host == "" {
		if im.o.Base == nil {
			return nil
		}
		return []rawServer{{url: "/" + strings.TrimLeft(base, "/")}}
	}
	// Some documents put a URL into "host".
	if _, rest, ok := strings.Cut(host, "://"); ok {
		host = rest
	}
	schemes := convert.Each(im.root.GetValue("schemes").ListItems(), func(m jsonread.Member) string { return m.Node.Text })
	scheme := "https"
	if len(schemes) > 0 && (schemes[0] == "http" || schemes[0] == "ws") && !slices.Contains(schemes, "https") {
		scheme = "http"
	}
	return []rawServer{{url: scheme + "://" + strings.TrimRight(host, "/") + "/" + strings.TrimLeft(base, "/")}}
}

func rawServers(n *jsonread.Node) []rawServer {
	var out []rawServer
	for _, s := range takeAtMost(n.GetValue("servers").ListItems(), maxHosts) {
		if s.Node.Is(jsonread.Object) {
			out = append(out, rawServer{s.Node.TextOf("url"), s.Node.GetValue("variables")})
		}
	}
	return out
}

// chosenServer is the server of operations that have separate servers, or "" if it is the document's server. It is not
// usable if ok is false.
type chosenServer struct {
	server string
	ok     bool
}

func (im *docImporter) ownServer(op, item *jsonread.Node) (string, bool) {
	if len(rawServers(op)) == 0 {
		op = item
	}
	list := op.GetValue("servers")
	c, known := im.servers[list]
	if !known {
		c.server, c.ok = im.chooseOperationServer(rawServers(op))
		im.servers[list] = c
	}
	return c.server, c.ok
}

// chooseOperationServer chooses one of the separate servers of an operation or path. It returns the parts of a
// chosenServer.
func (im *docImporter) chooseOperationServer(list []rawServer) (string, bool) {
	var first error
	for _, raw := range list {
		if im.o.Server != "" && im.isRoot(raw.url) { // --server replaces it
			return "", true
		}
		server, err := im.resolveServer(raw.url, raw.variables)
		switch {
		case err == nil && server == im.out.Head.Server:
			return "", true
		case err == nil:
			return server, true
		case first == nil:
			first = err
		}
	}
	if first != nil {
		im.out.AddNote("operations with another server were left out: %v", first)
	}
	return "", first == nil
}

// isRoot reports whether a server is the document's first one, ignoring the scheme.
func (im *docImporter) isRoot(server string) bool {
	bare := func(s string) string {
		_, rest, _ := strings.Cut(s, "//")
		return strings.TrimRight(rest, "/")
	}
	list := im.rootServers()
	return len(list) > 0 && bare(list[0].url) != "" && bare(list[0].url) == bare(server)
}

var variable = regexp.MustCompile(`\{[^{}/]*\}`)

// resolveServer checks one server and adds its host.
func (im *docImporter) resolveServer(text string, variables *jsonread.Node) (string, error) {
	text = strings.TrimSpace(text)
	full, err := im.fillVariables(text, variables)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(full)
	if err == nil && u.Host == "" && u.Scheme == "" {
		switch {
		case im.o.Base != nil:
			// A relative server is relative to the document (OpenAPI 3, Server Object).
			u = im.o.Base.ResolveReference(u)
		case im.out.Head.Server != "":
			if base, err := url.Parse(im.out.Head.Server + "/"); err == nil {
				u = base.ResolveReference(u)
			}
		case hasHost(full):
			u, err = url.Parse("https://" + full)
		default:
			return "", document.NewServerError(fmt.Sprintf("the server %q, which has no host", document.CleanLine(full, 100)),
				"https://..., the whole of it")
		}
	}
	if err != nil {
		return "", document.NewServerError("the server "+document.CleanLine(full, 100), "https://...")
	}
	u.Scheme = cmp.Or(u.Scheme, "https")
	server, host, err := document.ParseServer(u.String())
	if err != nil {
		return "", document.NewServerError(err.Error(), "https://...")
	}
	// Credentials must not cross the network in clear text unless the user asks for it.
	if strings.HasPrefix(server, "http:") {
		return "", document.NewServerError(server+", which is plain HTTP",
			"https://... if it speaks TLS, or --server http://... to let requests cross the network in clear text")
	}
	if len(im.out.Hosts) < maxHosts {
		im.out.AddHost(host)
	}
	return server, nil
}

// hasHost reports whether a URL without a scheme begins with a host: api.example.com/v1.
func hasHost(s string) bool {
	host, _, _ := strings.Cut(s, "/")
	_, _, err := document.ParseServer("https://" + host)
	return err == nil && strings.Contains(host, ".")
}

// fillVariables inserts the values of variables. The user must choose a variable of the host.
func (im *docImporter) fillVariables(text string, variables *jsonread.Node) (string, error) {
	host := text
	if _, rest, ok := strings.Cut(text, "://"); ok {
		host = rest
	}
	host, _, _ = strings.Cut(host, "/")
	var bad error
	full := variable.ReplaceAllStringFunc(text, func(v string) string {
		name := v[1 : len(v)-1]
		if value, ok := im.o.Vars[name]; ok {
			return value
		}
		def := variables.GetValue(name)
		preset, one := def.GetValue("default"), def.GetValue("enum").ListItems()
		fixed := len(one) == 1 && preset != nil && one[0].Node.Text == preset.Text
		// A value that begins with a slash starts the path, so it does not change the host.
		if preset != nil && preset.Text != "" &&
			(fixed || !strings.Contains(host, v) || strings.HasPrefix(preset.Text, "/")) {
			return preset.Text
		}
		if bad == nil {
			bad = &document.ServerError{Variable: name, UnsupportedError: document.UnsupportedError{
				Found: fmt.Sprintf("the server %s with the variable %s", document.CleanLine(text, 100),
					document.CleanLine(name, 40)),
				Want: "--var " + document.CleanLine(name, 40) + "=" + describeChoice(preset, one) + ", or --server https://...",
			}}
		}
		return v
	})
	return full, bad
}

// describeChoice describes the allowed values of a variable.
func describeChoice(preset *jsonread.Node, enum []jsonread.Member) string {
	words := convert.Each(takeAtMost(enum, 30), func(m jsonread.Member) string {
		return document.CleanLine(m.Node.Text, 40)
	})
	out := "VALUE"
	if len(words) > 0 {
		out += " (one of " + strings.Join(words, ", ") + ")"
	}
	if preset != nil && preset.Text != "" {
		out += " (usually " + document.CleanLine(preset.Text, 40) + ")"
	}
	return out
}
