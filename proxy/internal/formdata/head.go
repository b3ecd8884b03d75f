package formdata

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Part is the head of a part.
type Part struct {
	// Name is the name of the field. It may be empty in a multipart type other than form-data.
	Name string
	// FileName is the name of the file. File means that the part has a file name, even an empty one.
	FileName string
	File     bool
	// ID is the Content-ID, which some servers use as a name.
	ID string
	// Type is the type of the content.
	Type Type

	form  bool
	lines []string // the lines of a part that is not a form field
}

// maxHead is the largest head in bytes. PHP reads a line of more than 5 KiB as two lines.
const maxHead = 4 << 10

// readHead reads a part's head up to the blank line at its end, and returns the length in bytes.
func readHead(src *bufio.Reader, t Type) (*Part, int, error) {
	p := &Part{form: t.IsFormData()}
	var seen []string
	for n := 0; ; {
		line, err := src.ReadSlice('\n')
		if n += len(line); err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // the reader's own value
			return nil, n, newEndError(err)
		}
		// The buffer is longer than maxHead, so a full buffer is also too long.
		if n > maxHead || err != nil {
			return nil, n, &Error{"a part's head is longer than 4 KiB"}
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		switch {
		case !ok || !isText(text):
			return nil, n, &Error{"a part's head has a line that does not end with CRLF, or a control character"}
		case text == "" && p.form && !slices.Contains(seen, "content-disposition"):
			return nil, n, &Error{"a part has no Content-Disposition: form-data with a name"}
		case text == "":
			return p, n, p.checkHead()
		}
		name, err := p.parseHeader(text)
		if err != nil {
			return nil, n, err
		}
		//defence:multipart
		if slices.Contains(seen, name) {
			return nil, n, &Error{"a part has the same header twice"}
		}
		seen = append(seen, name)
	}
}

// parseHeader parses one line of a head. It returns the name of the header in lower case.
func (p *Part) parseHeader(line string) (name string, err error) {
	name, value, found := strings.Cut(line, ":")
	if !found || !httpguts.ValidHeaderFieldName(name) {
		return "", &Error{"a part's head has a folded line, or one that is not a header"}
	}
	value = strings.Trim(value, " \t")
	p.lines = append(p.lines, name+": "+value)
	switch name = strings.ToLower(name); name {
	case "content-disposition":
		err = p.parseDisposition(value)
	case "content-type":
		p.Type, err = ParseType([]string{value})
	case "content-id":
		p.ID = strings.Trim(value, "<> \t")
	case "content-transfer-encoding":
		if !slices.Contains([]string{"7bit", "8bit", "binary"}, strings.ToLower(value)) {
			err = &Error{"a part has a Content-Transfer-Encoding, which some servers decode and others do not"}
		}
	case "content-length", "mime-version":
	default:
		if p.form {
			err = &Error{"a part has a header other than Content-Disposition and Content-Type"}
		}
	}
	return name, err
}

// parseDisposition reads Content-Disposition.
func (p *Part) parseDisposition(value string) error {
	file := ""
	if p.form { // outside forms, a file name may be the name of a field
		file = "filename"
	}
	word, list, err := parseParameters(value, file)
	if err != nil {
		return err
	}
	if !httpguts.ValidHeaderFieldName(word) || p.form && !strings.EqualFold(word, "form-data") {
		return &Error{"a part has no Content-Disposition: form-data with a name"}
	}
	for _, q := range list {
		switch {
		case q.name == "name":
			p.Name = q.value
		case q.name == "filename":
			p.FileName, p.File = q.value, true
		//defence:multipart
		case p.form:
			return &Error{"a part has a parameter other than name and filename"}
		}
	}
	named := slices.ContainsFunc(list, func(q param) bool { return q.name == "name" })
	switch {
	case p.form && (!named || strings.TrimSpace(p.Name) == ""):
		return &Error{"a part has no Content-Disposition: form-data with a name"}
	case strings.ContainsAny(p.Name, `;=,<>`), p.form && !hasValidBrackets(p.Name),
		strings.Contains(p.FileName, ";") && strings.Contains(p.FileName, "="):
		return &Error{"a part's name, or its file's, has characters that servers read in different ways"}
	// In HTML, such a field names the charset of the form.
	case strings.EqualFold(p.Name, "_charset_"):
		return &Error{"a field chooses the charset of the others"}
	}
	return nil
}

func (p *Part) checkHead() error {
	major, _, _ := strings.Cut(p.Type.Media, "/")
	switch {
	// Python's cgi reads such a part to the end of the body, past boundaries.
	case strings.Contains(p.Type.Media, "urlencoded"):
		return &Error{"a part is itself a form"}
	case !p.form:
	case major == "multipart" || major == "message":
		return &Error{"a field of a form has parts"}
	case !p.File && !isASCII(p.Type.Param("charset")):
		return &Error{"a part has a charset that is not a superset of ASCII"}
	}
	return nil
}

// writeHead writes the head and the blank line. The head of a form field is written only from parsed values.
func (p *Part) writeHead(out *bytes.Buffer) {
	lines := p.lines
	//defence:multipart
	if p.form {
		lines = []string{`Content-Disposition: form-data; name="` + p.Name + `"`}
		if p.File {
			lines[0] += `; filename="` + p.FileName + `"`
		}
		if p.Type.Media != "" {
			lines = append(lines, "Content-Type: "+p.Type.String())
		}
	}
	for _, l := range lines {
		_, _ = io.WriteString(out, l+"\r\n")
	}
	out.WriteString("\r\n")
}

// hasValidBrackets reports whether the brackets in a name have the form name[key][key]. PHP and Rack turn other
// brackets into different names.
func hasValidBrackets(name string) bool {
	i := strings.IndexAny(name, "[]")
	if i < 0 {
		return true
	}
	for name = name[i:]; i > 0 && name != ""; {
		key, rest, closed := strings.Cut(name[1:], "]")
		if name[0] != '[' || !closed || strings.Contains(key, "[") {
			return false
		}
		name = rest
	}
	return i > 0
}

// isText reports whether a text is valid UTF-8 without control characters.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 })
}
