package apidir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/catalog/secret"
)

// span is where the value is that keys lead to in a text of JSON, or -1.
func span(text []byte, keys ...string) (start, end int) {
	d := json.NewDecoder(bytes.NewReader(text))
	for len(keys) > 0 {
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return -1, -1
		}
		found := false
		for !found && d.More() {
			t, err := d.Token()
			if err != nil {
				return -1, -1
			}
			if found = t == keys[0]; found && len(keys) > 1 {
				break
			}
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return -1, -1
			}
			if found {
				end := int(d.InputOffset())
				return end - len(raw), end
			}
		}
		if !found {
			return -1, -1
		}
		keys = keys[1:]
	}
	return -1, -1
}

// splice replaces a part of a text.
func splice(text []byte, start, end int, with string) []byte {
	return bytes.Join([][]byte{text[:start], text[end:]}, []byte(with))
}

// read reads dir/NAME/config.json.
func read(dir, name string) (path string, text []byte, err error) {
	if !fs.ValidPath(name) || filepath.Base(name) != name {
		return "", nil, fmt.Errorf("API name %q: use only letters, digits, - and _", name)
	}
	path = filepath.Join(dir, name, configFile)
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, dir)
	}
	return path, text, err
}

// File is the path of an API's config.json.
func File(dir, name string) (string, error) {
	path, _, err := read(dir, name)
	return path, err
}

// replace puts a new version of a file into its place, with the mode and the owner of the old one.
func replace(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".codeforge-new-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close(), os.Chmod(f.Name(), info.Mode().Perm()), keepOwner(info, f.Name())); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Activate sets "active", and changes nothing else of config.json.
func Activate(dir, name string, active bool) error {
	path, text, err := read(dir, name)
	if err != nil {
		return err
	}
	if start, end := span(text, "active"); start >= 0 {
		return replace(path, splice(text, start, end, strconv.FormatBool(active)))
	}
	end := bytes.LastIndexByte(text, '}')
	if end < 0 || !json.Valid(text) {
		return fmt.Errorf("%s is not JSON: codeforge api check %s shows where", path, name)
	}
	head := bytes.TrimRight(text[:end], " \t\r\n")
	comma := ","
	if bytes.HasSuffix(head, []byte("{")) {
		comma = ""
	}
	return replace(path, fmt.Appendf(nil, "%s%s\n  \"active\": %t\n}\n", head, comma, active))
}

// Update replaces operations.jsonl, and its digest in config.json, of which it changes nothing else.
func Update(dir, name string, file []byte) error {
	path, text, err := read(dir, name)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(filepath.Dir(path), operation.FileName), file); err != nil {
		return err
	}
	start, end := span(text, "operations", "sha256")
	if start < 0 {
		return nil
	}
	return replace(path, splice(text, start, end, strconv.Quote(Digest(file))))
}

// Remove removes an API with its credentials. What is an example stays.
func Remove(dir, name string) error {
	path, _, err := read(dir, name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil { // first: without it, the folder is no API
		return err
	}
	folder := filepath.Dir(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	kept := false
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".example") {
			kept = true
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
	}
	if !kept {
		err = errors.Join(err, os.Remove(folder))
	}
	return err
}

// Example is the text of dir/NAME/config.json.example with the token names of its credentials, or nil.
func Example(dir, name string) (text []byte, tokens []string, err error) {
	f, err := os.Open(filepath.Join(dir, name, configFile+".example"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if text, err = io.ReadAll(io.LimitReader(f, 1<<20)); err != nil {
		return nil, nil, err
	}
	start, end := span(text, "credentials")
	if start < 0 {
		return text, nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text[start:end]))
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		token, _ := t.(string)
		tokens = append(tokens, token)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
	}
	return text, tokens, nil
}

// AddExample is Add for an example, with credentials in the place of the example's.
func AddExample(dir, name string, text []byte, values map[string]secret.Value) (string, catalog.Problems, error) {
	for token, value := range values {
		start, end := span(text, "credentials", token)
		if start < 0 {
			return "", nil, fmt.Errorf("the example of %s has no %s", name, token)
		}
		if s, e := span(text, "credentials", token, "value"); s >= 0 {
			start, end = s, e
		}
		quoted, err := marshal(value.Reveal())
		if err != nil {
			return "", nil, err
		}
		text = splice(text, start, end, string(quoted))
	}
	if start, end := span(text, "active"); start >= 0 {
		text = splice(text, start, end, "true")
	}
	return write(dir, Entry{Name: name}, text)
}
