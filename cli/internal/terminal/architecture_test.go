package terminal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneDoor: the command line prints only through Streams. Nothing else in it names standard output or error, writes
// to a descriptor or to the terminal device, or prints by itself; only what starts another CodeForge takes a Stream's
// file.
// Promise: terminal-shows
func TestOneDoor(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel("../..", path)
		ast.Inspect(file, func(n ast.Node) bool {
			if why := bypasses(n); why != "" && !allowed(filepath.ToSlash(rel), why) {
				t.Errorf("%s: %s", set.Position(n.Pos()), why)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files were read", files)
	}
}

// bypasses says how a node could print without a Stream.
func bypasses(n ast.Node) string {
	switch x := n.(type) {
	case *ast.SelectorExpr:
		pkg, _ := x.X.(*ast.Ident)
		name := x.Sel.Name
		switch {
		case name == "File" && pkg == nil: // e.Stderr.File
			if s, ok := x.X.(*ast.SelectorExpr); ok && (s.Sel.Name == "Stdout" || s.Sel.Name == "Stderr") {
				return "File"
			}
		case pkg == nil:
		case pkg.Name == "os" && (name == "Stdout" || name == "Stderr"):
			return "os." + name
		case pkg.Name == "fmt" && strings.HasPrefix(name, "Print"), pkg.Name == "log" && (strings.HasPrefix(name, "Print") || strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic")),
			pkg.Name == "syscall" && (name == "Write" || name == "Stdout" || name == "Stderr"), pkg.Name == "unix" && name == "Write":
			return pkg.Name + "." + name
		}
	case *ast.CallExpr:
		if f, ok := x.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") && f.Obj == nil {
			return f.Name
		}
	case *ast.BasicLit:
		if strings.Contains(x.Value, "/dev/tty") || strings.Contains(x.Value, "/dev/std") {
			return x.Value
		}
	}
	return ""
}

// allowed lists the exceptions: the files that open the streams, that pass a stream's file to another CodeForge, and
// that name the terminal to read from it.
func allowed(file, why string) bool {
	switch file {
	case "cmd/codeforge/main.go":
		return why == "os.Stdout" || why == "os.Stderr"
	case "internal/cli/up.go":
		return why == "File"
	case "internal/cli/platform_unix.go":
		return why == `"/dev/tty"`
	}
	return false
}
