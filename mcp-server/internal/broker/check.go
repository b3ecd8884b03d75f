package broker

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
)

// checkPrompt reports a mistake in the arguments of $prompt, or nil.
func (c *callRequest) checkPrompt(body []byte) *callFailure {
	var p bridgewire.Prompt
	isPrompt := false
	switch {
	case len(body) > maxChecked:
		return &callFailure{code: badArguments, message: "the arguments of a prompt have at most 1 MiB"}
	case !c.tryDecode(estimateDecodedSize(body), func() { isPrompt = json.Unmarshal(body, &p) == nil && p.Name != "" }):
		return newTooManyArguments()
	case !isPrompt:
		return &callFailure{code: badArguments, message: "want a name, and arguments that are strings",
			hint: `$prompt("name", {key: "text"})`}
	}
	return nil
}

// checkArguments reports mistakes in a call's arguments before the call is sent, or nil. Without the memory to decode
// them and the schema, it leaves the mistakes to the server.
func (c *callRequest) checkArguments(t *declaredTool, body []byte) *callFailure {
	size := estimateDecodedSize(t.InputSchema)
	if len(body) <= maxChecked { // findMistakes decodes no more
		size += estimateDecodedSize(body)
	}
	isObject := bytes.TrimSpace(body)[0] == '{' && json.Valid(body)
	mistakes, hint := []string{"the arguments are one object"}, ""
	canDecode := c.tryDecode(size, func() {
		if isObject {
			mistakes = findMistakes(t.InputSchema, body)
		}
		if len(mistakes) > 0 {
			hint = hintOf(t)
		}
	})
	if len(mistakes) == 0 || isObject && !canDecode {
		return nil
	}
	return &callFailure{code: badArguments, message: strings.Join(mistakes, "; "), hint: hint}
}

// tryDecode calls decode while the request has the memory for decoded values of this size. It returns false without the
// memory.
func (c *callRequest) tryDecode(size int64, decode func()) bool {
	c.broker.decoding.RLock()
	defer c.broker.decoding.RUnlock()
	if !c.memory.TryTake(size) {
		return false
	}
	defer c.memory.GiveBack(size)
	decode()
	return true
}

// hintOf returns a tool's signature.
func hintOf(t *declaredTool) string {
	args := toolsignature.ArgumentsType(t.InputSchema)
	if len(args) > toolsignature.MaxLength {
		args = "{…}"
	}
	return cleanText(t.Name) + "(" + args + ")"
}

// newTooManyArguments returns the failure for arguments beyond the memory that the run's holder has left.
func newTooManyArguments() *callFailure {
	return newUnavailable("the arguments of the calls in flight are too large together",
		"Call less at once: parallel(calls, {limit: 2}).")
}
