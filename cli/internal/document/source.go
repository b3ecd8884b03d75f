package document

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/yamltree"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

// Source is the origin of a document.
type Source struct {
	// Name is an absolute path, a URL, or "-" for standard input.
	Name string
	// URL is the final URL of the document after redirects, or nil.
	URL  *url.URL
	Text []byte
}

// fetchTime limits the time of a request, including the body.
const fetchTime = 2 * time.Minute

// ReadSource reads a file, a URL or, for "-", standard input, up to yamltree.MaxSize. Only ReadSource and
// IntrospectGraphQL fetch documents, and only those that the user named.
func ReadSource(ctx context.Context, name string, stdin io.Reader) (Source, error) {
	if name == "-" {
		text, err := readLimited(stdin)
		return Source{Name: name, Text: text}, err
	}
	if u, err := url.Parse(name); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		return sendRequest(ctx, u, http.MethodGet, nil)
	}
	file, err := filepath.Abs(name)
	if err != nil {
		return Source{}, err
	}
	if info, err := os.Stat(file); err != nil {
		return Source{}, fmt.Errorf("reading the document: %w", err)
	} else if !info.Mode().IsRegular() {
		return Source{}, fmt.Errorf("reading the document: %s is not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return Source{}, fmt.Errorf("reading the document: %w", err)
	}
	defer f.Close()
	text, err := readLimited(f)
	return Source{Name: file, Text: text}, err
}

func readLimited(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, yamltree.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	if len(text) > yamltree.MaxSize {
		return nil, &UnsupportedError{fmt.Sprintf("a document of more than %d MiB", yamltree.MaxSize>>20),
			"a smaller one, in which schemas have names instead of being repeated"}
	}
	return text, nil
}

// IntrospectGraphQL asks a GraphQL endpoint for its schema, without a credential. If the name is a file, standard input
// or the URL of a schema file, it reads that instead.
func IntrospectGraphQL(ctx context.Context, name, question string, stdin io.Reader) (source Source, endpoint bool,
	err error) {
	u, err := url.Parse(name)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || slices.Contains(schemaFiles(), path.Ext(u.Path)) {
		source, err = ReadSource(ctx, name, stdin)
		return source, false, err
	}
	body, _ := json.Marshal(map[string]string{"query": question}) // a map of texts cannot fail
	source, err = sendRequest(ctx, u, http.MethodPost, body)
	return source, true, err
}

// schemaFiles returns the suffixes of schema files.
func schemaFiles() []string { return []string{".graphql", ".graphqls", ".gql", ".json"} }

func sendRequest(ctx context.Context, u *url.URL, method string, body []byte) (Source, error) {
	if u.User != nil {
		return Source{}, &UnsupportedError{"a URL with a user in it", "a file: fetch the document with your own tools first"}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	client := &http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
		const most = 10
		// A redirect to plain HTTP would let the network change the document.
		if len(via) >= most || r.URL.Scheme != "https" && r.URL.Scheme != via[0].URL.Scheme {
			return errors.New("a redirection too many, or one from https to http")
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return Source{}, fmt.Errorf("fetching the document: %w", err)
	}
	req.Header.Set("User-Agent", "CodeForge/"+version.Version)
	req.Header.Set("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err := client.Do(req)
	if err != nil {
		return Source{}, fmt.Errorf("fetching the document: %w", err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusOK:
	case body != nil:
		found := fmt.Sprintf("%s answered %d to an introspection", CleanLine(u.Host, shortText), answer.StatusCode)
		return Source{}, &UnsupportedError{found, "a file with the schema, and --server: if the schema needs a credential, " +
			"fetch it with your own tools"}
	default:
		return Source{}, &UnsupportedError{fmt.Sprintf("%s answered %d", CleanLine(u.Host, shortText), answer.StatusCode),
			"the URL of a document, which needs no credential"}
	}
	text, err := readLimited(answer.Body)
	if err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") &&
		bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		err = &UnsupportedError{"a page of HTML at " + CleanLine(u.String(), shortText),
			"the document's own URL, as a rule one that " +
				"ends with .json or .yaml; on GitHub the one behind \"Raw\""}
	}
	return Source{Name: u.String(), URL: answer.Request.URL, Text: text}, err
}
