package mcpconfig

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
)

// ServerExample is an example of a server in the folder of APIs: its hosts, and the variable that holds the key.
type ServerExample struct {
	// Name is the folder of the example.
	Name        string                     `json:"-"`
	Description string                     `json:"description"`
	Domains     []string                   `json:"domains"`
	Reference   string                     `json:"reference"`
	Restricted  []string                   `json:"restricted_methods"`
	Credentials map[string]KnownCredential `json:"credentials"`
	Server      *apidir.Server             `json:"mcp"`
}

// KnownCredential holds the places of an example's credential, and the placeholder that programs get instead.
type KnownCredential struct {
	In          []string `json:"in"`
	Placeholder string   `json:"placeholder"`
}

// UnmarshalJSON reads a credential that is an object or a text.
func (c *KnownCredential) UnmarshalJSON(text []byte) error {
	type plain KnownCredential
	if len(text) > 0 && text[0] == '{' {
		return json.Unmarshal(text, (*plain)(c))
	}
	return nil
}

// ListExamples returns the examples of servers in the folder of APIs.
func ListExamples(dir string) []ServerExample {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "config.json.example")) // the pattern is valid
	var out []ServerExample
	for _, file := range files {
		text, err := os.ReadFile(file)
		k := ServerExample{Name: filepath.Base(filepath.Dir(file))}
		if err != nil || json.Unmarshal(text, &k) != nil || k.Server == nil {
			continue
		}
		out = append(out, k)
	}
	return out
}

func (k ServerExample) packageAndVersion() (name, version string) {
	_, pkg, _ := strings.Cut(k.Server.Package, ":")
	return cutVersion(pkg)
}

// findExample returns the example of a server, or nil.
func findExample(all []ServerExample, s startCommand) *ServerExample {
	for i, k := range all {
		name, _ := k.packageAndVersion()
		switch {
		case s.pkg != "" && s.pkg == name && s.pypi == strings.HasPrefix(k.Server.Package, "pypi:"),
			s.url != "" && k.Server.URL != "" && hostOf(s.url) == hostOf(k.Server.URL),
			s.program != "" && len(k.Server.Command) > 0 && s.program == k.Server.Command[0]:
			return &all[i]
		}
	}
	return nil
}

// findImageExample returns the example of a program that has the name of a container image, or nil.
func findImageExample(all []ServerExample, words []string) *ServerExample {
	for i, k := range all {
		if len(k.Server.Command) == 0 {
			continue
		}
		for _, word := range words {
			image, _, _ := strings.Cut(baseName(word), ":")
			if image == k.Server.Command[0] {
				return &all[i]
			}
		}
	}
	return nil
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
