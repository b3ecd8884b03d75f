package controlapi

import "testing"

func TestCall(t *testing.T) {
	for _, c := range []struct {
		url  string
		apis []string
		want string
	}{
		{"https://mcp.codeforge.internal/github/create_issue", []string{"github"}, "github.create_issue"},
		{"https://mcp.codeforge.internal/git_hub/a%2Fb", []string{"git-hub"}, "git-hub.a/b"},
		{"https://mcp.codeforge.internal/nope/x", nil, "nope.x"},
		{"https://mcp.codeforge.internal/github", []string{"github"}, "github.$tools"},
		{"https://mcp.codeforge.internal/$stash/set", nil, "$stash.set"},
		{"https://mcp.codeforge.internal.evil.test/github/x", nil, ""},
		{"https://api.github.com/repos", []string{"github"}, ""},
	} {
		if got := (Exchange{URL: c.url, APIs: c.apis}).Call(); got != c.want {
			t.Errorf("%s: %q, want %q", c.url, got, c.want)
		}
	}
}
