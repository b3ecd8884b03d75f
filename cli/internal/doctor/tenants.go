package doctor

import (
	"crypto/sha256"
	"fmt"
	"os"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// ReadTenants reads MCP_TOKENS_FILE and returns the tenants and all problems. It also compares the tokens with the
// operator's (MCP_AUTH_TOKEN) and the names with the APIs of cat, which may be nil. If it cannot read the file, it
// returns an error.
func ReadTenants(path, operator string, cat *catalog.Catalog) ([]tokenfile.Tenant, catalog.Problems, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user's own setting
	if err != nil {
		return nil, nil, fmt.Errorf("MCP_TOKENS_FILE: %w", err)
	}
	list, problems := tokenfile.Parse(data, path)
	own := sha256.Sum256([]byte(operator))
	for _, t := range list {
		at := "tenants." + t.Name
		// A tenant with this token would have the operator's rights.
		if t.HasToken(own) {
			problems = append(problems, catalog.Problem{File: path, Field: at + ".tokens", Found: "the value of MCP_AUTH_TOKEN",
				Want: "another token: that one is the operator's"})
		}
		for _, name := range t.APIs {
			if cat == nil || cat.API(name) != nil {
				continue
			}
			p := catalog.Problem{File: path, Field: at + ".apis", Found: fmt.Sprintf("%q, which is not an API", name),
				Severity: catalog.Warning}
			known := convert.Each(cat.APIs(), func(a *catalog.API) string { return a.Name })
			if near := typo.NearestOf(name, len(name)/2, known); near != "" {
				p.Want = fmt.Sprintf("did you mean %q?", near)
			}
			problems = append(problems, p)
		}
	}
	return list, problems, nil
}

// checkTenants reports the number of tenants, and the first problem of their file.
func checkTenants(c Config, cat *catalog.Catalog) []Finding {
	path := c.Settings.MCPTokensFile
	if path == "" {
		return nil
	}
	list, problems, err := ReadTenants(path, c.Settings.MCPAuthToken.Reveal(), cat)
	if err != nil {
		return []Finding{newFailure("tenants", err.Error(), "")}
	}
	errs := problems.Errors()
	switch {
	case len(errs) > 0:
		return []Finding{newFailure("tenants", errs[0].String(),
			fmt.Sprintf("codeforge check lists all mistakes: %d", len(errs)))}
	case len(problems) > 0:
		return []Finding{newWarning("tenants", fmt.Sprintf("%d; %s", len(list), problems[0]), "")}
	}
	return []Finding{newOK("tenants", fmt.Sprintf("%d in %s", len(list), path))}
}
