package main

import (
	"strings"
	"testing"
)

// TestMeasure checks each figure on a small project.
func TestMeasure(t *testing.T) {
	p := &project{known: map[string]bool{}}
	source := "package x\n\n// What it reads is kept. It is told of it.\nfunc serve() {\n\t// x.Box largeBox serveAll io.Reader\n\tx := \"nobody has it\"\n\t_ = x\n}\n\ntype largeBox struct{}\n"
	if err := p.addSource("x/x.go", []byte(source)); err != nil {
		t.Fatal(err)
	}
	p.addPage("a.md", "# What nobody reads\n\nWhoever reads it, and that, is one.\nA second sentence has five words.\n\n```\nnobody nobody nobody nobody\n```\n\n| nobody in tables counts |\n\n- "+strings.Repeat("word ", 31)+"\n")
	p.addScript("x.js", "// A comment.\nfail(\"a short word\"); // \"not a message\"\n")
	p.subjects = []text{{"1", "proxy: tell what it reads"}, {"2", "proxy: say, what it reads is kept"}, {"3", "Fix it"}, {"4", "cli: " + strings.Repeat("x", 70)}}
	want := map[string]float64{
		"single-word-names": 50, "shared-names": 0, "comments-inside": 20, "comment-what": 1000 / 19.0, "comment-stock": 1000 / 19.0,
		"comment-dangling": 1000 / 19.0, "message-clause": 0, "message-nobody": 1000 / 6.0, "message-stock": 0, "doc-clause": 1000 / 44.0,
		"doc-nobody": 0, "doc-stock": 0, "doc-that": 1000 / 44.0, "doc-commas": 2 / 3.0, "doc-long-sentences": 100 / 3.0,
		"stale-names": 2, "commit-subjects": 3,
	}
	for _, f := range p.measure() {
		if f.value-want[f.name] > 0.01 || want[f.name]-f.value > 0.01 {
			t.Errorf("%s is %v, want %v", f.name, f.value, want[f.name])
		}
		delete(want, f.name)
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
}

// TestAddTexts checks the messages of help.txt and of the guide.
func TestAddTexts(t *testing.T) {
	p := &project{}
	p.addTexts("help.txt", "=== up\n\nShort text\n\nNobody has\nit\n")
	if len(p.messages) != 1 || p.messages[0].String() != "help.txt:5: Nobody has it" {
		t.Errorf("%v", p.messages)
	}
}

func TestCountWords(t *testing.T) {
	for name, want := range map[string]int{"serve": 1, "HTTP": 1, "serveHTTP": 2, "HTTPServer": 2, "sendOrRefuse": 3, "isA": 2, "x_y": 1} {
		if got := countWords(name); got != want {
			t.Errorf("%s has %d words, want %d", name, got, want)
		}
	}
}

// TestCompare checks that a figure above its ceiling fails, and one below its floor.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		figure figure
		fails  bool
	}{
		{figure{name: "a", value: 1}, false}, {figure{name: "a", value: 1.1}, true}, {figure{name: "b", value: 1}, true},
		{figure{name: "a", value: 0.9, isFloor: true}, true}, {figure{name: "a", value: 2, isFloor: true}, false},
	} {
		var out strings.Builder
		if err := compare([]figure{c.figure}, map[string]float64{"a": 1}, &out); (err != nil) != c.fails {
			t.Errorf("%+v: %v\n%s", c.figure, err, out.String())
		}
	}
}
