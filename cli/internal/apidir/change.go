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
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
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

// readOwnConfig is readConfig for a change. It rejects links, because the change must stay in dir/NAME.
func readOwnConfig(dir, name string) (path string, text []byte, err error) {
	path, text, err = readConfig(dir, name)
	for _, p := range []string{filepath.Dir(path), path} {
		if info, lerr := os.Lstat(p); err == nil && lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = fmt.Errorf("%s is a symbolic link: change what it points to, or remove the link yourself", p)
		}
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
	// The owner is set before the rename: this user may be root.
	err = atomicfile.Fill(path, info.Mode().Perm(), func(f *os.File) error {
		_, err := f.Write(text)
		return errors.Join(err, keepOwner(info, f.Name()))
	})
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
	path, text, err := readOwnConfig(dir, name)
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
	path, text, err := readOwnConfig(dir, name)
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
	path, _, err := readOwnConfig(dir, name)
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

// ListExamples lists the names of the APIs that have an example and no config.json, without the template apis/example.
func ListExamples(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*", configFile+exampleSuffix)) // the pattern is valid
	names := convert.Each(paths, func(path string) string { return filepath.Base(filepath.Dir(path)) })
	return slices.DeleteFunc(names, func(name string) bool { return name == "example" || CheckFree(dir, name) != nil })
}

// ReadExample returns the text of dir/NAME/config.json.example and its credentials, or nil. A credential with several
// secrets is listed once for each secret.
func ReadExample(dir, name string) (text []byte, credentials []EntryCredential, err error) {
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
	tokens, err := jsonfile.ListKeys(text, "credentials")
	for _, token := range tokens {
		credentials = append(credentials, listSecrets(text, token)...)
	}
	return text, credentials, err
}

// listSecrets returns the credential of a token name, once for each text that the user must supply.
func listSecrets(text []byte, token string) (out []EntryCredential) {
	for _, within := range [][]string{
		{"value"}, {"oauth2", "client_id"}, {"oauth2", "client_secret"},
		{"aws", "access_key_id"}, {"aws", "secret_access_key"},
	} {
		had, err := jsonfile.GetValue(text, append([]string{"credentials", token}, within...)...)
		if err != nil || had == nil {
			continue
		}
		c := EntryCredential{Name: token, within: within}
		if len(within) > 1 {
			c.Kind = ", " + strings.ReplaceAll(within[1], "_", " ")
		}
		out = append(out, c)
	}
	if len(out) == 0 { // the credential is a text
		out = []EntryCredential{{Name: token}}
	}
	return out
}

// blank matches the part of a host that an example leaves to the user, such as your-team in your-team.atlassian.net.
var blank = regexp.MustCompile(`\byour-[a-z]+\b`)

// ListBlanks lists the parts of an example's hosts that the user must supply.
func ListBlanks(text []byte) []string {
	domains, _ := jsonfile.GetValue(text, "domains") // AddExample reports the mistakes of an example
	return slices.Compact(slices.Sorted(slices.Values(blank.FindAllString(string(domains), -1))))
}

// FillBlank replaces a part of ListBlanks in an example. The value must be a label of a host name.
func FillBlank(text []byte, name, value string) ([]byte, error) {
	if !regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`).MatchString(value) {
		return nil, fmt.Errorf("found no name for %s; want a-z, 0-9 and -, as in the address of the service", name)
	}
	return bytes.ReplaceAll(text, []byte(name), []byte(value)), nil
}

// BoundExample replaces the rules of an example that permit more than reads. Its refusals stay, because a later rule
// may allow the same request. If ask is set, all other requests wait for a person; else they are refused. The same
// holds for calls of tools: a rule does not say whether a tool reads.
func BoundExample(text []byte, reads []string, ask bool) ([]byte, error) {
	var old, rules []json.RawMessage
	if list, err := jsonfile.GetValue(text, "rules"); err != nil || list != nil && json.Unmarshal(list, &old) != nil {
		return nil, fmt.Errorf("%w: \"rules\" is not a list", jsonfile.ErrNotJSON)
	}
	add := func(r Rule) { rules = append(rules, json.RawMessage(jsonfile.FormatCompact(r))) }
	isOther := func(method string) bool { return !slices.Contains(reads, method) }
	instead, hasRequests, hasTools := "refuse", false, false
	if ask {
		instead = "approve"
	}
	for _, raw := range old {
		var r Rule
		_ = json.Unmarshal(raw, &r) // AddExample reports the mistakes of an example
		isRead := r.GraphQL == "query" || len(r.Methods) > 0 && !slices.ContainsFunc(r.Methods, isOther)
		tools, _ := jsonfile.GetValue(raw, "tools") // see above
		hasRequests, hasTools = hasRequests || tools == nil, hasTools || tools != nil
		switch {
		case r.Then == "allow" && !isRead && tools == nil:
			continue
		// A rule about tools stays, with another decision.
		case (r.Then == "allow" || r.Then == "approve") && !isRead:
			raw, _ = jsonfile.SetValue(raw, instead, "then") // it is JSON
		}
		rules = append(rules, raw)
	}
	if server, _ := jsonfile.GetValue(text, "mcp"); server != nil && !hasTools {
		add(Rule{Tools: []string{"*"}, Then: instead}) // without a rule about tools, all calls would be allowed
	}
	if !hasRequests {
		add(Rule{Methods: reads, Then: "allow"})
	}
	if ask {
		add(Rule{Then: "approve"})
		for field, all := range map[string][]string{"restricted_methods": {}, "allowed_methods": operation.ListMethods()} {
			if had, err := jsonfile.GetValue(text, field); err == nil && had != nil {
				text, _ = jsonfile.SetValue(text, all, field) // it is JSON
			}
		}
	}
	return jsonfile.SetValue(text, rules, "rules")
}

// AddExample adds an example as an API, with the values of credentials instead of the example's.
func AddExample(dir, name string, text []byte, credentials []EntryCredential) (string, catalog.Problems, error) {
	text, err := jsonfile.SetValue(text, true, "active")
	for _, c := range credentials {
		if err == nil {
			text, err = jsonfile.SetValue(text, c.Value.Reveal(), append([]string{"credentials", c.Name}, c.within...)...)
		}
	}
	if err != nil {
		return "", nil, err
	}
	return writeFolder(dir, Entry{Name: name}, text)
}
