package catalog

import "github.com/codeforge-mcp/codeforge/catalog/strictjson"

// Problem is one mistake in apis/. See strictjson.Problem.
type Problem = strictjson.Problem

// Problems are all mistakes of one load, sorted by API.
type Problems = strictjson.Problems

// The severities of a Problem.
const (
	// Error: the API is not loaded (or its last good version stays).
	Error = strictjson.Error
	// Warning: the API is loaded, but something about it should be fixed.
	Warning = strictjson.Warning
)
