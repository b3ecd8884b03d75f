module github.com/codeforge-mcp/codeforge/catalog

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/jsonschema-go v0.4.3
	golang.org/x/net v0.62.0
	golang.org/x/tools v0.52.0
)

require golang.org/x/text v0.43.0 // indirect
