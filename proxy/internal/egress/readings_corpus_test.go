package egress_test

import (
	"embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/rogpeppe/go-internal/txtar"
)

//go:embed testdata/readings/corpus/*.txtar
var corpus embed.FS

// Case is a request as code would send it. A file of the corpus is a txtar archive. Its comment has settings ("# api:
// body") and then the common head of its cases. A case begins with settings. If its first line is a request line, the
// case has a separate head. The body follows after an empty line, without its last line feed. Lines of a head get a CR;
// lines of a body get a CR only with the setting "crlf".
//
// ‹00 ff› are bytes in hexadecimal, ‹5b*100› is a byte a hundred times, and ‹basic u:p› becomes base64. NAME is the
// API's token name. Host is added, and with a body also Content-Length.
type Case struct {
	Group, Name string
	// API is the name of the surface.
	API string
	// Want is "swap", "pass" or "refuse". If it is empty, any result is right if all readers agree.
	Want string
	// Differs are readers that are known to read the case differently. SECURITY.md names them.
	Differs []string
	head    []byte // request line and fields, each with its CR LF
	body    []byte
}

// Corpus returns all cases.
func Corpus() ([]Case, error) {
	files, err := fs.Glob(corpus, "testdata/readings/corpus/*.txtar")
	if err != nil {
		return nil, err
	}
	var out []Case
	for _, file := range files {
		data, err := corpus.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cases, err := parseFile(strings.TrimSuffix(path.Base(file), ".txtar"), data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, cases...)
	}
	return out, nil
}

func parseFile(group string, data []byte) ([]Case, error) {
	archive := txtar.Parse(data)
	common, rest, err := settings(map[string]string{"api": "body"}, string(archive.Comment))
	if err != nil {
		return nil, err
	}
	var out []Case
	seen := map[string]bool{}
	for _, f := range archive.Files {
		if seen[f.Name] {
			return nil, fmt.Errorf("%s: twice", f.Name)
		}
		seen[f.Name] = true
		c, err := parseCase(common, rest, string(f.Data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		c.Group, c.Name = group, f.Name
		out = append(out, c)
	}
	return out, nil
}

// settings parses the "# key: value" lines at the start of a text. It returns the settings and the rest of the text.
func settings(base map[string]string, text string) (map[string]string, string, error) {
	out := map[string]string{}
	maps.Copy(out, base)
	for strings.HasPrefix(text, "# ") {
		line, rest, _ := strings.Cut(text[2:], "\n")
		k, v, _ := strings.Cut(line, ":")
		v = strings.TrimSpace(v)
		switch k {
		case "api", "want", "differs", "crlf", "utf-16le", "utf-16be", "utf-32le", "utf-32be", "":
			out[k] = v
		default:
			return nil, "", fmt.Errorf("no setting %q", k)
		}
		text = rest
	}
	return out, text, nil
}

var requestLine = regexp.MustCompile(`^[^ \n]+ /[^\n]* HTTP/1\.[01]\n`)

func parseCase(common map[string]string, head, text string) (Case, error) {
	set, body, err := settings(common, text)
	if err != nil {
		return Case{}, err
	}
	if requestLine.MatchString(body) {
		var ok bool
		if head, body, ok = strings.Cut(body, "\n\n"); !ok {
			head, body = strings.TrimSuffix(head, "\n"), ""
		}
	}
	head = strings.TrimRight(head, "\n") + "\n"
	body = strings.TrimSuffix(body, "\n")
	if _, ok := set["crlf"]; ok {
		body = strings.ReplaceAll(body, "\n", "\r\n")
	}
	c := Case{API: set["api"], Want: set["want"], Differs: strings.Fields(set["differs"])}
	if surfaces[c.API] == "" {
		return Case{}, fmt.Errorf("no API %q", c.API)
	}
	if c.head, err = unescape(strings.ReplaceAll(head, "\n", "\r\n")); err != nil {
		return Case{}, err
	}
	if c.body, err = unescape(body); err != nil {
		return Case{}, err
	}
	for name := range set {
		c.body = encode(name, c.body)
	}
	return c, nil
}

var escape = regexp.MustCompile(`‹([0-9a-f ]*)(\*[0-9]+)?›`)

func unescape(s string) ([]byte, error) {
	var failed error
	out := escape.ReplaceAllStringFunc(s, func(m string) string {
		parts := escape.FindStringSubmatch(m)
		b, err := hex.DecodeString(strings.ReplaceAll(parts[1], " ", ""))
		if err != nil {
			failed = fmt.Errorf("%s: %w", m, err)
		}
		n := 1
		if parts[2] != "" {
			n, _ = strconv.Atoi(parts[2][1:])
		}
		return strings.Repeat(string(b), n)
	})
	return []byte(out), failed
}

// encode writes a body in one of Unicode's wide encodings.
func encode(name string, body []byte) []byte {
	var order binary.AppendByteOrder = binary.LittleEndian
	if strings.HasSuffix(name, "be") {
		order = binary.BigEndian
	}
	var out []byte
	switch strings.TrimSuffix(strings.TrimSuffix(name, "le"), "be") {
	case "utf-16":
		for _, u := range utf16.Encode([]rune(string(body))) {
			out = order.AppendUint16(out, u)
		}
	case "utf-32":
		for _, r := range string(body) {
			out = order.AppendUint32(out, uint32(r))
		}
	default:
		return body
	}
	return out
}

// rename replaces NAME by the API's token name, in every encoding.
func rename(b []byte, to string) []byte {
	s := strings.ReplaceAll(string(b), "NAME", to)
	for _, enc := range []string{"utf-16le", "utf-16be", "utf-32le", "utf-32be"} {
		s = strings.ReplaceAll(s, string(encode(enc, []byte("NAME"))), string(encode(enc, []byte(to))))
	}
	return []byte(s)
}

// basic matches a text to encode in base64.
var basic = regexp.MustCompile(`(?s)‹basic (.*?)›`)

// Request returns the bytes of the case for one API, with NAME replaced by word.
func (c Case) Request(a API, word string) []byte {
	head, body := basic.ReplaceAllFunc(rename(c.head, word), func(m []byte) []byte {
		text := basic.FindSubmatch(m)[1]
		return base64.StdEncoding.AppendEncode(nil, text)
	}), rename(c.body, word)
	line, fields, _ := strings.Cut(string(head), "\r\n")
	out := line + "\r\nHost: " + a.Host + "\r\n" + fields
	if len(body) > 0 && !strings.Contains(strings.ToLower(fields), "transfer-encoding:") &&
		!strings.Contains(strings.ToLower("\r\n"+fields), "\r\ncontent-length:") {
		out += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return append([]byte(out+"\r\n"), body...)
}

// Size returns the length of the case in bytes.
func (c Case) Size() int { return len(c.head) + len(c.body) }
