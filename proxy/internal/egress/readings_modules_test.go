package egress_test

import (
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// npm are the packages of Node's peer.
var npm = []string{"busboy@1.6.0", "formidable@3.5.4", "multer@2.5.0", "body-parser@2.4.0", "qs@6.17.1", "json5@2.2.3"}

// Modules returns the folder of the npm packages, below .tools. It installs missing packages. If that fails, the peer
// that needs them will be missing.
func Modules(t testing.TB) string {
	t.Helper()
	root := testkit.RootDir(t)
	dir := filepath.Join(root, ".tools", "readings")
	if _, err := testkit.InstallNPM(t.Context(), root, dir, npm...); err != nil {
		t.Log(err)
	}
	return filepath.Join(dir, "node_modules")
}
