package apidir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// readConfig reads dir/NAME/config.json.
func readConfig(dir, name string) (path string, text []byte, err error) {
	if err := checkName(name); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, name, configFile)
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, dir)
	}
	return path, text, err
}

// exampleSuffix ends the name of an example.
const exampleSuffix = ".example"

// typesFile declares the types of an API.
const typesFile = "types.d.ts"

// ConfigPath returns the path of an API's config.json.
func ConfigPath(dir, name string) (string, error) {
	path, _, err := readConfig(dir, name)
	return path, err
}

// replaceFile replaces a file atomically. The new version has the mode and the owner of the old one.
func replaceFile(path string, text []byte) error {
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
	// The mode is set before the rename: a file with credentials must never be readable for others.
	err = errors.Join(err, f.Sync(), f.Close(), os.Chmod(f.Name(), info.Mode().Perm()), keepOwner(info, f.Name()))
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// SetActive sets "active" in config.json and changes nothing else.
func SetActive(dir, name string, active bool) error { return setField(dir, name, "active", active) }

// SetDomains sets "domains" in config.json and changes nothing else.
func SetDomains(dir, name string, domains []string) error {
	return setField(dir, name, "domains", domains)
}

// setField sets a field of an API's config.json. Only one process changes the folder at a time.
func setField(dir, name, field string, value any) error {
	done, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer done()
	path, text, err := readConfig(dir, name)
	if err != nil {
		return err
	}
	return setValue(path, text, value, field)
}

func setValue(path string, text []byte, value any, keys ...string) error {
	text, err := jsonfile.SetValue(text, value, keys...)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replaceFile(path, text)
}

// UpdateOperations replaces operations.jsonl and its digest in config.json. It changes nothing else there.
func UpdateOperations(dir, name string, file []byte) error {
	done, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer done()
	path, text, err := readConfig(dir, name)
	if err != nil {
		return err
	}
	// The operations come first: if the second write fails, the digest does not match and the catalog reports it.
	if err := replaceFile(filepath.Join(filepath.Dir(path), operation.FileName), file); err != nil {
		return err
	}
	if had, err := jsonfile.GetValue(text, "operations", "sha256"); err != nil || had == nil {
		return err
	}
	return setValue(path, text, FileDigest(file), "operations", "sha256")
}

// ListFiles lists the files that Remove removes, config.json first. Examples and their types stay.
func ListFiles(dir, name string) ([]string, error) {
	path, _, err := readConfig(dir, name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	files := []string{configFile}
	_, noExample := os.Lstat(path + exampleSuffix)
	for _, entry := range entries {
		file := entry.Name()
		ofExample := strings.HasSuffix(file, exampleSuffix) || file == typesFile && noExample == nil
		if file != configFile && !ofExample {
			files = append(files, file)
		}
	}
	return files, err
}

// RemoveAPI removes an API with its credentials, and its folder if that is then empty.
func RemoveAPI(dir, name string) error {
	done, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer done()
	files, err := ListFiles(dir, name)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, name)
	for _, file := range files { // without config.json, which comes first, the folder is not an API
		if err := os.RemoveAll(filepath.Join(folder, file)); err != nil {
			return err
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(folder)
}

// ReadExample returns the text of dir/NAME/config.json.example and the token names of its credentials, or nil.
func ReadExample(dir, name string) (text []byte, tokens []string, err error) {
	f, err := os.Open(filepath.Join(dir, name, configFile+exampleSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	// The folder of APIs may be another project's, so the size is bounded.
	if text, err = io.ReadAll(io.LimitReader(f, 1<<20)); err != nil {
		return nil, nil, err
	}
	tokens, err = jsonfile.ListKeys(text, "credentials")
	return text, tokens, err
}

// AddExample adds an example as an API, with the given credentials instead of the example's.
func AddExample(dir, name string, text []byte, values map[string]secret.Value) (string, catalog.Problems, error) {
	for token, value := range values {
		path := []string{"credentials", token}
		had, err := jsonfile.GetValue(text, path...)
		if err != nil {
			return "", nil, err
		}
		if had == nil {
			return "", nil, fmt.Errorf("the example of %s has no %s", name, token)
		}
		if had, err := jsonfile.GetValue(text, append(path, "value")...); err == nil && had != nil {
			path = append(path, "value")
		}
		if text, err = jsonfile.SetValue(text, value.Reveal(), path...); err != nil {
			return "", nil, err
		}
	}
	text, err := jsonfile.SetValue(text, true, "active")
	if err != nil {
		return "", nil, err
	}
	return writeFolder(dir, Entry{Name: name}, text)
}
