package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// project has the parts that are measured: each Go file, script and page of the documentation, except tests.
type project struct {
	names                        []name
	comments, messages, sentence []text
	subjects                     []text          // of the commits that origin/HEAD does not have
	bodyLines, commentLines      int             // of functions
	known                        map[string]bool // identifiers, words of strings, and "package x"
}

type (
	name struct {
		pkg, text string
		isType    bool
	}
	// text is a comment, a message or a sentence, and its place.
	text struct{ place, words string }
	// figure is a measured value with the places that count for it.
	figure struct {
		name, unit string
		value      float64
		isFloor    bool // more is better
		places     []string
	}
)

// notMessage matches SQL and the value of a Content-Security-Policy, which no person reads.
var notMessage = regexp.MustCompile(`DO NOTHING|(?:default|connect)-src '|trusted-types 'none'`)

// readProject reads the files that Git knows, so that build output does not count.
func readProject(root string) (*project, error) {
	cmd := exec.Command("git", "-c", "safe.directory=*", "-C", root, "ls-files", "*.go", "*.md", "*.js", "*.ts", "*.py", "*.tmpl", "*help.txt") //nolint:noctx // ends by itself
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files: %w", err)
	}
	p := &project{known: map[string]bool{}}
	for file := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(file, "e2e/") || strings.Contains(file, "testdata/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // removed and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}
		switch filepath.Ext(file) {
		case ".md":
			p.addPage(file, string(source))
		case ".go":
			err = p.addSource(file, source)
		case ".tmpl", ".txt":
			p.addTexts(file, string(source))
		default:
			if filepath.Base(file) != "preact.js" {
				p.addScript(file, string(source))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	// A clone without a remote has no list. Merges have subjects of their branches.
	cmd = exec.Command("git", "-c", "safe.directory=*", "-C", root, "log", "--no-merges", "--format=%h %s", "origin/HEAD..HEAD") //nolint:noctx // ends by itself
	list, _ = cmd.Output()
	for line := range strings.Lines(string(list)) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		p.subjects = append(p.subjects, text{hash, subject})
	}
	return p, nil
}

// The patterns of scripts. A comment begins a line or follows a space, because URLs have slashes too.
var (
	scriptComment = regexp.MustCompile(`(?m)(?:^|\s)(?://|#) (.*)$|(?s)/\*\*?(.*?)\*/|"""(.*?)"""`)
	scriptString  = regexp.MustCompile("\"((?:[^\"\\\\\n]|\\\\.)*)\"|`([^`]*)`|'((?:[^'\\\\\n]|\\\\.)*)'")
	startsWord    = regexp.MustCompile(`^[A-Za-z]`)
)

// addScript adds the comments and messages of a script in JavaScript, TypeScript or Python.
func (p *project) addScript(file, source string) {
	for _, m := range scriptComment.FindAllStringSubmatch(source, -1) {
		p.comments = append(p.comments, text{file, strings.Join(m[1:], "")})
	}
	source = scriptComment.ReplaceAllString(source, "")
	for _, m := range scriptString.FindAllStringSubmatch(source, -1) {
		if s := strings.Join(m[1:], ""); startsWord.MatchString(s) && len(strings.Fields(s)) >= 3 {
			p.messages = append(p.messages, text{file, s})
		}
	}
	for _, word := range anyWord.FindAllString(source, -1) {
		p.known[word] = true
	}
}

// addTexts adds the messages of a file that only has texts: its paragraphs of at least three words.
func (p *project) addTexts(file, source string) {
	line := 1
	for paragraph := range strings.SplitSeq(source, "\n\n") {
		if len(strings.Fields(paragraph)) >= 3 {
			p.messages = append(p.messages, text{file + ":" + strconv.Itoa(line), paragraph})
		}
		line += strings.Count(paragraph, "\n") + 2
	}
}

// addSource adds the names, comments and messages of a Go file. A message is a string of at least three words.
func (p *project) addSource(file string, source []byte) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return err
	}
	place := func(pos token.Pos) string { return file + ":" + strconv.Itoa(set.Position(pos).Line) }
	lines := func(n ast.Node) int { return set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1 }
	p.known["package "+f.Name.Name] = true
	for _, g := range f.Comments {
		p.comments = append(p.comments, text{place(g.Pos()), g.Text()})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Ident:
			p.known[n.Name] = true
		case *ast.TypeSpec:
			p.names = append(p.names, name{filepath.Dir(file), n.Name.Name, true})
		case *ast.FuncDecl:
			p.names = append(p.names, name{filepath.Dir(file), n.Name.Name, false})
			if n.Body == nil {
				return true
			}
			p.bodyLines += lines(n.Body)
			for _, g := range f.Comments {
				if g.Pos() > n.Body.Pos() && g.End() < n.Body.End() {
					p.commentLines += lines(g)
				}
			}
		case *ast.BasicLit:
			for _, word := range anyWord.FindAllString(n.Value, -1) {
				p.known[word] = true
			}
			s, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && len(strings.Fields(s)) >= 3 && !notMessage.MatchString(s) {
				p.messages = append(p.messages, text{place(n.Pos()), s})
			}
		}
		return true
	})
	return nil
}

var (
	notProse  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$|^\\s*\\|[^\n]*$|^#{1,6} [^\n]*$")
	pageLink  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	codeSpan  = regexp.MustCompile("`+[^`]*`+")
	listItem  = regexp.MustCompile(`(?m)^\s*(?:[-*+]|\d+\.)\s+`)
	blankLine = regexp.MustCompile(`\n\s*\n`)
	fullStop  = regexp.MustCompile(`([.!?]["')\]]?)\s+`)
)

// addPage adds the sentences of a page, without its code, tables and headings.
func (p *project) addPage(file, source string) {
	source = pageLink.ReplaceAllString(notProse.ReplaceAllString(source, "\n\n"), "$1")
	source = listItem.ReplaceAllString(codeSpan.ReplaceAllString(source, "CODE"), "\n\n")
	for _, paragraph := range blankLine.Split(source, -1) {
		for s := range strings.SplitSeq(fullStop.ReplaceAllString(paragraph, "$1\n\n"), "\n\n") {
			if len(strings.Fields(s)) >= 4 {
				p.sentence = append(p.sentence, text{file, s})
			}
		}
	}
}

// The patterns are those of sentences that read as translated.
var (
	whatClause = regexp.MustCompile(`(?i)\b(?:what|whoever|whatever)\b`)
	nounClause = regexp.MustCompile(`(?:^|[.;:] |, )(?:and |but )?(?:[Ww]hat|[Ww]hoever|[Ww]hatever|Who|who) [a-z]+`)
	nobody     = regexp.MustCompile(`(?i)\b(?:nobody|none|nothing|no one)\b`)
	stock      = regexp.MustCompile(`(?i)\b(?:(?:is|are|was|were) (?:not )?told|anew|of its own|of their own|in its place|says so|that is what)\b`)
	dangling   = regexp.MustCompile(`(?i)\bof (?:it|them|those|these|that)\b`)
	thatWord   = regexp.MustCompile(`(?i)\bthat\b`)
)

// goodSubject matches the subject of a commit: the place, then an imperative in lower case.
var goodSubject = regexp.MustCompile(`^[\w./, -]+: [a-z].*[^.]$`)

// maxSubject is how many characters a subject has at most.
const maxSubject = 72

// badSubjects finds the subjects of the change that are too long, have another form, or read as translated.
func (p *project) badSubjects() figure {
	f := figure{name: "commit-subjects", unit: "subjects against CONTRIBUTING.md"}
	for _, s := range p.subjects {
		if len(s.words) > maxSubject || !goodSubject.MatchString(s.words) || nounClause.MatchString(s.words) || stock.MatchString(s.words) {
			f.places = append(f.places, s.String())
		}
	}
	f.value = float64(len(f.places))
	return f
}

// anyWord matches a word, and codeName a name of Go: mixedCase, or package.Name.
var (
	anyWord  = regexp.MustCompile(`\w+`)
	codeName = regexp.MustCompile(`\b[a-z]+[A-Z][a-z]\w*\b|\b[a-z]+(?:\.[A-Z]\w*)+\b`)
)

// notGo are names in comments that other programs have.
var notGo = []string{"httpHeaders", "isAdmin", "listRepoIssues", "localStorage", "provisionEmail", "toolResult"}

// staleNames finds the names in comments that no code has: those of a function or type that has another name now.
func (p *project) staleNames() figure {
	f := figure{name: "stale-names", unit: "names in comments that no code has"}
	for _, c := range p.comments {
		for _, name := range codeName.FindAllString(c.words, -1) {
			words := strings.Split(name, ".")
			if len(words) > 1 && !p.known["package "+words[0]] || slices.Contains(notGo, name) {
				continue // of another project
			}
			words[0] = words[len(words)-1] // the package is known
			if slices.ContainsFunc(words, func(s string) bool { return !p.known[s] }) {
				f.places = append(f.places, c.place+": "+name)
			}
		}
	}
	f.value = float64(len(f.places))
	return f
}

// maxWords is how many words a sentence of the documentation should have at most.
const maxWords = 30

func (p *project) measure() []figure {
	single, packages := figure{name: "single-word-names", unit: "% of functions and types"}, map[string]map[string]bool{}
	for _, n := range p.names {
		if countWords(n.text) == 1 {
			single.places = append(single.places, n.pkg+": "+n.text)
		}
		if !n.isType {
			if packages[n.text] == nil {
				packages[n.text] = map[string]bool{}
			}
			packages[n.text][n.pkg] = true
		}
	}
	single.value = percent(len(single.places), len(p.names))
	shared := figure{name: "shared-names", unit: "% of functions' names in 3 or more packages"}
	for text, in := range packages {
		if len(in) >= 3 {
			shared.places = append(shared.places, fmt.Sprintf("%d packages: %s", len(in), text))
		}
	}
	shared.value = percent(len(shared.places), len(packages))
	long, commas := figure{name: "doc-long-sentences", unit: "% of sentences over 30 words"}, 0
	for _, s := range p.sentence {
		commas += strings.Count(s.words, ",")
		if len(strings.Fields(s.words)) > maxWords {
			long.places = append(long.places, s.String())
		}
	}
	long.value = percent(len(long.places), len(p.sentence))
	return []figure{
		single, shared,
		{name: "comments-inside", unit: "lines in 100 lines of functions", isFloor: true, value: percent(p.commentLines, p.bodyLines)},
		countIn("comment-what", p.comments, whatClause), countIn("comment-stock", p.comments, stock),
		countIn("comment-dangling", p.comments, dangling), p.staleNames(),
		countIn("message-clause", p.messages, nounClause), countIn("message-nobody", p.messages, nobody),
		countIn("message-stock", p.messages, stock),
		countIn("doc-clause", p.sentence, nounClause), countIn("doc-nobody", p.sentence, nobody),
		countIn("doc-stock", p.sentence, stock), countIn("doc-that", p.sentence, thatWord),
		{name: "doc-commas", unit: "commas in a sentence", value: float64(commas) / float64(max(1, len(p.sentence)))},
		long, p.badSubjects(),
	}
}

// countIn counts how often a pattern occurs in 1,000 words.
func countIn(name string, texts []text, pattern *regexp.Regexp) figure {
	f, words := figure{name: name, unit: "in 1,000 words"}, 0
	for _, t := range texts {
		flat := strings.Join(strings.Fields(t.words), " ")
		words += len(strings.Fields(flat))
		for range pattern.FindAllString(flat, -1) {
			f.places = append(f.places, t.String())
		}
	}
	f.value = 1000 * float64(len(f.places)) / float64(max(1, words))
	return f
}

func (t text) String() string { return t.place + ": " + strings.Join(strings.Fields(t.words), " ") }

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(1, whole)) }

// countWords counts the words of a Go name: 1 in serve and HTTP, 2 in serveHTTP.
func countWords(name string) int {
	count, letters := 0, []rune(name)
	for i, c := range letters {
		isStart := i == 0 || unicode.IsUpper(c) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if isStart && c != '_' {
			count++
		}
	}
	return count
}
