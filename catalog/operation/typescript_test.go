package operation

import "testing"

// Promise: documents-are-data
func TestCheckTypes(t *testing.T) {
	for _, good := range []string{
		"", "string", "{ a: string; \"b-c\"?: number[]; [key: string]: unknown }", `"a" | "b\"c" | "\u202e" | "*/"`, "A & (B | null)",
		"[number, ...string[]]", "Record<string, unknown>", "-1 | 2.5 | 1e-7 | 1E+5", "{ import: string }", "Map<string, { a?: 1 }>[]",
	} {
		if err := checkTypes(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"string; evil()", "{ a: string", "a }", `"a`, "`${evil()}`", "a /* b */", "a // b", "typeof import(\"/etc/passwd\")", "import (\"x\")",
		"a = b", "'a'", "{ a: string } ; declare global { x: 1 }", "a: b", "(a]", "a > b", "() => void", "import", "#x", "@dec", "a\\u0041", "é", "a!",
	} {
		if err := checkTypes("string", bad); err == nil {
			t.Errorf("%s is a type", bad)
		}
	}
}
