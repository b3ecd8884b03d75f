package catalog

import "github.com/codeforge-mcp/codeforge/catalog/jsonfile"

// Problem is one mistake in apis/; see jsonfile.Problem.
type Problem = jsonfile.Problem

// Problems is every mistake of one load, sorted by API.
type Problems = jsonfile.Problems

// The severities of a Problem.
const (
	// Error: the API is not loaded (or its last good version stays).
	Error = jsonfile.Error
	// Warning: the API is loaded, but something about it should be fixed.
	Warning = jsonfile.Warning
)
