package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// The kinds of mutants.
const (
	negateCond     = "negate-cond"
	skipErrorCheck = "skip-error-check"
	andOr          = "and-or"
	eqNeq          = "eq-neq"
	boundary       = "boundary"
	constant       = "const"
	dropReturn     = "drop-return"
	dropBranch     = "drop-branch"
	dropStmt       = "drop-stmt"
)

// mutant is a change of a file.
type mutant struct {
	pkg, file string // the folder and the path of the file, below the root
	kind      string
	line      int
	text      string // the line as it is, without the space around it
	nth       int    // counts the mutants of the file with this kind and text
	from, to  int    // the bytes that new replaces
	new       string
	order     int    // counts the mutants of the file; one of an outer expression comes first
	switched  []edit // do the same behind a switch; a constant gets them from source.switchConstant
	id        int    // the number of the switch; 0 if the mutant is built alone
}

// opposite has the operators that are replaced.
var opposite = map[token.Token]struct {
	op   token.Token
	kind string
}{
	token.LAND: {token.LOR, andOr}, token.LOR: {token.LAND, andOr}, token.EQL: {token.NEQ, eqNeq}, token.NEQ: {token.EQL, eqNeq},
	token.LSS: {token.LEQ, boundary}, token.LEQ: {token.LSS, boundary}, token.GTR: {token.GEQ, boundary}, token.GEQ: {token.GTR, boundary},
}

// boundaryCalls has the beginnings of calls that compare like an operator, or like its opposite if the switch is on.
var boundaryCalls = map[token.Token]string{
	token.LSS: "mutantLess(mutantIs($), ", token.LEQ: "mutantLess(!mutantIs($), ",
	token.GTR: "mutantMore(mutantIs($), ", token.GEQ: "mutantMore(!mutantIs($), ",
}

// findMutants lists the mutants of a file. Some do not compile. Two kinds of numbers have no mutant, because no caller may
// depend on them: a result beside an error or false, and a count of time units. One unit more hardly changes a time.
func findMutants(file string, source []byte) (list []mutant, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	count := map[string]int{} // by kind and text
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	add := func(kind string, from, to token.Pos, text string, switched ...edit) {
		at := set.Position(from)
		line := strings.TrimSpace(lines[at.Line-1])
		count[kind+line]++
		list = append(list, mutant{file: file, kind: kind, line: at.Line, text: line, nth: count[kind+line],
			from: at.Offset, to: offset(to), new: text, order: len(list), switched: switched})
	}
	wrap := func(n ast.Node, before, after string) []edit {
		return []edit{{at: offset(n.Pos()), text: before, opens: true}, {at: offset(n.End()), text: after}}
	}
	part := func(n ast.Node) string { return string(source[offset(n.Pos()):offset(n.End())]) }
	drop := func(kind string, n ast.Node, stack []ast.Node) {
		switched := wrap(n, "if !mutantIs($) { ", " }")
		switch stack[len(stack)-1].(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause, *ast.LabeledStmt:
		default: // before or after a condition, where Go wants a simple statement
			switched = wrap(n, "func() { if !mutantIs($) { ", " } }()")
		}
		add(kind, n.Pos(), n.End(), "", switched...)
	}
	checks, harmless := map[ast.Node]bool{}, map[ast.Node]bool{}
	ast.PreorderStack(tree, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.IMPORT
		case *ast.IfStmt:
			if isErrorCheck(n.Cond) {
				checks[n.Cond] = true
				add(skipErrorCheck, n.Cond.Pos(), n.Cond.End(), part(n.Cond)+" && false",
					wrap(n.Cond, "((", ") && !mutantIs($))")...)
			} else {
				add(negateCond, n.Cond.Pos(), n.Cond.End(), "!("+part(n.Cond)+")",
					wrap(n.Cond, "((", ") != mutantIs($))")...)
			}
		case *ast.BinaryExpr:
			if isTimeUnit(n.X) || isTimeUnit(n.Y) {
				harmless[n.X], harmless[n.Y] = true, true
			}
			o, ok := opposite[n.Op]
			if !ok || checks[n] {
				break
			}
			end := n.OpPos + token.Pos(len(n.Op.String()))
			var switched []edit
			switch o.kind {
			case andOr: // a || b is !(!a && !b), so it evaluates b as often as it should
				switched = slices.Concat(wrap(n.X, "((((", ") != mutantIs($))"), wrap(n.Y, "((", ") != mutantIs($))) != mutantIs($))"))
			case eqNeq:
				switched = wrap(n, "((", ") != mutantIs($))")
			case boundary:
				switched = append(wrap(n, boundaryCalls[n.Op], ")"), edit{at: offset(n.OpPos), to: offset(end), text: ","})
			}
			add(o.kind, n.OpPos, end, o.op.String(), switched...)
		case *ast.UnaryExpr:
			harmless[n.X] = harmless[n]
		case *ast.BasicLit:
			if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil && n.Kind == token.INT && !harmless[n] {
				add(constant, n.Pos(), n.End(), strconv.FormatInt(i+1, 10))
			}
		case *ast.ReturnStmt:
			if last := len(n.Results) - 1; last > 0 && isFailure(n.Results[last]) {
				for _, r := range n.Results {
					harmless[r] = true
				}
			}
			drop(dropReturn, n, stack)
		case *ast.BranchStmt:
			drop(dropBranch, n, stack)
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
			drop(dropStmt, n, stack)
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				drop(dropStmt, n, stack)
			}
		}
		return true
	})
	return list, nil
}

// isErrorCheck reports whether a condition is err != nil.
func isErrorCheck(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ {
		return false
	}
	left, ok := b.X.(*ast.Ident)
	right, ok2 := b.Y.(*ast.Ident)
	return ok && ok2 && strings.HasPrefix(strings.ToLower(left.Name), "err") && right.Name == "nil"
}

// isFailure reports whether an expression is false or has the name of an error.
func isFailure(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
	}
	if s, ok := e.(*ast.SelectorExpr); ok {
		pkg, ok := s.X.(*ast.Ident)
		return ok && pkg.Name == "errors" || s.Sel.Name == "Errorf" || strings.HasPrefix(s.Sel.Name, "Err")
	}
	name, ok := e.(*ast.Ident)
	return ok && (name.Name == "false" || strings.HasPrefix(name.Name, "err"))
}

// isTimeUnit reports whether an expression is a constant of package time, such as time.Second.
func isTimeUnit(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "time"
}
