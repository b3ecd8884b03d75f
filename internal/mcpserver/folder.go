package mcpserver

import "strings"

// FolderNames describes the names for which IsFolderName returns true.
const FolderNames = "1 to 32 of a-z, 0-9, - and _, the first one a letter or digit"

// IsFolderName reports whether a folder of the host can have the name.
func IsFolderName(name string) bool {
	return name != "" && len(name) <= 32 && name[0] != '-' && name[0] != '_' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
