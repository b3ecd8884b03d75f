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
