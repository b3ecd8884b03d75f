package execution

import (
	"cmp"
	"slices"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// buildEnviron returns the variables of a run narrowed to these APIs; an empty list means all. The value of a variable
// is the token name, or its placeholder. Each token has a variable with its name, and perhaps a second one. The result
// omits a second variable that two tokens share, because code would use either account by chance. It also omits
// variables beyond sandboxapi.MaxEnviron.
func buildEnviron(cat proxyapi.Catalog, apis []string) map[string]string {
	var own, second [][2]string
	for _, api := range cat.APIs {
		//defence:environ-apis
		if len(apis) > 0 && !slices.Contains(apis, api.Name) {
			continue
		}
		for _, t := range api.Credentials {
			for _, name := range t.Variables {
				pair := [2]string{name, cmp.Or(t.Placeholder, t.Name)}
				if name == t.Name {
					own = append(own, pair)
				} else {
					second = append(second, pair)
				}
			}
		}
	}
	if len(own)+len(second) == 0 {
		return nil
	}
	owners := map[string]int{}
	for _, p := range append(second, own...) {
		owners[p[0]]++
	}
	second = slices.DeleteFunc(second, func(p [2]string) bool { return owners[p[0]] > 1 })
	out, room := map[string]string{}, sandboxapi.MaxEnviron
	for _, p := range append(own, second...) {
		if room -= len(p[0]) + len(p[1]) + sandboxapi.NameBytes; room >= 0 {
			out[p[0]] = p[1]
		}
	}
	return out
}
