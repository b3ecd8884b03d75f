package patch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/patch"
)

// block writes one block.
func block(search, replace string) string {
	return "<<<<<<< SEARCH\n" + search + "=======\n" + replace + ">>>>>>> REPLACE\n"
}

const text = "one\ntwo\nthree\ntwo and a half\n"

func apply(t *testing.T, text, blocks string) (string, error) {
	t.Helper()
	parsed, err := patch.ParseBlocks(t.Context(), blocks)
	if err != nil {
		return text, err
	}
	return patch.ApplyBlocks(t.Context(), text, parsed, 1<<20)
}

func TestApply(t *testing.T) {
	for _, c := range []struct{ name, text, patch, want string }{
		{"one line", text, block("three\n", "3\n"), "one\ntwo\n3\ntwo and a half\n"},
		{"whole lines only, so this is unique", text, block("two\n", "2\n"), "one\n2\nthree\ntwo and a half\n"},
		{"several lines", text, block("one\ntwo\n", "1\n2\n"), "1\n2\nthree\ntwo and a half\n"},
		{"deletes", text, block("two\nthree\n", ""), "one\ntwo and a half\n"},
		{"in order, each on what the last made", text, block("one\n", "uno\n") + block("uno\n", "eins\n"), "eins\ntwo\nthree\ntwo and a half\n"},
		{"blank lines between", text, "\n\n" + block("one\n", "1\n") + "\n  \n" + block("three\n", "3\n") + "\n", "1\ntwo\n3\ntwo and a half\n"},
		{"no line feed at the end", "a\nb", block("b\n", "c\n"), "a\nc\n"},
		{"a new file", "", block("", "new\n"), "new\n"},
		{"CRLF in the patch", text, strings.ReplaceAll(block("one\n", "1\n"), "\n", "\r\n"), "1\ntwo\nthree\ntwo and a half\n"},
		{"CRLF in the text stays", "a\r\nb\r\n", block("a\n", "x\ny\n"), "x\r\ny\r\nb\r\n"},
		{"spaces behind the marks", text, "<<<<<<< SEARCH \none\n======= \n1\n>>>>>>> REPLACE\t\n", "1\ntwo\nthree\ntwo and a half\n"},
		{"a mark within a longer line is text", "x ======= y\n", block("x ======= y\n", "z\n"), "z\n"},
		{"an equals line in the replacement", text, block("one\n", "a\n=======\nb\n"), "a\n=======\nb\ntwo\nthree\ntwo and a half\n"},
		{"no last line feed in the patch", text, strings.TrimSuffix(block("one\n", "1\n"), "\n"), "1\ntwo\nthree\ntwo and a half\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := apply(t, c.text, c.patch)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	for _, c := range []struct {
		name, text, patch string
		block             int
		problem, nearest  string
	}{
		{"nothing", text, "", 0, "no block", ""},
		{"prose", text, "please change one to 1", 0, "misplaced", ""},
		{"prose before a block", text, "Here:\n" + block("one\n", "1\n"), 0, "misplaced", ""},
		{"no end", text, "<<<<<<< SEARCH\none\n=======\n1\n", 1, "does not end", ""},
		{"no middle", text, "<<<<<<< SEARCH\none\n>>>>>>> REPLACE\n", 0, "misplaced", ""},
		{"a start within a start", text, "<<<<<<< SEARCH\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n", 0, "misplaced", ""},
		{"does not occur", text, block("zwei\n", "2\n"), 1, "does not occur", ""},
		{"part of a line", text, block("tw\n", "2\n"), 1, "does not occur", ""},
		{"end of a line", text, block("o\n", "2\n"), 1, "does not occur", ""},
		{"other white space", "if (a) {\n  b();\n}\n", block("if (a) {\n\tb();\n}\n", ""), 1, "does not occur", "if (a) {\n  b();\n}\n"},
		{"a word is other", "const limit = 10;\nconst most = 3;\n", block("const limit = 11;\n", ""), 1, "does not occur", "const limit = 10;\n"},
		{"twice", "a\nb\na\n", block("a\n", "c\n"), 1, "occurs more than once", ""},
		{"overlapping twice", "a\na\na\n", block("a\na\n", "c\n"), 1, "occurs more than once", ""},
		{"empty search", text, block("", "x\n"), 1, "SEARCH is empty", ""},
		{"the second block", text, block("one\n", "1\n") + block("one\n", "2\n"), 2, "does not occur", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := apply(t, c.text, c.patch)
			var e *patch.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %q, %v, want a *patch.Error", got, err)
			}
			if e.Block != c.block || !strings.Contains(e.Problem, c.problem) || e.Nearest != c.nearest {
				t.Errorf("got block %d, %q, nearest %q", e.Block, e.Problem, e.Nearest)
			}
			if got != c.text {
				t.Errorf("the text was changed to %q", got)
			}
		})
	}
}

// lines makes of any text what a Block holds: whole lines, without carriage returns.
func lines(s string) string {
	s = strings.ReplaceAll(s, "\r", "")
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// FuzzApply: a patch changes the text or gives a *patch.Error, and never more than its blocks say.
func FuzzApply(f *testing.F) {
	f.Add(text, "one\n", "1\n")
	f.Add("", "", "x\n")
	f.Add("a\r\nb", "b\n", "")
	f.Fuzz(func(t *testing.T, text, search, replace string) {
		search, replace = lines(search), lines(replace)
		out, err := patch.ApplyBlocks(t.Context(), text, []patch.Block{{Search: search, Replace: replace}}, 1<<20)
		var e *patch.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("an error of another type: %v", err)
		}
		if err != nil && out != text {
			t.Fatal("an error, and the text was changed")
		}
		if err == nil && !strings.Contains(strings.ReplaceAll(out, "\r\n", "\n"), replace) {
			t.Fatalf("the replacement is not in the result")
		}
		_, _ = patch.ParseBlocks(t.Context(), text)
	})
}
