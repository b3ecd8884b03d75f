package attack

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

//go:embed testdata
var testdata embed.FS

// python is the language of the attacks in .py files.
const python = "python"

// prelude is code that every attack in a language can use: show prints an answer as one line of JSON, raw sends bytes.
func prelude(language string) string {
	name := "testdata/prelude.ts"
	if language == python {
		name = "testdata/prelude.py"
	}
	text, err := testdata.ReadFile(name)
	if err != nil {
		panic(err)
	}
	if language == python {
		return string(text)
	}
	return strings.ReplaceAll("\n"+string(text), "\nexport ", "\n")
}

// fromFiles are the attacks of testdata/<section>, by section and file (see testdata/README.md). A file that
// cannot be read panics, as a wrong pattern does in regexp.MustCompile: it is part of the program.
func fromFiles() []Attack {
	names, err := fs.Glob(testdata, "testdata/*/*.[tp][sy]")
	if err != nil {
		panic(err)
	}
	var all []Attack
	for _, name := range names {
		text, err := testdata.ReadFile(name)
		if err != nil {
			panic(err)
		}
		list, err := readFile(path.Base(path.Dir(name)), path.Ext(name), string(text))
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		all = append(all, list...)
	}
	return all
}

// head is a comment with fields, before an attack's code. Without a name it applies to all attacks of a file.
type head struct {
	fields map[string]string
	each   []each
}

// each is one "each": an attack for every row, whose cells replace {column}.
type each struct {
	columns []string
	rows    [][]string
}

// fields are those that a head may have; a note is for readers.
var fields = []string{
	"name", "expected", "judge", "apis", "seconds", "chain", "only", "no pod",
	"alone", "weighed", "forks", "yolo", "unredacted", "root", "note", "each",
}

// mistyped matches the beginning of a head whose first field is misspelt: no code has such a comment.
var mistyped = regexp.MustCompile(`^// [a-z]+: `)

// A head is a comment of the language, from the beginning of a line.
var comment, pythonComment = regexp.MustCompile(`(?m)^//`), regexp.MustCompile(`(?m)^#`)

// readFile reads one file with an extension: what precedes the first name is part of every attack in the file.
func readFile(section, ext, text string) ([]Attack, error) {
	if ext == ".py" {
		list, err := readFile(section, ".ts", pythonComment.ReplaceAllString(text, "//"))
		for i, a := range list {
			list[i].Language, list[i].Name = python, "Python: "+a.Name
			list[i].Code = comment.ReplaceAllString(a.Code, "#")
		}
		return list, err
	}
	var all []Attack
	common, current := head{}, head{}
	var shared, code []string
	finish := func() error {
		if current.fields == nil {
			shared, code = code, nil
			return nil
		}
		list, err := family(section, common, current, strings.Join(append(slices.Clone(shared), code...), "\n"))
		code = nil
		all = append(all, list...)
		return err
	}
	lines := strings.Split(text, "\n")
	for at := 0; at < len(lines); at++ {
		if field(lines[at]) == "" {
			if current.fields != nil && mistyped.MatchString(lines[at]) {
				return nil, fmt.Errorf("line %d: no field: %s", at+1, lines[at])
			}
			code = append(code, lines[at])
			continue
		}
		h, n, err := readHead(lines[at:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", at+1, err)
		}
		at += n - 1
		if h.fields["name"] == "" {
			if current.fields != nil || common.fields != nil {
				return nil, fmt.Errorf("line %d: a head without a name that is not the first", at+1)
			}
			common = h
			continue
		}
		if err := finish(); err != nil {
			return nil, err
		}
		current = h
	}
	if current.fields == nil {
		return nil, fmt.Errorf("no attack is named")
	}
	return all, finish()
}

// field names the field that a line of a head holds, or nothing.
func field(line string) string {
	name, _, ok := strings.Cut(strings.TrimPrefix(line, "// "), ":")
	if !ok || !strings.HasPrefix(line, "// ") || !slices.Contains(fields, name) {
		return ""
	}
	return name
}

// readHead reads the comment at the beginning of lines, and says how long it is.
func readHead(lines []string) (head, int, error) {
	h := head{fields: map[string]string{}}
	for n, line := range lines {
		if !strings.HasPrefix(line, "//") {
			return h, n, nil
		}
		if row, ok := strings.CutPrefix(line, "//   "); ok && len(h.each) > 0 {
			last := &h.each[len(h.each)-1]
			cells := split(row)
			if len(cells) != len(last.columns) {
				return h, n, fmt.Errorf("%d cells for %d columns: %s", len(cells), len(last.columns), row)
			}
			last.rows = append(last.rows, cells)
			continue
		}
		name := field(line)
		_, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "" || h.fields[name] != "" || value == "":
			return h, n, fmt.Errorf("no field, a field twice, or one without a value: %s", line)
		case name == "each":
			h.each = append(h.each, newEach(value))
		default:
			h.fields[name] = value
		}
	}
	return h, len(lines), nil
}

// newEach reads "column = value value" or "column | column", whose rows follow.
func newEach(text string) each {
	if name, values, ok := strings.Cut(text, " = "); ok {
		t := each{columns: []string{name}}
		for _, v := range strings.Fields(values) {
			t.rows = append(t.rows, []string{v})
		}
		return t
	}
	return each{columns: split(text)}
}

func split(row string) []string {
	cells := strings.Split(row+" ", " | ")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// family is an attack, or one for every combination of its tables' rows, the last table's changing first.
func family(section string, common, own head, code string) ([]Attack, error) {
	columns := []string{}
	all := [][]string{nil} // each a list of column, cell, ... for a Replacer
	for _, t := range append(slices.Clone(common.each), own.each...) {
		columns = append(columns, t.columns...)
		var next [][]string
		for _, before := range all {
			for _, row := range t.rows {
				cells := slices.Clone(before)
				for i, cell := range row {
					cells = append(cells, "{"+t.columns[i]+"}", cell)
				}
				next = append(next, cells)
			}
		}
		all = next
	}
	for _, c := range columns {
		switch used := strings.Join(append(slices.Collect(maps.Values(own.fields)), code), "\n"); {
		case !strings.Contains(used, "{"+c+"}"):
			return nil, fmt.Errorf("%s: the column %s is not used", own.fields["name"], c)
		case strings.Contains(code, "${"+c+"}"):
			return nil, fmt.Errorf("%s: a column and an expression in a template are both named %s", own.fields["name"], c)
		}
	}
	var list []Attack
	for _, cells := range all {
		a, err := build(section, common, own, strings.NewReplacer(cells...))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", own.fields["name"], err)
		}
		a.Code = strings.TrimSpace(strings.NewReplacer(cells...).Replace(code))
		list = append(list, a)
	}
	return list, nil
}

// build makes an attack from the fields of two heads: own takes precedence over common.
func build(section string, common, own head, cells *strings.Replacer) (Attack, error) {
	get := func(name string) string {
		return cells.Replace(or(own.fields[name], common.fields[name]))
	}
	a := Attack{
		Section: section, Name: strings.TrimSpace(get("name")), Expected: get("expected"),
		APIs: strings.Fields(get("apis")), Chain: get("chain"), NoPod: get("no pod"),
	}
	for _, mode := range strings.Fields(get("only")) {
		a.Only = append(a.Only, world.Mode(mode))
	}
	if a.Expected == "" || strings.Contains(a.Name, "{") {
		return a, fmt.Errorf("nothing is expected, or a column of the name is unknown")
	}
	var err error
	a.byAnswers = byAnswers.MatchString(get("judge"))
	if a.Judge, err = judgeOf(get("judge")); err != nil {
		return a, err
	}
	if s := get("seconds"); s != "" {
		if a.Seconds, err = strconv.Atoi(s); err != nil {
			return a, err
		}
	}
	for name, flag := range map[string]*bool{
		"alone": &a.Alone, "weighed": &a.Weighed, "forks": &a.Forks, "yolo": &a.YOLO, "unredacted": &a.Unredacted, "root": &a.Root,
	} {
		if s := get(name); s != "" && s != "no" {
			*flag = true
			if s != "yes" {
				return a, fmt.Errorf("%s is yes or no, not %s", name, s)
			}
		}
	}
	return a, nil
}
