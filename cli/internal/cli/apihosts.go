package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// chooseHosts removes from a document all hosts that the user does not open. These stay open: the hosts under the first
// server's registered domain, those of --domain, and those that the user confirms one by one. The author of a document
// could name any host, and code may send the credential to every open host. It returns a note for each closed host.
func (o *apiOptions) chooseHosts(ctx context.Context, in linePrompter, doc *document.ImportedDocument) (
	notes []string, err error,
) {
	main := registeredDomain(serverHost(doc.Head.Server))
	var open []string
	closed := map[string]bool{}
	for _, host := range doc.Hosts {
		yes := registeredDomain(host) == main || slices.Contains(o.domains, host)
		if !yes && in.terminal {
			question := fmt.Sprintf("Open %s too, which is not of %s? [y/N] ", safetext.OneLine(host), safetext.OneLine(main))
			answer, err := in.askLine(ctx, question, "--domain",
				func(s string) (string, error) { return strings.ToLower(s), nil })
			if err != nil {
				return nil, err
			}
			yes = answer == "y" || answer == "yes"
		}
		if yes {
			open = append(open, host)
			continue
		}
		closed[host] = true
		notes = append(notes, fmt.Sprintf("%s is not of %s and stays closed, with the operations there; --domain %s opens it",
			host, main, host))
	}
	doc.Hosts = open
	doc.Operations = slices.DeleteFunc(doc.Operations, func(l operation.Line) bool { return closed[serverHost(l.Server)] })
	if doc.Head.Operations = len(doc.Operations); len(doc.Operations) == 0 {
		return nil, &document.UnsupportedError{Found: "operations at closed hosts only", Want: "--domain for one of them"}
	}
	return notes, nil
}

// registeredDomain returns the registered domain of a host, or the host if it has none.
func registeredDomain(host string) string {
	p, _ := catalog.ParseHostPattern(host) // ParseServer has checked the host
	return p.Site()
}
