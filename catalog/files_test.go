package catalog_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const plainConfig = `{"description": "x", "domains": ["a.example.com"]}`

func onlyProblem(t *testing.T, dir, want string) {
	t.Helper()
	c, problems := catalog.Load(dir, catalog.Options{})
	if got := listing(problems); got != want+"\n" {
		t.Errorf("problems:\n%swant:\n%s", got, want)
	}
	if c.API("zz-fine") == nil {
		t.Error("the API beside it is not loaded")
	}
}

func withFine(t *testing.T, files map[string]string) string {
	files["zz-fine/config.json"] = goodAPI
	return writeTree(t, files)
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	err := os.Symlink(target, link)
	if err != nil && runtime.GOOS == "windows" {
		testkit.SkipBecause(t, "no symbolic links here: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSymlinksOut: no symbolic link leads out of apis/, be it of a folder, a file or a part of a path.
// Promise: configuration-fails-closed
func TestSymlinksOut(t *testing.T) {
	outside := writeTree(t, map[string]string{"config.json": plainConfig, "types.d.ts": "x", "key": "hunter2-hunter2", "ca.pem": "x"})
	t.Run("folder", func(t *testing.T) {
		dir := withFine(t, map[string]string{})
		symlink(t, outside, filepath.Join(dir, "acme"))
		onlyProblem(t, dir, "error: apis/acme/config.json: a path or symbolic link that leads out of apis/; want a file of at most 262144 bytes")
	})
	t.Run("config", func(t *testing.T) {
		dir := withFine(t, map[string]string{"acme/x": ""})
		symlink(t, filepath.Join(outside, "config.json"), filepath.Join(dir, "acme", "config.json"))
		onlyProblem(t, dir, "error: apis/acme/config.json: a path or symbolic link that leads out of apis/; want a file of at most 262144 bytes")
	})
	t.Run("types", func(t *testing.T) {
		dir := withFine(t, map[string]string{"acme/config.json": plainConfig})
		symlink(t, "../../"+filepath.Base(outside)+"/types.d.ts", filepath.Join(dir, "acme", "types.d.ts"))
		onlyProblem(t, dir, "error: apis/acme/types.d.ts: a path or symbolic link that leads out of apis/; want UTF-8 text of at most 33554432 bytes")
	})
	t.Run("credential", func(t *testing.T) {
		dir := withFine(t, map[string]string{"acme/config.json": `{"description": "x", "domains": ["a.example.com"], "credentials": {"ACME_TOKEN": {"file": "link/key"}}}`})
		symlink(t, outside, filepath.Join(dir, "acme", "link"))
		onlyProblem(t, dir, "error: apis/acme/config.json: credentials.ACME_TOKEN.file: a path or symbolic link that leads out of apis/; want a file with the credential in apis/acme/, or an absolute path")
	})
	t.Run("authority", func(t *testing.T) {
		dir := withFine(t, map[string]string{"acme/config.json": `{"description": "x", "domains": ["a.example.com"], "ca_file": "ca.pem"}`})
		symlink(t, filepath.Join(outside, "ca.pem"), filepath.Join(dir, "acme", "ca.pem"))
		onlyProblem(t, dir, "error: apis/acme/config.json: ca_file: a path or symbolic link that leads out of apis/; want a PEM file in apis/acme/, or an absolute path")
	})
}

// TestMissingFile: a mistake names a missing file, unless its name could be a credential in the wrong field.
func TestMissingFile(t *testing.T) {
	for file, want := range map[string]string{
		"key":                     `"apis/acme/key" does not exist; want a file with the credential there`,
		"../key":                  "no such file; want a file with the credential in apis/acme/",
		"/no/key":                 "no such file; want a file with the credential in apis/acme/, or an absolute path",
		"sk_test_51aSecretHasNum": "no such file; want a file with the credential in apis/acme/, or an absolute path",
	} {
		_, problems := catalog.Load(withFine(t, map[string]string{"acme/config.json": `{"description": "x", "domains": ["a.example.com"], "credentials": {"ACME_TOKEN": {"file": "` + file + `"}}}`}), catalog.Options{})
		if said := listing(problems); !strings.Contains(said, "credentials.ACME_TOKEN.file: "+want) {
			t.Errorf("%s: %s", file, said)
		}
	}
}

// TestSymlinksInside: links that stay inside are how Kubernetes mounts files.
func TestSymlinksInside(t *testing.T) {
	dir := writeTree(t, map[string]string{"acme/..data/config.json": plainConfig})
	symlink(t, "..data/config.json", filepath.Join(dir, "acme", "config.json"))
	if c := clean(t, dir, nil); names(c) != "acme" {
		t.Errorf("loaded %q", names(c))
	}
}

// TestNotFiles: what stands beside the folders is not looked at; a folder in a file's place is a mistake.
func TestNotFiles(t *testing.T) {
	dir := withFine(t, map[string]string{"README.md": "x", "config.schema.json": "{}", "acme/config.json/x": ""})
	symlink(t, "README.md", filepath.Join(dir, "link"))
	onlyProblem(t, dir, "error: apis/acme/config.json: not a regular file; want a file of at most 262144 bytes")
}

func TestTooLarge(t *testing.T) {
	big := strings.Repeat(" ", 256<<10)
	onlyProblem(t, withFine(t, map[string]string{"acme/config.json": plainConfig + big}),
		"error: apis/acme/config.json: too large: more than 262144 bytes; want a file of at most 262144 bytes")
	onlyProblem(t, withFine(t, map[string]string{"acme/config.json": plainConfig, "acme/types.d.ts": strings.Repeat(big, 128) + "x"}),
		"error: apis/acme/types.d.ts: too large: more than 33554432 bytes; want UTF-8 text of at most 33554432 bytes")
	onlyProblem(t, withFine(t, map[string]string{"acme/key": big,
		"acme/config.json": `{"description": "x", "domains": ["a.example.com"], "credentials": {"ACME_TOKEN": {"file": "key"}}}`}),
		"error: apis/acme/config.json: credentials.ACME_TOKEN.file: too large: more than 65536 bytes; want a file with the credential in apis/acme/, or an absolute path")
	exact := plainConfig + strings.Repeat(" ", 256<<10-len(plainConfig))
	clean(t, writeTree(t, map[string]string{"acme/config.json": exact}), nil)
}

// TestEncodings: bytes that are not UTF-8, a byte order mark, UTF-16, and nesting without end.
func TestEncodings(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"description\": \"caf\xe9\"}":                           "line 2, column 22: bytes that are not UTF-8; want the file saved as UTF-8",
		"\xef\xbb\xbf" + plainConfig:                                   "line 1, column 1: a byte order mark; want UTF-8 without one",
		"{\x00\"\x00":                                                  `line 1, column 2: a key that is not in double quotes; want "key": value`,
		"\xff\xfe{\x00":                                                "line 1, column 1: bytes that are not UTF-8; want the file saved as UTF-8",
		`{"x":` + strings.Repeat("[", 20000):                           `line 1, column 10005: values in values; want at most 10000 levels`,
		"{\"description\": \"caf\u00e9\", \"x\": y}":                   `line 1, column 30: something that is not a JSON value; want a string in double quotes, a list, an object, true or false`,
		`{"description": "x", "domains": ["a.example.com"]} ` + "\x00": "line 1, column 52: more text after the object; want only one object",
	} {
		onlyProblem(t, withFine(t, map[string]string{"acme/config.json": text}), "error: apis/acme/config.json: "+want)
	}
}

func TestReadableByOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	dir := withFine(t, map[string]string{
		"acme/config.json":   api("a.example.com", "ACME_TOKEN", "hunter2-hunter2"),
		"public/config.json": plainConfig,
	})
	for _, name := range []string{"acme", "public"} {
		if err := os.Chmod(filepath.Join(dir, name, "config.json"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onlyProblem(t, dir, "warning: apis/acme/config.json: credentials that every user of this machine can read (mode 0644); want mode 0600 (chmod 600)")
}

func certificate(t *testing.T) []byte {
	t.Helper()
	ca, err := testca.New("test")
	testkit.Must(t, err)
	return ca.PEM()
}

func TestCAFile(t *testing.T) {
	ca := bytes.Join([][]byte{[]byte("# ours\n"), certificate(t), certificate(t)}, nil)
	elsewhere := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(elsewhere, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.pem", "sub/ca.pem", "../ca.pem", elsewhere} {
		dir := writeTree(t, map[string]string{"a/config.json": `{"description": "x", "domains": ["a.example.com"], "ca_file": "` + filepath.ToSlash(name) + `"}`})
		if !filepath.IsAbs(name) {
			write(t, dir, "a/"+name, string(ca))
		}
		c := clean(t, dir, nil)
		if !bytes.Equal(c.API("a").CAs, ca) || !x509.NewCertPool().AppendCertsFromPEM(c.API("a").CAs) {
			t.Errorf("%s: not the certificates of the file", name)
		}
	}
}
