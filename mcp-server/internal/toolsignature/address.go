package toolsignature

import (
	"slices"
	"strings"
)

// marks are texts in descriptions that try to steer a model: tags, tokens of chat formats, and files that no
// description needs to name. words are sequences in such descriptions, each word within a few words of the previous
// one. Both come from published attacks. They are not a boundary; the sandbox, the pins and the user's configuration
// are. They keep the usual attacks out of a model's sight.
var (
	marks = []string{
		"<important", "</important", "<system", "</system", "<instruction", "<assistant", "<admin", "<secret>", "<hidden",
		"</tool", "<tool_", "<function_call", "<|", "<!--", "[inst]", "[/inst]", "[system]", "<<sys", ".ssh/", "id_rsa",
		"id_ed25519", "/etc/passwd", "mcp.json", ".aws/credentials", "system prompt", "conversation history", "jailbreak",
	}
	words = [][][]string{
		{{"ignore", "disregard", "forget", "override", "bypass"},
			{"instruction", "instructions", "prompt", "prompts", "rules", "guidelines", "policies", "restrictions"}},
		{{"not", "don't", "never", "without"},
			{"tell", "telling", "mention", "mentioning", "inform", "informing", "notify", "notifying", "reveal",
				"ask", "asking"},
			{"user", "human", "anyone"}},
		{{"before", "after", "when", "whenever"}, {"using", "calling", "use", "call", "invoking"},
			{"any", "every", "all", "other", "another"}, {"tool", "tools"}},
		{{"always"}, {"call", "use", "invoke", "run", "prefer"}, {"first", "instead"}},
	}
	roles = []string{"system:", "assistant:", "developer:", "human:"}
)

const (
	// nearby is the largest distance between two words of a sequence, in words.
	nearby = 6
	// maxRole bounds a role at the start of a line, in characters.
	maxRole = 20
)

// IsAddressedToReader reports whether a text most likely tries to steer the model that reads it. It searches all of the
// visible text, and ignores invisible characters.
func IsAddressedToReader(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.ToLower(CleanLine(line, maxRole))
		if slices.ContainsFunc(roles, func(r string) bool { return strings.HasPrefix(line, r) }) {
			return true
		}
	}
	text = strings.ToLower(CleanLine(text, MaxText))
	if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(text, m) }) {
		return true
	}
	list := strings.FieldsFunc(text, func(r rune) bool { return r != '\'' && (r < 'a' || r > 'z') })
	return slices.ContainsFunc(words, func(steps [][]string) bool { return hasSteps(list, steps) })
}

// hasSteps reports whether a word of each step follows a word of the previous step, within nearby.
func hasSteps(list []string, steps [][]string) bool {
	for i, word := range list {
		if !slices.Contains(steps[0], word) {
			continue
		}
		at, found := i, true
		for _, step := range steps[1:] {
			// The words need not be adjacent: attacks put others between them.
			rest := list[at+1 : min(len(list), at+1+nearby)]
			n := slices.IndexFunc(rest, func(w string) bool { return slices.Contains(step, w) })
			if n < 0 {
				found = false
				break
			}
			at += 1 + n
		}
		if found {
			return true
		}
	}
	return false
}
