package armed

import (
	"go/format"
	"strings"
	"testing"
)

// TestArm arms each kind of statement.
func TestArm(t *testing.T) {
	const head = "package p\n\nfunc f() (int, bool) {\n"
	for marked, want := range map[string]string{
		"//defence:x\nif a || b {\n}":             `if (a || b) && !disarm.Off("x") {`,
		"//defence:x permits\nif a {\n}":          `if (a) || disarm.Off("x") {`,
		"//defence:x\n//defence:y-z\nif a {\n}":   `if ((a) && !disarm.Off("x")) && !disarm.Off("y-z") {`,
		"// Why.\n//defence:x\nif v := g(); v {}": `if v := g(); (v) && !disarm.Off("x") {`,
		"switch {\n//defence:x\ncase a, b:\n}":    `case (a) && !disarm.Off("x"), (b) && !disarm.Off("x"):`,
		"//defence:x permits\nreturn 1, false":    `return 1, (false) || disarm.Off("x")`,
		"//defence:x instead 2, g(1)\nreturn 1":   `if disarm.Off("x") { return 2, g(1) }; return 1`,
		"//defence:x\nv := a && b":                `v := (a && b) && !disarm.Off("x")`,
		"//defence:x\nv = append(v, 1) // Why.":   `if !disarm.Off("x") { v = append(v, 1) } // Why.`,
		"//defence:x\nv |= 1":                     `if !disarm.Off("x") { v |= 1 }`,
		"//defence:x instead nil\nv = g(\n1)":     "if disarm.Off(\"x\") { v = nil } else { v = g(\n1) }",
		"//defence:x\ng(1)":                       `if !disarm.Off("x") { g(1) }`,
	} {
		text := head + marked + "\n}\n"
		armed, names, err := arm("p.go", []byte(text))
		if err != nil || names[0] != "x" || !strings.Contains(string(armed), want) {
			t.Errorf("%s:\n%v %v\n%s", marked, names, err, armed)
		}
		if _, err := format.Source(armed); err != nil || strings.Count(string(armed), "\n") != strings.Count(text, "\n") {
			t.Errorf("%s: %v, or other lines\n%s", marked, err, armed)
		}
	}
}

// TestArmRefused names each marker that cannot be armed.
func TestArmRefused(t *testing.T) {
	for marked, want := range map[string]string{
		"//defence:x\nfor a {\n}":                     "p.go:4: x: nothing",
		"//defence:x\n\nif a {\n}":                    "p.go:4: x: nothing",
		"//defence:x\nreturn":                         "p.go:4: x: nothing",
		"//defence:x\ndefer g()":                      "p.go:4: x: nothing",
		"//defence:x\nv, ok := g(), true":             "p.go:4: x: nothing",
		"//defence:x permits\ng()":                    "p.go:4: x: nothing",
		"//defence:x instead true\nif a {\n}":         "p.go:4: x: nothing",
		"//defence:x instead 1\nv := 2":               "p.go:4: x: nothing",
		"//defence:x instead 1 +\nreturn 2":           "p.go:4: x: nothing",
		"switch {\n//defence:x\ndefault:\n}":          "p.go:5: x: nothing",
		"//defence:X\nif a {\n}":                      `p.go:4: "//defence:X": want`,
		"//defence:x permit\nif a {\n}":               `p.go:4: "//defence:x permit": want`,
		"//defence: x\nif a {\n}":                     `p.go:4: "//defence: x": want`,
		"select {\n//defence:x\ncase <-c:\n}":         "p.go:5: x: nothing",
		"//defence:x\n{\n}":                           "p.go:4: x: nothing",
		"//defence:x\nif a {\n}\n//defence:y\ngo g()": "p.go:7: y: nothing",
	} {
		_, _, err := arm("p.go", []byte("package p\n\nfunc f() {\n"+marked+"\n}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", marked, err, want)
		}
	}
}
