package operation_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

func sample() (operation.Head, []operation.Line) {
	return operation.Head{
			Format: operation.Format, Title: "Shop", Version: "1", Server: "https://api.shop.example/v1",
			Auth:       []operation.Auth{{Token: "SHOP_AUTH_TOKEN", Place: "header:Authorization", Value: "Bearer SHOP_AUTH_TOKEN"}},
			Operations: 2, Types: 1,
		}, []operation.Line{
			{Method: "GET", Path: "/items/{id}", ID: "getItem", Summary: "Get an item <b>", Tags: []string{"items"}, Answer: "Item"},
			{Method: "POST", Path: "/?Action=Create", Body: "{ name: string }", Deprecated: true, Server: "https://up.shop.example"},
			{Type: "Item", TS: "{ id: string; tags?: Item[] }"},
		}
}

func write(t *testing.T, h operation.Head, lines []operation.Line) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := operation.NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(r io.Reader) (operation.Head, []operation.Line, error) {
	d, err := operation.NewReader(r)
	if err != nil {
		return operation.Head{}, nil, err
	}
	var lines []operation.Line
	for {
		l, err := d.Next()
		if errors.Is(err, io.EOF) {
			return d.Head(), lines, nil
		}
		if err != nil {
			return d.Head(), lines, err
		}
		lines = append(lines, l)
	}
}

// TestRoundTrip: what was written is read again, however the bytes arrive.
func TestRoundTrip(t *testing.T) {
	head, lines := sample()
	text := write(t, head, lines)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(text), "byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
		"with the end": iotest.DataErrReader(bytes.NewReader(text)),
	} {
		gotHead, gotLines, err := read(r)
		if err != nil || !reflect.DeepEqual(gotHead, head) || !reflect.DeepEqual(gotLines, lines) {
			t.Errorf("%s: %+v %+v %v", name, gotHead, gotLines, err)
		}
	}
}

// TestRefused: what this format does not allow is refused with the line and the reason, and reading stops there.
// Promise: documents-are-data
func TestRefused(t *testing.T) {
	const head = `{"format":1,"server":"https://a.example","operations":1,"types":0}` + "\n"
	const op = `{"m":"GET","p":"/a"}` + "\n"
	for _, row := range []struct{ text, says string }{
		{"", "line 0: an empty file"},
		{"\n", "line 1: not a line"},
		{"[]\n", "line 1: not a line"},
		{`{"format":2,"server":"https://a.example","operations":0,"types":0}` + "\n", "format 2; want 1"},
		{strings.Replace(head, "https://a.example", "https://a.example/", 1), "the server"},
		{strings.Replace(head, "https://a.example", "file:///etc", 1), "the server"},
		{strings.Replace(head, "https://a.example", "https://u:p@a.example", 1), "the server"},
		{strings.Replace(head, `"operations":1`, `"operations":-1`, 1), "impossible"},
		{strings.Replace(head, `"format"`, `"title":"a\u202eb","format"`, 1), "not shown as it is"},
		{strings.TrimSuffix(head, "\n"), "cut off"},
		{head, "0 operations and 0 types; the head says 1 and 0"},
		{head + op + op, "line 3: more lines than the head says"},
		{head + `{"type":"A","ts":"string"}` + "\n", "line 2: more lines"},
		{head + strings.TrimSuffix(op, "\n"), "line 2: no line feed"},
		{head + `{"m":"GET","p":"/a"} {}` + "\n", "text after the object"},
		{head + `{"m":"GET","p":"/a","x":1}` + "\n", "unknown field"},
		{head + `{"m":"get","p":"/a"}` + "\n", `the method "get"`},
		{head + `{"m":"TRACE","p":"/a"}` + "\n", `the method "TRACE"`},
		{head + `{"m":"GET","p":"a"}` + "\n", "the path"},
		{head + `{"m":"GET","p":"/{a"}` + "\n", "each {"},
		{head + `{"m":"GET","p":"/a}"}` + "\n", "each {"},
		{head + `{"m":"GET","p":"/{}"}` + "\n", "each {"},
		{head + `{"m":"GET","p":"/{+}"}` + "\n", "each {"},
		{head + `{"m":"GET","p":"/{a{b}}"}` + "\n", "each {"},
		{head + `{"m":"GET","p":"/a b"}` + "\n", "printable ASCII"},
		{head + `{"m":"GET","p":"/a#b"}` + "\n", "printable ASCII"},
		{head + `{"m":"GET","p":"/a","s":"a\nb"}` + "\n", "summary with a character"},
		{head + `{"m":"GET","p":"/a","s":"` + strings.Repeat("a", 301) + `"}` + "\n", "summary of 301 bytes"},
		{head + `{"m":"GET","p":"/a","t":["\u001b[31m"]}` + "\n", "tag with a character"},
		{head + `{"m":"GET","p":"/a","t":["` + strings.Repeat(`a","`, 10) + `a"]}` + "\n", "11 tags"},
		{head + `{"m":"GET","p":"/a","srv":"x"}` + "\n", "the server"},
		{head + `{"m":"GET","p":"/a","ts":"string"}` + "\n", "an operation"},
		{head + `{"m":"GET","p":"/a","type":"A","ts":"string"}` + "\n", "or both"},
		{head + `{}` + "\n", "neither"},
		{head + `{"type":"A b","ts":"string"}` + "\n", "identifier"},
		{head + `{"type":"A"}` + "\n", "a type without a definition"},
		{head + `{"type":"A","ts":"string","s":"x"}` + "\n", "fields of an operation"},
		{head + `{"m":"GET","p":"/a","a":"` + strings.Repeat("a", operation.MaxLine) + `"}` + "\n", "longer than"},
		{head + "{\"m\":\"GET\",\"p\":\"/a\",\"s\":\"\xff\"}\n", "character"},
	} {
		_, _, err := read(strings.NewReader(row.text))
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%.120q: %v; want %q", row.text, err, row.says)
		}
	}
}

// TestErrorStays: after an error there are no more lines.
func TestErrorStays(t *testing.T) {
	r, err := operation.NewReader(strings.NewReader(`{"format":1,"server":"https://a.example","operations":1,"types":0}` + "\nx\n" + `{"m":"GET","p":"/a"}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, first := r.Next()
	if _, second := r.Next(); first == nil || !errors.Is(second, first) {
		t.Errorf("%v, then %v", first, second)
	}
}

// TestWriterRefuses: a Writer writes nothing that a Reader refuses, and nothing more after an error.
func TestWriterRefuses(t *testing.T) {
	head, lines := sample()
	var b bytes.Buffer
	if _, err := operation.NewWriter(&b, operation.Head{Server: "x"}); err == nil || b.Len() > 0 {
		t.Errorf("a bad head: %v, %q", err, b.String())
	}
	w, err := operation.NewWriter(&b, head)
	if err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	if err := w.Write(operation.Line{Method: "GET", Path: "/a", Summary: "a\x1b[0m"}); err == nil || !strings.Contains(err.Error(), "GET /a: summary") {
		t.Error(err)
	}
	if err := w.Write(lines[0]); err == nil || b.Len() > size {
		t.Errorf("after an error: %v, %d bytes", err, b.Len())
	}
	if err := w.Close(); err == nil {
		t.Error("an incomplete file is complete")
	}
}

// FuzzReader: any bytes give lines that can be written again, or an error.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"format":1,"server":"https://a.example","operations":1,"types":1}` + "\n" + `{"m":"GET","p":"/a/{b+}"}` + "\n" + `{"type":"A","ts":"string"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, lines, err := read(bytes.NewReader(data))
		if err != nil {
			return
		}
		again := write(t, h, lines)
		h2, lines2, err := read(bytes.NewReader(again))
		if err != nil || !reflect.DeepEqual(h, h2) || !reflect.DeepEqual(lines, lines2) {
			t.Errorf("%q became %q, %v", data, again, err)
		}
	})
}
