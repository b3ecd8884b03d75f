package settings

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// ListMisspelt lists the variables of a .env file that are probably misspelt settings, sorted. Want is the setting.
func ListMisspelt(vars map[string]string) []Mistake {
	names := ListNames()
	var out []Mistake
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		// Only unknown names can be misspelt.
		if slices.Contains(names, name) {
			continue
		}
		if near := cmp.Or(settingAliases()[strings.ToUpper(name)], typo.NearestOf(name, maxSlips(name), names)); near != "" {
			out = append(out, Mistake{Name: name, Found: "not a setting", Want: near})
		}
	}
	return out
}

// maxSlips is the number of typing mistakes that a name may have. It is small, because a .env file may also have other
// programs' variables.
func maxSlips(name string) int { return min(3, len(name)/4) }

// settingAliases maps names that people often write to the right setting.
func settingAliases() map[string]string {
	return map[string]string{ //nolint:gosec // names of settings
		"PORT": "MCP_PORT", "AUTH_TOKEN": "MCP_AUTH_TOKEN", "MCP_TOKEN": "MCP_AUTH_TOKEN",
		"ALLOWED_HOSTS": "MCP_ALLOWED_HOSTS", "YOLO": "YOLO_MODE", "DEBUG": "DEBUG_MODE",
		"SLOTS": "SANDBOX_SLOTS", "MEMORY": "SANDBOX_MEMORY", "WARM": "SANDBOX_WARM",
		"TIMEOUT": "TIMEOUT_DEFAULT", "SANDBOX_TIMEOUT": "TIMEOUT_DEFAULT", "MAX_TIMEOUT": "TIMEOUT_MAX",
		"DEFAULT_TIMEOUT": "TIMEOUT_DEFAULT", "NPM_REGISTRY": "PACKAGE_REGISTRY", "REDACT_STRINGS": "REDACTING_STRINGS",
	}
}
