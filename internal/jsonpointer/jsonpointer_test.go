package jsonpointer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
)

// document has the names of RFC 6901, section 5, and what secret managers answer.
const document = `{"foo": ["bar", "baz"], "": "empty", "a/b": "slash", "m~n": "tilde", " ": "space", "n": 8123456789012345678,
	"SecretString": "{\"user\": \"ann\", \"password\": \"hunter2-\\u00e9\"}", "null": null, "on": true, "o": {}, "-1": "minus"}`

func TestFind(t *testing.T) {
	for pointer, want := range map[string]string{
		"/foo/0": "bar", "/foo/1": "baz", "/": "empty", "/a~1b": "slash", "/m~0n": "tilde", "/ ": "space", "/-1": "minus",
		"/n": "8123456789012345678", "/SecretString/password": "hunter2-é", "": document,
	} {
		if got, err := jsonpointer.Find([]byte(document), pointer); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", pointer, got, err, want)
		}
	}
}

func TestFindNothing(t *testing.T) {
	for pointer, want := range map[string]error{
		"foo": jsonpointer.ErrSyntax, "/~": jsonpointer.ErrSyntax, "/~2": jsonpointer.ErrSyntax,
		"/foo/2": jsonpointer.ErrMissing, "/foo/-1": jsonpointer.ErrMissing, "/foo/01": jsonpointer.ErrMissing,
		"/foo/-": jsonpointer.ErrMissing, "/nothing": jsonpointer.ErrMissing, "/null": jsonpointer.ErrMissing,
		"/foo/0/x": jsonpointer.ErrMissing, "/n/x": jsonpointer.ErrMissing,
		"/foo": jsonpointer.ErrNotText, "/o": jsonpointer.ErrNotText, "/on": jsonpointer.ErrNotText,
	} {
		if got, err := jsonpointer.Find([]byte(document), pointer); got != "" || !errors.Is(err, want) {
			t.Errorf("%q: %q, %v; want %v", pointer, got, err, want)
		}
	}
}

// TestErrorsHideTheDocument: what is not JSON, or cut off, may be the secret itself.
func TestErrorsHideTheDocument(t *testing.T) {
	for _, text := range []string{"hunter2", `{"a": "hunter2"`, `{"a": hunter2}`, `{"a": "hunter2"} x`, ""} {
		got, err := jsonpointer.Find([]byte(text), "/a")
		if got != "" || !errors.Is(err, jsonpointer.ErrNotJSON) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
