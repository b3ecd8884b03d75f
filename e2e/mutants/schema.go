package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// edit puts text at a byte of a source, or in place of the bytes from at to to. $ in the text is the switch of its mutant.
type edit struct {
	at, to int
	text   string
	opens  bool // an expression or a statement begins here
}

// switchFile is a file that each package with switched mutants gets. A mutant is on if the program has its number in
// place of switchOff.
const switchFile, switchOff = "mutants_switch.go", "mutant000000"

const switchText = `package %s

import "cmp"

var mutantOn = %q

func mutantIs(id string) bool { return mutantOn == id }

func mutantPick[T any](id string, on, off T) T {
	if mutantIs(id) {
		return on
	}
	return off
}

func mutantLess[T cmp.Ordered](orEqual bool, a, b T) bool {
	if orEqual {
		return a <= b
	}
	return a < b
}

func mutantMore[T cmp.Ordered](orEqual bool, a, b T) bool {
	if orEqual {
		return a >= b
	}
	return a > b
}
`

// switchName is the text that switches a mutant on.
func switchName(id int) string { return fmt.Sprintf("mutant%06d", id) }

// source is a package for the type checker.
type source struct {
	name     string
	set      *token.FileSet
	importer types.Importer
	texts    map[string]string // by path below the root
	trees    map[string]*ast.File
	types    map[ast.Expr]types.TypeAndValue
}

// loadSource parses and checks the files of a package, and the file with its switch.
func (l *lab) loadSource(pkg string) (*source, error) {
	if s := l.sources[pkg]; s != nil {
		return s, nil
	}
	s := &source{set: l.set, importer: l.importer, texts: map[string]string{}, trees: map[string]*ast.File{},
		types: map[ast.Expr]types.TypeAndValue{}}
	l.sources[pkg] = s
	for _, name := range l.files[pkg] {
		text, err := os.ReadFile(filepath.Join(l.root, pkg, name))
		if err == nil {
			err = s.parseFile(path.Join(pkg, name), string(text))
		}
		if err != nil {
			return nil, err
		}
		s.name = s.trees[path.Join(pkg, name)].Name.Name
	}
	if err := s.parseFile(path.Join(pkg, switchFile), fmt.Sprintf(switchText, s.name, switchOff)); err != nil {
		return nil, err
	}
	return s, s.check(nil, &types.Info{Types: s.types})
}

func (s *source) parseFile(file, text string) error {
	tree, err := parser.ParseFile(s.set, file, text, parser.SkipObjectResolution)
	s.texts[file], s.trees[file] = text, tree
	return err
}

const checkedPath = "." // the import path of each package, while it is checked

// check type-checks the package with other texts for some files.
func (s *source) check(changed map[string]string, info *types.Info) error {
	trees := maps.Clone(s.trees)
	for file, text := range changed {
		var err error
		if trees[file], err = parser.ParseFile(s.set, file, text, parser.SkipObjectResolution); err != nil {
			return err
		}
	}
	conf := types.Config{Importer: s.importer}
	_, err := conf.Check(checkedPath, s.set, slices.Collect(maps.Values(trees)), info)
	return err
}

// compiles reports whether the package compiles with a mutant.
func (s *source) compiles(m mutant) bool {
	return s.check(map[string]string{m.file: s.applyAlone(m)}, nil) == nil
}

func (s *source) applyAlone(m mutant) string {
	text := s.texts[m.file]
	return text[:m.from] + m.new + text[m.to:]
}

// applySwitched returns the files that have some of the mutants, with all of them behind switches.
func (s *source) applySwitched(list []mutant) map[string]string {
	type ordered struct {
		edit
		rank int
	}
	edits := map[string][]ordered{}
	for _, m := range list {
		for _, e := range m.switched {
			e.text = strings.ReplaceAll(e.text, "$", `"`+switchName(m.id)+`"`)
			// At one place, inner parts end before outer ones, then outer parts begin before inner ones.
			rank := -m.order - 1
			if e.opens {
				rank = m.order + 1
			} else if e.to > 0 {
				rank = 0
			}
			edits[m.file] = append(edits[m.file], ordered{e, rank})
		}
	}
	changed := map[string]string{}
	for file, of := range edits {
		slices.SortFunc(of, func(a, b ordered) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
		text, out, at := s.texts[file], strings.Builder{}, 0
		for _, e := range of {
			out.WriteString(text[at:e.at] + e.text)
			at = max(e.at, e.to)
		}
		changed[file] = out.String() + text[at:]
	}
	return changed
}

// switchConstant finds the largest constant expression with a mutant's literal, and makes edits that choose between its
// two values.
func (s *source) switchConstant(m mutant) (edits []edit) {
	tree := s.trees[m.file]
	offset := func(p token.Pos) int { return s.set.Position(p).Offset }
	ast.PreorderStack(tree, nil, func(n ast.Node, stack []ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || offset(lit.Pos()) != m.from {
			return true
		}
		whole := ast.Expr(lit)
		for _, n := range slices.Backward(stack) {
			e, ok := n.(ast.Expr)
			if !ok || s.types[e].Value == nil {
				break
			}
			whole = e
		}
		if s.types[whole].Type == nil {
			return false
		}
		name := types.TypeString(s.types[whole].Type, func(p *types.Package) string {
			for _, i := range tree.Imports {
				if strings.Trim(i.Path.Value, `"`) == p.Path() && i.Name != nil {
					return i.Name.Name
				}
			}
			if p.Path() == checkedPath {
				return ""
			}
			return p.Name()
		})
		from, to, text := offset(whole.Pos()), offset(whole.End()), s.texts[m.file]
		edits = []edit{{at: from, text: "mutantPick[" + name + "]($, " + text[from:m.from] + m.new + text[m.to:to] + ", ", opens: true},
			{at: to, text: ")"}}
		return false
	})
	return edits
}

// addSwitches puts the mutants of a package behind switches, and sets their id to 0 if that does not compile.
func (s *source) addSwitches(list []*mutant) map[string]string {
	var kept []mutant
	var add func(list []*mutant)
	add = func(list []*mutant) {
		more := slices.Clone(kept)
		for _, m := range list {
			more = append(more, *m)
		}
		switch {
		case s.check(s.applySwitched(more), nil) == nil:
			kept = more
		case len(list) == 1:
			list[0].id = 0
		default:
			add(list[:len(list)/2])
			add(list[len(list)/2:])
		}
	}
	add(slices.DeleteFunc(list, func(m *mutant) bool {
		if m.kind == constant {
			m.switched = s.switchConstant(*m)
		}
		if m.switched == nil {
			m.id = 0
		}
		return m.switched == nil
	}))
	return s.applySwitched(kept)
}

// writeSwitches gives each mutant an id, and makes an overlay with all that can be switched.
func (l *lab) writeSwitches(list []*mutant) error {
	byPackage := map[string][]*mutant{}
	for i, m := range list {
		m.id = i + 1
		byPackage[m.pkg] = append(byPackage[m.pkg], m)
	}
	changed := map[string]string{}
	for pkg, of := range byPackage {
		s, err := l.loadSource(pkg)
		if err != nil {
			return err
		}
		maps.Copy(changed, s.addSwitches(of))
		changed[path.Join(pkg, switchFile)] = s.texts[path.Join(pkg, switchFile)]
	}
	return l.writeOverlay("switched", changed)
}

// writeOverlay writes files, and NAME.json that puts them into the tree.
func (l *lab) writeOverlay(name string, changed map[string]string) error {
	replace := map[string]string{}
	for file, text := range changed {
		to := filepath.Join(l.dir, name, file)
		replace[filepath.Join(l.root, file)] = to
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	return errors.Join(err, os.WriteFile(l.overlay(name), list, 0o644))
}

func (l *lab) overlay(name string) string { return filepath.Join(l.dir, name+".json") }
