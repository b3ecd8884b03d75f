package proxyapi

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
		if got := (Exchange{URL: c.url, APIs: c.apis}).CalledTool(); got != c.want {
			t.Errorf("%s: %q, want %q", c.url, got, c.want)
		}
	}
}

// What calls caused stands below the first call of that tool that has nothing yet.
func TestAddCaused(t *testing.T) {
	call := func(tool string) Exchange {
		return Exchange{URL: "https://mcp.codeforge.internal/git/" + tool, APIs: []string{"git"}}
	}
	r := Receipt{Exchanges: []Exchange{{URL: "https://git.example.com/"}, call("log"), call("blame"), call("log")}, Omitted: 1}
	sent := func(url string) []Exchange { return []Exchange{{URL: url}} }
	r.AddCaused([]CausedRequests{
		{Cause: Cause{Call: "git.log", Among: 1}, Exchanges: sent("1")}, {Cause: Cause{Call: "git.log", Among: 2}, Exchanges: sent("2"), Omitted: 3},
		{Cause: Cause{Call: "git.log", Among: 1}, Exchanges: sent("3")}, {Cause: Cause{Call: "other.log", Among: 1}, Exchanges: sent("4")},
	})
	x := r.Exchanges
	if x[0].Caused != nil || x[1].Caused[0].URL != "1" || x[2].Caused != nil || x[3].Caused[0].URL != "2" || x[3].Among != 2 || r.Omitted != 4 {
		t.Errorf("%+v", r)
	}
}
