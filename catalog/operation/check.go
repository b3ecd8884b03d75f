package operation

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// Bounds of texts in bytes, and of lists in entries. TypeScript is bounded by MaxLine.
const (
	MaxTitle   = 200
	MaxVersion = 100
	MaxServer  = 500
	MaxPath    = 2048
	MaxID      = 200
	MaxSummary = 300
	MaxWords   = 600
	MaxTag     = 80
	MaxTags    = 10
	MaxStyles  = 50
	MaxType    = 128
	maxMedia   = 128
	maxAuth    = 20
	maxPlace   = 160
)

// listStyles are the values of Line.Styles:
//   - comma, space, pipe, tab: a list as a=1,2, with "," "%20" "|" or a tab between the values
//   - deep: an object or a list as a[b]=1
//   - json: the value in JSON
func listStyles() []string { return []string{"comma", "space", "pipe", "tab", "deep", "json"} }

// ListMethods are the methods that an operation can have.
func ListMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"}
}

func (h Head) checkHead() error {
	// Another version may give the same fields another meaning.
	if h.Format != Format {
		return fmt.Errorf("format %d; want %d: codeforge api update writes it again", h.Format, Format)
	}
	if h.Operations < 0 || h.Types < 0 || len(h.Auth) > maxAuth {
		return errors.New("a head with impossible numbers")
	}
	for _, a := range h.Auth {
		if err := errors.Join(checkShownText("token", a.Token, MaxType), checkShownText("place", a.Place, maxPlace),
			checkShownText("value", a.Value, MaxSummary)); err != nil {
			return err
		}
	}
	return errors.Join(checkShownText("title", h.Title, MaxTitle), checkShownText("version", h.Version, MaxVersion),
		checkServerURL(h.Server), checkShownText("common", h.Common, MaxLine), checkTypes(h.Common))
}

func (l Line) checkLine(h Head) error {
	if err := l.checkFields(); err != nil || h.GraphQL {
		return err
	}
	return checkTypes(l.TS, l.Params, l.Query, l.Headers, l.Body, l.Answer)
}

func (l Line) checkFields() error {
	if (l.Method == "") == (l.Type == "") {
		return errors.New("neither an operation nor a type, or both")
	}
	if l.Type != "" {
		return l.checkType()
	}
	if l.TS != "" || !slices.Contains(ListMethods(), l.Method) {
		return fmt.Errorf("an operation with the method %s", safetext.QuoteText(cutQuote(l.Method)))
	}
	if err := CheckPath(l.Path); err != nil {
		return err
	}
	if len(l.Tags) > MaxTags {
		return fmt.Errorf("%d tags; want at most %d", len(l.Tags), MaxTags)
	}
	for _, t := range l.Tags {
		if err := checkShownText("tag", t, MaxTag); err != nil {
			return err
		}
	}
	if len(l.Styles) > MaxStyles {
		return fmt.Errorf("%d styles; want at most %d", len(l.Styles), MaxStyles)
	}
	for name, style := range l.Styles {
		if !slices.Contains(listStyles(), style) {
			return fmt.Errorf("the style %s; want one of %s", safetext.QuoteText(cutQuote(style)),
				strings.Join(listStyles(), ", "))
		}
		if err := checkShownText("parameter", name, MaxTag); err != nil {
			return err
		}
	}
	if l.Server != "" {
		if err := checkServerURL(l.Server); err != nil {
			return err
		}
	}
	return errors.Join(checkShownText("id", l.ID, MaxID), checkShownText("summary", l.Summary, MaxSummary),
		checkShownText("words", l.Words, MaxWords),
		checkShownText("params", l.Params, MaxLine), checkShownText("query", l.Query, MaxLine),
		checkShownText("headers", l.Headers, MaxLine),
		checkShownText("body", l.Body, MaxLine), checkShownText("media type", l.BodyMedia, maxMedia),
		checkShownText("answer", l.Answer, MaxLine))
}

// checkType checks a line of a type: it has only a name and a definition.
func (l Line) checkType() error {
	alone := l.Path == "" && l.ID == "" && l.Summary == "" && l.Words == "" && l.Tags == nil && l.Params == "" &&
		l.Query == "" && l.Styles == nil && !l.BodyOptional && l.Headers == "" && l.Body == "" && l.BodyMedia == "" &&
		l.Answer == "" && !l.Deprecated && l.Server == ""
	switch {
	case !alone:
		return errors.New("a type with fields of an operation")
	case !isIdentifier(l.Type):
		return fmt.Errorf("the type name %s; want an identifier", safetext.QuoteText(cutQuote(l.Type)))
	case l.TS == "":
		return errors.New("a type without a definition")
	}
	return checkShownText("type", l.TS, MaxLine)
}

func (l Line) lineLabel() string {
	if l.Type != "" {
		return "type " + safetext.OneLine(cutQuote(l.Type))
	}
	return safetext.OneLine(cutQuote(l.Method + " " + l.Path))
}

// CheckPath returns why a text is not a path of this format, or nil.
func CheckPath(p string) error {
	bad := func(why string) error {
		return fmt.Errorf("the path %s; want %s", safetext.QuoteText(cutQuote(p)), why)
	}
	if !strings.HasPrefix(p, "/") || len(p) > MaxPath {
		return bad(fmt.Sprintf("at most %d bytes that start with /", MaxPath))
	}
	name := -1 // the start of a parameter's name, or -1
	for i := range len(p) {
		switch c := p[i]; {
		case c <= ' ' || c >= 0x7f || c == '#' || c == '\\':
			return bad("printable ASCII without # and \\")
		case c == '{' && name >= 0, c == '}' && (name < 0 || strings.Trim(p[name:i], "+") == ""):
			return bad("each { with a name and a }")
		case c == '{':
			name = i + 1
		case c == '}':
			name = -1
		}
	}
	if name >= 0 {
		return bad("each { with a name and a }")
	}
	return nil
}

// checkServerURL checks a URL in front of paths.
func checkServerURL(s string) error {
	if err := checkShownText("server", s, MaxServer); err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.HasSuffix(s, "/") {
		return fmt.Errorf("the server %s; want a URL like https://api.example.com/v1", safetext.QuoteText(cutQuote(s)))
	}
	return nil
}

// isIdentifier reports whether s is an ASCII identifier of TypeScript.
func isIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= MaxType
}

// checkShownText checks a text that a model and a terminal may show.
func checkShownText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%s of %d bytes; want at most %d", what, len(s), most)
	case !safetext.IsPlain(s):
		return fmt.Errorf("%s with a character that is not shown as it is: %s", what, safetext.QuoteText(cutQuote(s)))
	}
	return nil
}

// cutQuote shortens a text that a message quotes.
func cutQuote(s string) string { return safetext.CutText(s, 80, "...") }

// lineCounter compares the number of lines in a file with its head.
type lineCounter struct{ operations, types int }

func (c *lineCounter) countLine(l Line, h Head) error {
	if l.Type != "" {
		c.types++
	} else {
		c.operations++
	}
	if c.operations > h.Operations || c.types > h.Types {
		return errors.New("more lines than the head says")
	}
	return nil
}

func (c *lineCounter) checkTotals(h Head) error {
	if c.operations < h.Operations || c.types < h.Types {
		return fmt.Errorf("%d operations and %d types; the head says %d and %d", c.operations, c.types,
			h.Operations, h.Types)
	}
	return nil
}
