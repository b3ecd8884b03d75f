package broker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// packageDir makes an installed package: distributions with their version, and files.
func packageDir(t *testing.T, distributions map[string]string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, "python", name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // one is a program
	}
	for name, version := range distributions {
		info := name + "-" + version + ".dist-info/"
		write(info+"METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: "+version+"\n")
		write(info+"top_level.txt", name+"\n")
	}
	for name, text := range files {
		write(name, text)
	}
	return dir
}

// TestStarter starts packages of PyPI with real Python, as a server slot does.
func TestStarter(t *testing.T) {
	testkit.FindPython(t)
	const scripts = "my_server-1.0.dist-info/entry_points.txt"
	dist := map[string]string{"my_server": "1.0", "mcp": "2.3.0", "pydantic": "2.14.1", "other": "3.1"}
	main := func(code string) map[string]string {
		return map[string]string{scripts: "[console_scripts]\nmy-server = server:main\nsecond = server:second\n", "server.py": code, "mcp.py": "", "other.py": ""}
	}
	const fine = "import sys\ndef main(): print('main', sys.argv)\ndef second(): return 3\n"
	const advice = `"constraints": ["`
	for _, row := range []struct {
		name, program string
		files         map[string]string
		want          string
		not           string
		code          int
	}{
		{"usual", "", main(fine), "main ['my-server', '-v']", advice, 0},
		{"named", "/second", main(fine), "", advice, 3},
		{"missing", "/third", main(fine), "no program 'third'. It has: my-server, second", advice, 1},
		{"only", "", map[string]string{scripts: "[console_scripts]\nx = server:main\n", "server.py": fine}, "main ['x', '-v']", advice, 0},
		{"in another language", "", map[string]string{"bin/my-server": "#!/bin/sh\necho a program $1\n"}, "a program -v", advice, 0},
		{"standard library first", "", main("import json\ndef main(): print(json.__file__)\n"), "/json/__init__.py", "/python/json", 0},
		{"import of a name", "", main("from mcp import gone\n"), advice + `mcp<2", "pydantic<2.12"]`, "", 1},
		{"import of a module", "", main("import mcp.gone\n"), advice + `mcp<2", "pydantic<2.12"]`, "", 1},
		{"attribute", "", main("import other\ndef main(): other.gone\n"), advice + `mcp<2", "pydantic<2.12"]`, "", 1},
		{"argument", "", main("def main(): int(gone=1)\n"), advice + `mcp<2", "pydantic<2.12"]`, "", 1},
		{"a reason of the package", "", main("raise ImportError('no git here')\n"), "no git here", advice, 1},
		{"another error", "", main("def main(): raise ValueError('no key')\n"), "no key", advice, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.files["json.py"] = "raise SystemExit('shadowed')\n"
			s := &mcpserver.Settings{Package: "pypi:my-server[extra]@1.0" + row.program, Args: []string{"-v"}}
			argv := pythonCommand(s, packageDir(t, dist, row.files))
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != row.code || !strings.Contains(string(out), row.want) ||
				row.not != "" && strings.Contains(string(out), row.not) {
				t.Errorf("exit code %d, want %d with %q and not %q:\n%s", code, row.code, row.want, row.not, out)
			}
		})
	}
	old := map[string]string{"my_server": "1.0", "mcp": "1.30.0"}
	argv := pythonCommand(&mcpserver.Settings{Package: "pypi:my-server@1.0"}, packageDir(t, old, main("from mcp import gone\n")))
	if out, _ := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); strings.Contains(string(out), advice) {
		t.Errorf("it advises the version that is there: %s", out)
	}
}
