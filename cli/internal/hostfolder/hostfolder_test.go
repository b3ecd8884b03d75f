package hostfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// newPlace makes a folder with apis/, a state directory, and the folders reports and drafts.
func newPlace(t *testing.T) (base, file string, own []string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	for _, dir := range []string{"codeforge/apis/stripe", "codeforge/state", "codeforge/bin", "data/reports/deep", "data/drafts", "data/keys", "data/.hidden/x", "token"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	write := func(name, text string) {
		testkit.Must(t, os.WriteFile(filepath.Join(base, name), []byte(text), 0o600))
	}
	write("data/keys/id_ed25519", "key")
	write("data/file", "text")
	write("token/stripe", "sk_live")
	write("codeforge/apis/stripe/config.json", `{"credentials": {"A": {"file": "`+base+`/token/stripe"}}}`)
	file = FilePath(filepath.Join(base, "codeforge/apis"))
	own = OwnPaths(func(string) string { return "" }, base+"/codeforge/apis", base+"/codeforge/state", base+"/codeforge/bin")
	return base, file, own
}

// TestRefusedFolders: no folder with keys, settings or programs is added, whatever its path looks like.
// Promise: folders-stay-closed
func TestRefusedFolders(t *testing.T) {
	base, file, own := newPlace(t)
	home := filepath.Join(base, "home")
	t.Setenv("HOME", home)
	testkit.Must(t, os.MkdirAll(filepath.Join(home, "docs"), 0o755))
	for name, target := range map[string]string{
		"to-etc": "/etc", "to-apis": base + "/codeforge/apis", "to-home": home, "to-root": "/", "to-keys": base + "/data/keys",
		"to-self": "/proc/self", "loop": base + "/data/loop",
	} {
		testkit.Must(t, os.Symlink(target, filepath.Join(base, "data", name)))
	}
	in := func(name string) string { return filepath.Join(base, name) }
	for path, want := range map[string]string{
		"/": "contains", "/etc": "must not see", "/etc/ssl": "must not see", "/proc": "must not see", "/proc/self": "must not see",
		"/sys": "must not see", "/dev": "must not see", "/run": "must not see", "/usr/share": "must not see", "/var": "contains",
		"/root": "keys", "/home": "keys", "/tmp": "contains", home: "keys", base: "contains",
		in("codeforge"): "contains", in("codeforge/apis"): "lies in", in("codeforge/apis/stripe"): "lies in",
		in("codeforge/state"): "lies in", in("codeforge/bin"): "lies in", in("token"): "contains", in("data/keys"): "id_ed25519",
		in("data/.hidden"): "hidden", in("data/.hidden/x"): "hidden", in("data/file"): "not a folder", in("data/absent"): "no such",
		in("data/to-etc"): "must not see", in("data/to-etc/ssl"): "must not see", in("data/to-apis"): "lies in", in("data/to-home"): "keys",
		in("data/to-root"): "contains", in("data/to-keys"): "id_ed25519", in("data/to-self"): "must not see", in("data/loop"): "too many",
		in("data/reports/../../codeforge"): "contains", in("data/reports/../to-etc/../etc"): "no such",
	} {
		_, err := Add(file, Folder{Name: "x", Path: path}, own)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x", "A", "ä", "-x", "_x", "a b", "a\nb", "a,b", "*", strings.Repeat("a", 33)} {
		if _, err := Add(file, Folder{Name: name, Path: in("data/reports")}, own); err == nil || !strings.Contains(err.Error(), "not a name") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("folders.json was written")
	}
	if f, err := Add(file, Folder{Name: "docs", Path: filepath.Join(home, "docs")}, own); err != nil || f.Path != filepath.Join(home, "docs") {
		t.Errorf("a folder in a home: %+v %v", f, err)
	}
}

// TestChangedFolders: a folder that became something else after add is left out, with a reason, and the others stay.
// Promise: folders-stay-closed
func TestChangedFolders(t *testing.T) {
	base, file, own := newPlace(t)
	in := func(name string) string { return filepath.Join(base, name) }
	testkit.Must(t, os.Symlink(in("data/reports"), in("data/link")))
	f, err := Add(file, Folder{Name: "reports", Path: in("data/link")}, own)
	if err != nil || f.Path != in("data/reports") {
		t.Fatalf("%+v %v", f, err)
	}
	_, err = Add(file, Folder{Name: "drafts", Path: in("data/drafts"), Write: true}, own)
	testkit.Must(t, err)
	for _, row := range []struct {
		path string
		name string
	}{{in("data/reports/deep"), "below"}, {in("data"), "above"}} {
		_, err := Add(file, Folder{Name: row.name, Path: row.path, Write: true}, own)
		if err == nil || !strings.Contains(err.Error(), "overlaps") {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	list := func() string {
		found, refused := List(file, own)
		var out []string
		for _, f := range found {
			out = append(out, f.Name)
		}
		return strings.Join(out, ",") + "|" + errors.Join(refused...).Error()
	}
	if found, refused := List(file, own); len(found) != 2 || len(refused) != 0 || found[0].Write || !found[1].Write {
		t.Fatalf("%+v %v", found, refused)
	}
	for name, change := range map[string]func(){
		"leads to " + in("data/drafts"): func() { testkit.Must(t, os.Symlink(in("data/drafts"), in("data/reports"))) },
		"leads to /etc":                 func() { testkit.Must(t, os.Symlink("/etc", in("data/reports"))) },
		"no such file":                  func() {},
		"not a folder":                  func() { testkit.Must(t, os.WriteFile(in("data/reports"), nil, 0o600)) },
		"has .ssh":                      func() { testkit.Must(t, os.MkdirAll(in("data/reports/.ssh"), 0o700)) },
		"has .env": func() {
			testkit.Must(t, os.Mkdir(in("data/reports"), 0o700))
			testkit.Must(t, os.WriteFile(in("data/reports/.env"), nil, 0o600))
		},
	} {
		testkit.Must(t, os.RemoveAll(in("data/reports")))
		change()
		if got := list(); !strings.HasPrefix(got, "drafts|") || !strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// A link in the way to the folder.
	testkit.Must(t, os.RemoveAll(in("data/reports")))
	testkit.Must(t, os.Rename(in("data"), in("other")))
	testkit.Must(t, os.Symlink(in("other"), in("data")))
	if found, refused := List(file, own); len(found) != 0 || len(refused) != 2 {
		t.Errorf("%v %v", found, refused)
	}
	if err := Remove(file, "absent"); err == nil {
		t.Error("removed a folder that is not there")
	}
	testkit.Must(t, errors.Join(Remove(file, "reports"), Remove(file, "drafts")))
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("an empty folders.json stays")
	}
}

// TestParse: every mistake has its place.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		``:                                  "empty file",
		`[]`:                                "an object",
		`{"folders": [`:                     "line 1, column",
		`{"folder": {}}`:                    `did you mean "folders"?`,
		`{}`:                                "folders: missing",
		`{"folders": {"A b": {}}}`:          "not a name for a folder",
		"{\"folders\": {\n\"a\": 1}}":       "line 2",
		`{"folders": {"a": {}}}`:            "folders.a.path: missing",
		`{"folders": {"a": {"path": "x"}}}`: "not an absolute path",
		`{"folders": {"a": {"path": "/x/../y"}}}`:                 "not an absolute path",
		`{"folders": {"a": {"path": "/x", "write": "true"}}}`:     "without quotes",
		`{"folders": {"a": {"path": "/x", "wirte": true}}}`:       "write",
		`{"folders": {"a": {"path": "/x"}, "a": {"path": "/y"}}}`: "same key",
	} {
		if list, problems := Parse([]byte(text)); list != nil || len(problems) != 1 || !strings.Contains(problems.String(), want) {
			t.Errorf("%s: %v, want %s", text, problems, want)
		}
	}
	for n, ok := range map[int]bool{maxFolders: true, maxFolders + 1: false} {
		var folders []string
		for i := range n {
			folders = append(folders, fmt.Sprintf(`"a%d": {"path": "/x"}`, i))
		}
		if _, problems := Parse([]byte(`{"folders": {` + strings.Join(folders, ",") + `}}`)); (len(problems) == 0) != ok {
			t.Errorf("%d folders: %v", n, problems)
		}
	}
	list, problems := Parse([]byte(`{"folders": {"a": {"path": "/x", "write": true}}}`))
	if len(problems) > 0 || len(list) != 1 || list[0] != (Folder{"a", "/x", true}) {
		t.Errorf("%v %v", list, problems)
	}
}

// TestOverride: the file for Compose has the folders, and a user's file stays.
func TestOverride(t *testing.T) {
	dir := t.TempDir()
	list := []Folder{{"a", `/home/$ME/"x" y`, false}, {"b", "/b", true}}
	testkit.Must(t, WriteOverride(dir, list))
	path := filepath.Join(dir, OverrideFile)
	if _, err := os.Stat(path); err == nil {
		t.Error("without docker-compose.yml there is an override")
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, composeFile), nil, 0o600))
	testkit.Must(t, WriteOverride(dir, list))
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	for _, want := range []string{
		`{type: bind, source: "/home/$$ME/\"x\" y", target: "/folders/a", read_only: true, bind: {create_host_path: false}}`,
		`{type: bind, source: "/b", target: "/folders/b", read_only: false, bind: {create_host_path: false}}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	testkit.Must(t, WriteOverride(dir, nil))
	if _, err := os.Stat(path); err == nil {
		t.Error("an override without folders stays")
	}
	testkit.Must(t, os.WriteFile(path, []byte("services: {}\n"), 0o600))
	for _, folders := range [][]Folder{list, nil} {
		var foreign *ForeignError
		if err := WriteOverride(dir, folders); !errors.As(err, &foreign) {
			t.Errorf("a user's file: %v", err)
		}
	}
	if text, _ := os.ReadFile(path); string(text) != "services: {}\n" {
		t.Errorf("a user's file was changed: %s", text)
	}
}
