package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// listNames lists the names in apis/ that may be APIs, without hidden ones and examples. APIs in force come first, then
// the others by name.
func (l *loadState) listNames() ([]string, error) {
	dir, err := l.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	// Examples and hidden files, such as those of editors, are not APIs.
	all = slices.DeleteFunc(all, func(name string) bool {
		return strings.HasPrefix(name, ".") || name == "example" || strings.HasSuffix(name, ".example")
	})
	slices.SortFunc(all, func(a, b string) int {
		if x, y := l.o.Previous.API(a) != nil, l.o.Previous.API(b) != nil; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return all, nil
}

// warnMisnamed warns of files that are probably meant as an API's config.json: a file beside the folders, a file with a
// similar name, and a folder without one. A folder with an example file is a template.
func (l *loadState) warnMisnamed(name string) {
	info, err := l.root.Stat(name)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return // opening a pipe would wait for a writer
	}
	warn := func(file, found, want string) {
		l.problems = append(l.problems,
			Problem{API: name, File: "apis/" + file, Severity: Warning, Found: found, Want: want})
	}
	if !info.IsDir() {
		if api, ok := guessAPIOfFile(name); ok {
			warn(strictjson.QuoteKey(name), "not read", "apis/"+api+"/config.json")
		}
		return
	}
	dir, err := l.root.Open(name)
	if err != nil {
		return
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(maxListed) // an error leaves fewer names to compare
	template := len(entries) == 0
	for _, e := range entries {
		switch file := strings.ToLower(e.Name()); {
		case strings.HasSuffix(file, ".example"):
			template = true
		case isLikeConfig(file):
			warn(strictjson.QuoteKey(name)+"/"+strictjson.QuoteKey(e.Name()), "not read", "config.json")
			template = true
		}
	}
	if !template {
		warn(strictjson.QuoteKey(name), "a folder without config.json", "one in it, or the folder elsewhere")
	}
}

// isLikeConfig reports whether a file name, in lower case, was probably meant to be config.json.
func isLikeConfig(file string) bool {
	switch file {
	case "config", "conf.json", "configuration.json", "config.jsonc", "config.json5", "config.json.txt", "config.yaml",
		"config.yml", "config.toml":
		return true
	}
	return typo.NearestOf(file, 2, []string{"config.json"}) != ""
}

// guessAPIOfFile returns the API that a JSON file directly in apis/ is probably meant to be.
func guessAPIOfFile(file string) (api string, ok bool) {
	const schema = "config.schema.json" // part of CodeForge
	file = strings.ToLower(file)
	stem, isJSON := strings.CutSuffix(file, ".json")
	if !isJSON || file == schema || file == PackagesFile {
		return "", false
	}
	if isLikeConfig(file) || folderProblem(stem) != "" {
		stem = "<name>"
	}
	return stem, true
}

// maxFolder bounds the name of a folder, in bytes.
const maxFolder = 64

// folderProblem returns why a folder's name is not an API name, or "".
func folderProblem(name string) string {
	if len(name) > maxFolder {
		return fmt.Sprintf("a name longer than %d characters", maxFolder)
	}
	for i := range len(name) {
		b := name[i]
		alnum := 'a' <= b && b <= 'z' || '0' <= b && b <= '9'
		if !alnum && (i == 0 || b != '-' && b != '_') {
			return "a name with something other than a-z, 0-9, - and _, or that starts with - or _"
		}
	}
	return ""
}

// CheckName returns why a name cannot be the name of an API, or nil.
func CheckName(name string) error {
	if bad := folderProblem(name); bad != "" || name == "" {
		return fmt.Errorf("found %s; want %s", cmp.Or(bad, "no name"), strings.TrimPrefix(wantFolder(name), "apis/"))
	}
	return nil
}

// FolderName makes an API name of another program's name: lower-case letters, digits and dashes. The result may be
// empty.
func FolderName(name string) string {
	fixed := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	for strings.Contains(fixed, "--") {
		fixed = strings.ReplaceAll(fixed, "--", "-")
	}
	return strings.Trim(fixed[:min(len(fixed), maxFolder)], "-_")
}

func wantFolder(name string) string {
	fixed := strings.Trim(strings.NewReplacer(" ", "-", ".", "-").Replace(strings.ToLower(name)), "-_")
	if fixed != "" && folderProblem(fixed) == "" {
		return "apis/" + fixed
	}
	return "a name like google-maps"
}
