package readings

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// npm are the packages that Node's peer reads with.
var npm = []string{"busboy@1.6.0", "formidable@3.5.4", "multer@2.5.0", "body-parser@2.4.0", "qs@6.17.1", "json5@2.2.3"}

// Modules is the folder of the npm packages, below .tools. They are fetched when they are not there; where they cannot
// be, the peer that needs them will be missing.
func Modules(t testing.TB) string {
	t.Helper()
	root := repository(t)
	dir := filepath.Join(root, ".tools", "readings")
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "make", "npm.sh"), append([]string{dir}, npm...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "node_modules")
}

// repository is the root of the source tree.
func repository(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "make", "npm.sh")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no make/npm.sh above the test")
		}
		dir = filepath.Dir(dir)
	}
}
