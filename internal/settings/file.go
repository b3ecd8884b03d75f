package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// fileSuffix, added to a setting's name, names the variable with the path of a file that contains the value. Others can
// read an environment (docker inspect), so it must not contain a secret.
const fileSuffix = "_FILE"

// maxFile bounds such a file, in bytes.
const maxFile = 64 << 10

// InFile lists the settings whose value may be in a file.
func InFile() []string {
	return []string{"REDACTING_STRINGS", "MCP_AUTH_TOKEN", "DATABASE_URL", "PROXY_DATABASE_URL"}
}

// LookupSetting returns the value of a setting of InFile, from its variable or from the file of NAME_FILE. It is for
// callers that read single settings or pass them on. Parse reads the files itself.
func LookupSetting(getenv func(string) string, name string) (string, error) {
	if value := getenv(name); strings.TrimSpace(value) != "" {
		return value, nil
	}
	path := strings.TrimSpace(getenv(name + fileSuffix))
	if path == "" {
		return "", nil
	}
	return readValue(path)
}

// readValue returns the content of a file without surrounding white space.
func readValue(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	// Editors end a file with a line break.
	return strings.TrimSpace(string(data)), err
}

// readFromFile reads a NAME_FILE variable. set means that NAME has a value.
func readFromFile[T any](path string, set bool, to *T, parse func(text string, to *T) (want string)) string {
	if path == "" {
		return ""
	}
	// Two values would leave open which of them is in force.
	if set {
		return "no value, because the setting itself has one: set only one of the two"
	}
	text, err := readValue(path)
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			// The message names the variable; the path is already in it.
			err = at.Err
		}
		return fmt.Sprintf("a file that this process (user %d) can read, but: %v", os.Getuid(), err)
	}
	if text == "" {
		return "a file that holds the value; this one is empty"
	}
	if want := parse(text, to); want != "" {
		return "a file that holds " + want
	}
	return ""
}
