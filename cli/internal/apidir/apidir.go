// Package apidir adds APIs to the folder of APIs. It writes a new config.json complete and valid, or not at all.
package apidir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// Entry is an API to add.
type Entry struct {
	Name        string
	Description string
	Domains     []string
	Reference   string
	Restricted  []string
	Allowed     []string
	Rules       []Rule
	AllowHTTP   bool
	Credentials []EntryCredential
	// Operations is the result of an import, or nil.
	Operations *Operations
	// Server describes an MCP server, or is nil.
	Server *Server
	// Inactive leaves the API off until the user has looked at it.
	Inactive bool
}

// Rule is a rule of config.json, see catalog.Rule.
type Rule struct {
	Tools   []string `json:"tools,omitempty"`
	Methods []string `json:"methods,omitempty"`
	Path    string   `json:"path,omitempty"`
	GraphQL string   `json:"graphql,omitempty"`
	Then    string   `json:"then"`
}

// Server is "mcp" of config.json, see mcpserver.Settings. Exactly one of URL, Package and Command is set.
type Server struct {
	URL           string            `json:"url,omitempty"`
	Package       string            `json:"package,omitempty"`
	Registry      string            `json:"registry,omitempty"`
	RegistryHosts []string          `json:"registry_hosts,omitempty"`
	Constraints   []string          `json:"constraints,omitempty"`
	Command       []string          `json:"command,omitempty"`
	Args          []string          `json:"args,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Transport     string            `json:"transport,omitempty"`
	Tools         *Tools            `json:"tools,omitempty"`
	Timeout       float64           `json:"timeout,omitempty"`         // seconds
	Connect       float64           `json:"connect_timeout,omitempty"` // seconds
	State         string            `json:"state,omitempty"`
	ExclusiveWith []string          `json:"exclusive_with,omitempty"`
	Permissions   []string          `json:"permissions,omitempty"`
}

// Tools are the globs of "mcp.tools".
type Tools struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Operations are the operations of an API and their source.
type Operations struct {
	Source string
	Only   bool
	// File is the text of operations.jsonl.
	File []byte
}

// EntryCredential is a token name with its value and surfaces; no surface means the default.
type EntryCredential struct {
	Name     string
	Value    secret.Value
	Surfaces []string
	// Placeholder is the text that programs get instead of the name, or empty.
	Placeholder string
	// Login is the URL of a remote MCP server at which a user logs in; Value is then empty.
	Login string
	// Kind describes the value to type, e.g. ", the password".
	Kind string

	within []string // the path of the value in the credential
	region string   // of "aws", or empty
}

// AWSCredentials returns the two credentials of an access key of AWS, which signs for hosts of a region.
func AWSCredentials(name, region string) []EntryCredential {
	return []EntryCredential{
		{Name: name, Kind: ", access key id", within: []string{"aws", "access_key_id"}, region: region},
		{Name: name, Kind: ", secret access key", within: []string{"aws", "secret_access_key"}},
	}
}

// InvalidError lists the mistakes of an Entry.
type InvalidError struct{ Problems catalog.Problems }

// Error returns one line per mistake.
func (e *InvalidError) Error() string { return e.Problems.String() }

// AddAPI writes dir/NAME/config.json, mode 0600, and returns its path and the catalog's warnings. If the file exists,
// or the catalog rejects the entry (*InvalidError), Add writes nothing.
func AddAPI(dir string, e Entry) (path string, warnings catalog.Problems, err error) {
	text, err := e.renderConfig()
	if err != nil {
		return "", nil, err
	}
	return writeFolder(dir, e, text)
}

// CheckEntry is Add without writing to dir.
func CheckEntry(dir string, e Entry) error {
	text, err := e.renderConfig()
	if err != nil {
		return err
	}
	if err := CheckFree(dir, e.Name); err != nil {
		return err
	}
	// The catalog loads folders, so the check needs one. It is outside dir, where a running CodeForge would load it.
	draft, err := os.MkdirTemp("", "codeforge-check-")
	if err != nil {
		return fmt.Errorf("checking the API: %w", err)
	}
	defer os.RemoveAll(draft)
	_, err = fillFolder(filepath.Join(draft, e.Name), e, text)
	return err
}

// CheckFree returns an error if an API of this name cannot be added: the name is invalid, or config.json exists.
func CheckFree(dir, name string) error {
	if err := catalog.CheckName(name); err != nil {
		return fmt.Errorf("API name %q: %w", name, err)
	}
	file := filepath.Join(dir, name, configFile)
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s already exists: codeforge api edit %s changes it, codeforge api rm %s removes it",
			file, name, name)
	}
	return nil
}

// checkName keeps names from leading out of the folder of APIs. The catalog is stricter.
func checkName(name string) error {
	if !fs.ValidPath(name) || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
		return fmt.Errorf("API name %q: use only letters, digits, - and _", name)
	}
	return nil
}

// writeFolder makes the folder in a temporary place, and moves it or its files into dir when it is complete.
func writeFolder(dir string, e Entry, text []byte) (path string, warnings catalog.Problems, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // only the files in it are secret
		return "", nil, fmt.Errorf("apis folder: %w", err)
	}
	done, err := lockFolder(dir)
	if err != nil {
		return "", nil, err
	}
	defer done()
	if err := CheckFree(dir, e.Name); err != nil {
		return "", nil, err
	}
	// A folder whose name begins with a dot is not an API: the proxy does not see the new one before it is complete.
	draft, err := os.MkdirTemp(dir, ".codeforge-new-")
	if err != nil {
		return "", nil, fmt.Errorf("writing the API: %w", err)
	}
	defer os.RemoveAll(draft)
	folder, final := filepath.Join(draft, e.Name), filepath.Join(dir, e.Name)
	warnings, err = fillFolder(folder, e, text)
	if err != nil {
		return "", nil, err
	}
	// Under sudo the files would be root's, and their owner could not edit them.
	if err := giveToOwner(dir, folder); err != nil {
		return "", nil, err
	}
	if _, err := os.Lstat(final); err != nil {
		if err := os.Rename(folder, final); err != nil {
			return "", nil, fmt.Errorf("writing the API: %w", err)
		}
		return filepath.Join(final, configFile), warnings, nil
	}
	for _, name := range []string{operation.FileName, configFile} { // the folder has an example; config.json comes last
		err := os.Rename(filepath.Join(folder, name), filepath.Join(final, name))
		if err != nil && (name == configFile || !errors.Is(err, fs.ErrNotExist)) {
			return "", nil, fmt.Errorf("writing the API: %w", err)
		}
	}
	return filepath.Join(final, configFile), warnings, nil
}

const configFile = "config.json"

// fillFolder writes the files of an API into a new folder, and loads them.
func fillFolder(folder string, e Entry, text []byte) (catalog.Problems, error) {
	if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // only the files in it are secret
		return nil, fmt.Errorf("writing the API: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, configFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("writing the API: %w", err)
	}
	if o := e.Operations; o != nil {
		file := filepath.Join(folder, operation.FileName)
		if err := os.WriteFile(file, o.File, 0o644); err != nil { //nolint:gosec // nothing in it is secret
			return nil, fmt.Errorf("writing the API: %w", err)
		}
	}
	_, problems := catalog.Load(filepath.Dir(folder), catalog.Options{})
	if bad := problems.Errors(); len(bad) > 0 {
		return nil, &InvalidError{bad}
	}
	return problems.Warnings(), nil
}

// ShowConfig returns the text of config.json with the result of instead in place of each credential.
func (e Entry) ShowConfig(instead func(EntryCredential) string) (string, error) {
	shown := e
	shown.Credentials = slices.Clone(e.Credentials)
	for i, c := range shown.Credentials {
		shown.Credentials[i].Value = secret.New(instead(c))
	}
	text, err := shown.renderConfig()
	return string(text), err
}

// renderConfig returns the text of config.json, with the fields in the order in which people read them.
func (e Entry) renderConfig() ([]byte, error) {
	type value struct {
		Value       string   `json:"value"`
		In          []string `json:"in,omitempty"`
		Placeholder string   `json:"placeholder,omitempty"`
	}
	credentials, err := []byte("{}"), error(nil)
	for _, c := range e.Credentials {
		var v any = c.Value.Reveal()
		switch {
		case c.Login != "":
			v = map[string]any{"oauth2": map[string]string{"resource": c.Login}}
		case len(c.Surfaces) > 0 || c.Placeholder != "":
			v = value{c.Value.Reveal(), c.Surfaces, c.Placeholder}
		}
		credentials, err = jsonfile.SetValue(credentials, v, append([]string{c.Name}, c.within...)...)
		if err == nil && c.region != "" {
			credentials, err = jsonfile.SetValue(credentials, c.region, c.Name, "aws", "region")
		}
		if err != nil {
			return nil, err
		}
	}
	if len(e.Credentials) == 0 {
		credentials = nil
	}
	type operations struct {
		Source string `json:"source"`
		SHA256 string `json:"sha256"`
		Only   bool   `json:"only"`
	}
	var ops *operations
	if o := e.Operations; o != nil {
		ops = &operations{o.Source, FileDigest(o.File), o.Only}
	}
	config := struct {
		Schema      string          `json:"$schema"`
		Description string          `json:"description"`
		Domains     []string        `json:"domains,omitempty"`
		Credentials json.RawMessage `json:"credentials,omitempty"`
		Reference   string          `json:"reference,omitempty"`
		Restricted  []string        `json:"restricted_methods,omitempty"`
		Allowed     []string        `json:"allowed_methods,omitempty"`
		Rules       []Rule          `json:"rules,omitempty"`
		AllowHTTP   bool            `json:"allow_http,omitempty"`
		Operations  *operations     `json:"operations,omitempty"`
		Server      *Server         `json:"mcp,omitempty"`
		Active      bool            `json:"active"`
	}{
		schemaFile, e.Description, e.Domains, credentials, e.Reference, e.Restricted, e.Allowed, e.Rules, e.AllowHTTP,
		ops, e.Server, !e.Inactive,
	}
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(jsonfile.FormatCompact(config)), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// schemaFile is the path of the JSON Schema of config.json, for editors.
const schemaFile = "../config.schema.json"

// FileDigest returns the digest of a file in the form of config.json.
func FileDigest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
