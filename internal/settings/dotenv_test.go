package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func dotenvFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFile(t *testing.T) {
	rows := map[string]map[string]string{
		"":                                       {},
		"# only\n\n   # comments\n\t\n":          {},
		"A=1":                                    {"A": "1"},
		"A=1\r\nB=2\r\n":                         {"A": "1", "B": "2"},
		"\ufeffA=1\n":                            {"A": "1"},
		"A=\nB=  \n":                             {"A": "", "B": ""},
		"  export A = x y \n":                    {"A": "x y"},
		"A=a#b # comment\nB=#x\nC=x\t# y":        {"A": "a#b", "B": "", "C": "x"},
		"A='a # $B ${C} \\n' # c":                {"A": "a # $B ${C} \\n"},
		`A="a # b\n\t\"\\\$x\q" # c`:             {"A": "a # b\n\t\"\\$x\\q"},
		"A=\"one\ntwo\"\nB='x\ny'\nC=3":          {"A": "one\ntwo", "B": "x\ny", "C": "3"},
		"A=x=y=z":                                {"A": "x=y=z"},
		"A=1\nA=2":                               {"A": "2"},
		"A=x\nB=${A}y$A\nC=\"${A}\"\nD='${A}'":   {"A": "x", "B": "xyx", "C": "x", "D": "${A}"},
		"A=${NO}|${NO:-d}|${NO-d}|$NO|":          {"A": "|d|d||"},
		"E=\nA=${E:-d}|${E-d}":                   {"E": "", "A": "d|"},
		"A=$$x$ $1":                              {"A": "$x$ $1"},
		"A=\\n":                                  {"A": "\\n"},
		"A=it's\nB=5\"":                          {"A": "it's", "B": "5\""},
		"REDACTING_STRINGS=Acme Corp, Jane Doe ": {"REDACTING_STRINGS": "Acme Corp, Jane Doe"},
	}
	for text, want := range rows {
		got, err := ReadFile(dotenvFile(t, text))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q gives %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestReadFileRefuses(t *testing.T) {
	rows := map[string]string{
		"A=1\nhunter2\nB=2":        `:2: a line without "=": want NAME=value`,
		"1A=hunter2":               `:1: not a variable's name before "=": want letters, digits and _, not starting with a digit`,
		"A-B=hunter2":              `:1: not a variable's name before "=": want letters, digits and _, not starting with a digit`,
		"=hunter2":                 `:1: not a variable's name before "=": want letters, digits and _, not starting with a digit`,
		"A=\"hunter2\nB=2":         `:1: A: a value without its closing "`,
		"\nA='hunter2":             `:2: A: a value without its closing '`,
		"A=\"hunter2\\":            `:1: A: a value without its closing "`,
		"A=\"hunter2\" more":       `:1: A: text after the closing quote`,
		"A=${B":                    `:1: A: a value with ${ and no }: write $$ for a dollar, or use single quotes`,
		"A=${B:?hunter2}":          `:1: A: an expansion other than ${NAME}, ${NAME-default} and ${NAME:-default}`,
		"A=\"${B\"":                `:1: A: a value with ${ and no }: write $$ for a dollar, or use single quotes`,
		"A=\"\\n${B:?hunter2}\"":   `:1: A: an expansion other than ${NAME}, ${NAME-default} and ${NAME:-default}`,
		"A=${}":                    `:1: A: an expansion other than ${NAME}, ${NAME-default} and ${NAME:-default}`,
		"A=\"a\nb\"\nx\nC='\n'\ny": `:3: a line without "=": want NAME=value` + "\nFILE" + `:6: a line without "=": want NAME=value`,
	}
	for text, want := range rows {
		path := dotenvFile(t, text)
		_, err := ReadFile(path)
		if err == nil || err.Error() != path+strings.ReplaceAll(want, "FILE", path) {
			t.Errorf("%q:\ngot  %v\nwant FILE%s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows a value: %v", text, err)
		}
	}
}

func TestReadFileBounds(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), ".env")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadFile(t.TempDir()); err == nil {
		t.Error("a folder is read as a file")
	}
	if _, err := ReadFile(dotenvFile(t, "A="+strings.Repeat("x", maxDotenv))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}

func FuzzReadFile(f *testing.F) {
	for _, s := range []string{"A=1", "A='x\ny'\n", `A="\n${B:-$C}"`, "export A=${", "A=\"\\", "A=$$", "# x\nA=b # c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars, err := ReadFile(dotenvFile(t, text))
		for name, value := range vars {
			if !isValidName(name) {
				t.Fatalf("%q is a variable", name)
			}
			if err != nil || strings.ContainsAny(value, "'\r") {
				continue
			}
			// What was read, written in single quotes, reads as the same.
			again, err := ReadFile(dotenvFile(t, name+"='"+value+"'"))
			if err != nil || again[name] != value {
				t.Fatalf("%s=%q reads back as %q, %v", name, value, again[name], err)
			}
		}
	})
}
