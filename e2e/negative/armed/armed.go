// Package armed makes the defences of the product switchable, in a build for the negative controls.
//
// Product code has no switch. A comment marks the statement that is, or is part of, a defence:
//
//	//defence:NAME            above if, case, return or := with a condition: without the defence the condition is false
//	//defence:NAME permits    the same, but without the defence it is true
//	//defence:NAME            above a call, or an assignment with = or an operator: without it the statement is left out
//	//defence:NAME instead X  above return, or an assignment with =: without the defence X is returned or assigned
//
// Of several results, return's condition is the last. A statement may have several markers. Write makes an overlay for
// go build and go test in which these statements ask package disarm.
package armed

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	prefix = "//defence:"
	module = "github.com/codeforge-mcp/codeforge/internal/disarm"
)

// marker is a whole comment.
var marker = regexp.MustCompile(`^//defence:([a-z]+(?:-[a-z]+)*)(?: (permits)| instead (.+))?$`)

// Find returns the names of all defences in the product below root, sorted. It is an error if a marker cannot be armed.
func Find(root string) ([]string, error) {
	_, names, err := armAll(root)
	return names, err
}

// Write writes an overlay for the sources below root into a folder, and returns the path of its list of files.
func Write(root, dir string) (string, error) {
	files, _, err := armAll(root)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{
		filepath.Join(root, "internal/disarm/disarm.go"): filepath.Join(root, "e2e/negative/armed/disarm/disarm.go"),
	}
	for file, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", ".")+".txt") // ./... would find a package of .go files
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o644)
}

// armAll arms every product file with a marker. The files are named by their paths below root.
func armAll(root string) (files map[string][]byte, names []string, err error) {
	files = map[string][]byte{}
	found := map[string]bool{}
	var wrong []error
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file == "e2e" || file == "bin" || d.Name() == "testdata" || d.Name() == "node_modules" || file != "." && d.Name()[0] == '.' {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), prefix) {
			return err
		}
		armed, in, err := arm(filepath.ToSlash(file), text)
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, name := range in {
			found[name] = true
		}
		files[file] = armed
		return nil
	})
	return files, slices.Sorted(maps.Keys(found)), errors.Join(append(wrong, err)...)
}

// edit is an insertion.
type edit struct {
	at   int
	text string
}

// arm returns a file whose marked statements ask package disarm, on the same lines, and the names of its defences.
func arm(file string, text []byte) (armed []byte, names []string, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, text, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	line := func(p token.Pos) int { return set.Position(p).Line }
	statements := map[int]ast.Stmt{} // the outermost that begins on a line
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok && statements[line(s.Pos())] == nil {
			statements[line(s.Pos())] = s
		}
		return true
	})
	edits := []edit{{at(tree.Name.End()), `; import "` + module + `"`}}
	var wrong []error
	for _, group := range tree.Comments {
		below := statements[line(group.End())+1]
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//defence") {
				continue
			}
			m := marker.FindStringSubmatch(c.Text)
			if m == nil {
				wrong = append(wrong, fmt.Errorf("%s:%d: %q: want //defence:NAME, perhaps with permits, or instead and an expression",
					file, line(c.Pos()), c.Text))
				continue
			}
			names = append(names, m[1])
			more, ok := armStatement(below, text, at, m[1], m[2] != "", m[3])
			if !ok {
				wrong = append(wrong, fmt.Errorf("%s:%d: %s: nothing that this marker can arm is below it", file, line(c.Pos()), m[1]))
			}
			edits = append(edits, more...)
		}
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	end := 0
	for _, e := range edits {
		armed = append(append(armed, text[end:e.at]...), e.text...)
		end = e.at
	}
	return append(armed, text[end:]...), names, errors.Join(wrong...)
}

// armStatement returns the insertions that arm a statement.
func armStatement(s ast.Stmt, text []byte, at func(token.Pos) int, name string, permits bool, instead string) ([]edit, bool) {
	off := fmt.Sprintf("disarm.Off(%q)", name)
	conditions := func(list ...ast.Expr) (edits []edit, ok bool) {
		suffix := ") && !" + off
		if permits {
			suffix = ") || " + off
		}
		for _, e := range list {
			edits = append(edits, edit{at(e.Pos()), "("}, edit{at(e.End()), suffix})
		}
		return edits, len(list) > 0 && instead == ""
	}
	leaveOut := func() ([]edit, bool) {
		return []edit{{at(s.Pos()), "if !" + off + " { "}, {at(s.End()), " }"}}, !permits && instead == ""
	}
	if _, err := parser.ParseExpr("f(" + instead + ")"); err != nil {
		return nil, false
	}
	switch s := s.(type) {
	case *ast.IfStmt:
		return conditions(s.Cond)
	case *ast.CaseClause:
		return conditions(s.List...)
	case *ast.ReturnStmt:
		if instead != "" {
			return []edit{{at(s.Pos()), "if " + off + " { return " + instead + " }; "}}, !permits
		}
		return conditions(s.Results[max(0, len(s.Results)-1):]...)
	case *ast.AssignStmt:
		switch {
		case s.Tok == token.ASSIGN && instead != "":
			left := string(text[at(s.Pos()):at(s.TokPos)])
			return []edit{{at(s.Pos()), "if " + off + " { " + left + "= " + instead + " } else { "}, {at(s.End()), " }"}}, !permits
		case s.Tok == token.DEFINE && len(s.Rhs) == 1:
			return conditions(s.Rhs...)
		case s.Tok != token.DEFINE:
			return leaveOut()
		}
	case *ast.ExprStmt:
		return leaveOut()
	}
	return nil, false
}
