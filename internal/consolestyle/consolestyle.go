// Package consolestyle contains the style sheet of the console, of the pages on the public host and of the setup page.
package consolestyle

import _ "embed"

//go:embed console.css
var sheet []byte

// Sheet returns the style sheet, which refers to no other file.
func Sheet() []byte { return sheet }
