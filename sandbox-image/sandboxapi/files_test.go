package sandboxapi

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestFileNames: a name is a name on each system, in a URL, in a page and in a shell.
// Promise: files-are-data
func TestFileNames(t *testing.T) {
	for _, name := range []string{
		"chart.png", "report 2026 (final).csv", "a", "grüezi.txt", "漢字.md", "x_y-z+1,2@3=4!~^[]{}.tar.gz", strings.Repeat("x", maxFileName),
	} {
		if !IsFileName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{
		"", ".", "..", ".hidden", "../up", "a/b", "/etc/passwd", `a\b`, `C:\x`, "C:x", "a\x00b", "a\nb", "a\tb", "a\x1b[31m", "a\u202egnp.exe",
		"a\u200bb", "a\u00a0b", "a\ufeff", "\xff", "a\xc3", "<img src=x onerror=alert(1)>", "a<b", `a"b`, "a'b", "a`b", "a&lt;", "a|b", "a?b", "a#b",
		"a*b", "a%2fb", "$(id)", "a;b", "-rf", " a", "a ", "a.", strings.Repeat("x", maxFileName+1), strings.Repeat("漢", 50),
	} {
		if IsFileName(name) {
			t.Errorf("%q is a name", name)
		}
	}
}

// TestFileEvents: a file arrives as it was sent, and the reader refuses bad names and sizes.
// Promise: files-are-data
func TestFileEvents(t *testing.T) {
	var wire bytes.Buffer
	for _, f := range []File{{Name: "a.bin", Data: []byte("\x00\n{\xff")}, {Name: "empty"}, {Name: "shown-1", Shown: true, Data: []byte("x")}} {
		if err := writeEvent(&wire, Event{File: &f}); err != nil {
			t.Fatal(err)
		}
		got, err := nextEvent(bufio.NewReader(&wire))
		if err != nil || got.File == nil || got.File.Name != f.Name || got.File.Shown != f.Shown || !bytes.Equal(got.File.Data, f.Data) {
			t.Errorf("%+v: got %+v, %v", f, got.File, err)
		}
	}
	for _, line := range []string{
		`{"file":{"name":"../x"},"file_bytes":1}`, `{"file":{"name":"a"},"file_bytes":-1}`, `{"file":{"name":"a"},"file_bytes":2}`,
		fmt.Sprintf(`{"file":{"name":"a"},"file_bytes":%d}`, MaxOut+1),
	} {
		if e, err := nextEvent(bufio.NewReader(strings.NewReader(line + "\nx"))); err == nil {
			t.Errorf("%s: got %+v", line, e)
		}
	}
}

// TestInputLimits: names count as bytes, and a limit itself is allowed.
func TestInputLimits(t *testing.T) {
	many := func(n int) map[string][]byte {
		files := map[string][]byte{}
		for i := range n {
			files[fmt.Sprintf("%03d", i)] = nil
		}
		return files
	}
	for name, c := range map[string]struct {
		in   *Input
		want string
	}{
		"none":           {nil, ""},
		"the most bytes": {&Input{Stdin: make([]byte, MaxInput-4), Files: map[string][]byte{"abc": {1}}}, ""},
		"a byte more":    {&Input{Stdin: make([]byte, MaxInput-4), Files: map[string][]byte{"abc": {1, 2}}}, "16777217 bytes of standard input and 1 files: want at most 16 MiB and 100 files"},
		"the most files": {&Input{Files: many(MaxInputFiles)}, ""},
		"a file more":    {&Input{Files: many(MaxInputFiles + 1)}, "303 bytes of standard input and 101 files: want at most 16 MiB and 100 files"},
		"a path":         {&Input{Files: map[string][]byte{"a/b": nil}}, `"a/b" is not a name for a file`},
	} {
		got := ""
		if err := c.in.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
