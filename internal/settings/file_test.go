package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func valueFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFile(t *testing.T) {
	s, err := Parse(env(map[string]string{
		"MCP_AUTH_TOKEN_FILE":    valueFile(t, "0123456789abcdef\n"),
		"REDACTING_STRINGS_FILE": valueFile(t, "Acme Corp\r\nJane Doe, db-7.internal\n\n"),
	}))
	if err != nil || s.MCPAuthToken.Reveal() != "0123456789abcdef" || strings.Join(s.RedactingStrings, "|") != "Acme Corp|Jane Doe|db-7.internal" {
		t.Errorf("%v: %q %q", err, s.MCPAuthToken.Reveal(), s.RedactingStrings)
	}
}

// TestFileRefuses: a setting whose file is not as it should be stops the start. No token is not an answer to a lost
// file.
func TestFileRefuses(t *testing.T) {
	short := valueFile(t, "hunter2\n")
	rows := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"missing", map[string]string{"MCP_AUTH_TOKEN_FILE": "/nonexistent/token"}, "can read, but: no such file"},
		{"a folder", map[string]string{"MCP_AUTH_TOKEN_FILE": t.TempDir()}, "can read, but: is a directory"},
		{"empty", map[string]string{"MCP_AUTH_TOKEN_FILE": valueFile(t, " \n")}, "this one is empty"},
		{"too short", map[string]string{"MCP_AUTH_TOKEN_FILE": short}, "a file that holds at least 16 printable"},
		{"two lines", map[string]string{"MCP_AUTH_TOKEN_FILE": valueFile(t, "hunter2hunter2hunter2\nhunter2")}, "a file that holds at least 16 printable"},
		{"large", map[string]string{"MCP_AUTH_TOKEN_FILE": valueFile(t, strings.Repeat("x", maxFile+1))}, "larger than 65536 bytes"},
		{"both", map[string]string{"MCP_AUTH_TOKEN_FILE": short, "MCP_AUTH_TOKEN": "hunter2hunter2hunter2"}, "one of the two"},
		{"strings too short", map[string]string{"REDACTING_STRINGS_FILE": valueFile(t, "ab")}, "a file that holds strings of at least 4 bytes"},
	}
	for _, r := range rows {
		_, err := Parse(env(r.env))
		if err == nil || !strings.Contains(err.Error(), r.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want %s", r.name, err, r.want)
		}
	}
}

func TestLookup(t *testing.T) {
	path := valueFile(t, "from the file\n")
	rows := []struct {
		env  map[string]string
		want string
		fail bool
	}{
		{nil, "", false},
		{map[string]string{"MCP_AUTH_TOKEN": "itself", "MCP_AUTH_TOKEN_FILE": path}, "itself", false},
		{map[string]string{"MCP_AUTH_TOKEN": " ", "MCP_AUTH_TOKEN_FILE": path}, "from the file", false},
		{map[string]string{"MCP_AUTH_TOKEN_FILE": path + "x"}, "", true},
	}
	for _, r := range rows {
		if got, err := LookupSetting(env(r.env), "MCP_AUTH_TOKEN"); got != r.want || (err != nil) != r.fail {
			t.Errorf("%v: %q, %v", r.env, got, err)
		}
	}
}
