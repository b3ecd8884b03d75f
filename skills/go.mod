module github.com/codeforge-mcp/codeforge/skills

go 1.26.0
