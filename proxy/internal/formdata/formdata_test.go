package formdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

const head = "Content-Disposition: form-data; name=\"a\"\r\n"

func form(parts ...string) string {
	s := ""
	for _, p := range parts {
		s += "--b\r\n" + p + "\r\n"
	}
	return s + "--b--\r\n"
}

// typeOf is the type of a request.
func typeOf(values ...string) (Type, error) {
	t, err := ParseRequestType(http.Header{"Content-Type": values})
	if err == nil {
		err = t.CheckCharset()
	}
	return t, err
}

// read reads a body of a type, and returns its parts as "name|filename|type=content".
func read(t testing.TB, kind, body string, wrap func(io.Reader) io.Reader) (written string, parts []string, err error) {
	t.Helper()
	from, err := typeOf(kind)
	if err != nil {
		return "", nil, err
	}
	to := from.WithNewBoundary()
	r := NewReader(wrap(strings.NewReader(body)), Config{From: from, To: to, Open: func(p *Part, content io.Reader) (io.Reader, error) {
		data, err := io.ReadAll(content)
		parts = append(parts, p.Name+"|"+p.FileName+"|"+p.Type.Media+"="+string(data))
		return bytes.NewReader(data), err
	}})
	data, err := io.ReadAll(r)
	if _, again := r.Read(make([]byte, 1)); err != nil && !errors.Is(again, err) {
		t.Errorf("%q: the error is not sticky: %v, %v", body, err, again)
	}
	if strings.Contains(string(data), "\n--"+from.Boundary()) {
		t.Errorf("%q: its author's boundary separates parts: %q", body, data)
	}
	return strings.ReplaceAll(string(data), to.Boundary(), "b"), parts, err
}

var wraps = map[string]func(io.Reader) io.Reader{
	"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "early end": iotest.DataErrReader,
}

// TestWrittenAnew: a body with one reading leaves in the form that browsers write.
// Promise: one-reading-of-forms
func TestWrittenAnew(t *testing.T) {
	long := strings.Repeat("0123456789\r\n--\r\n-b--bb-\n\r", 5000)
	for body, want := range map[string]string{
		form(head + "\r\nx"): "",
		"--b--":              "", "--b--\r\n": "",
		form(head+"\r\n", head+"\r\n\r\n", head+"\r\n--"): "",
		form(head + "\r\n" + long):                        "",
		strings.TrimSuffix(form(head+"\r\nx"), "\r\n"):    "",
		form("Content-Disposition: form-data; name=\"a\"; filename=\"b;.txt\"\r\nContent-Type: text/plain;charset=utf-8\r\n\r\nx"): "",
		"\r\n" + form(head+"\r\nx"):                                                                       form(head + "\r\nx"),
		form("content-disposition:FORM-DATA;name=a\r\n\r\nx"):                                             form(head + "\r\nx"),
		form("Content-Type: text/plain\r\n" + head + "\r\nx"):                                             form(head + "Content-Type: text/plain\r\n\r\nx"),
		form(head + "Content-Length: 7\r\nMIME-Version: 1.0\r\nContent-Transfer-Encoding: 8BIT\r\n\r\nx"): form(head + "\r\nx"),
		form("Content-Disposition: form-data; filename=\"f\"; name=\"a\";\r\n\r\nx"):                      form("Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\n\r\nx"),
		form("Content-Disposition: form-data; name=\"user[é.x][][0]\"; filename=\"\"\r\n\r\nx"):           "",
		form("Content-Disposition: form-data; name=\"a\"; filename=\"C:\\temp\\b.txt\"\r\n\r\nx"):         "",
		form("Content-Disposition: form-data; filename=\"\\\\b%22\"; name=\"a\"\r\n\r\nx"):                form("Content-Disposition: form-data; name=\"a\"; filename=\"\\\\b%22\"\r\n\r\nx"),
	} {
		for name, wrap := range wraps {
			got, _, err := read(t, "multipart/form-data; boundary=b", body, wrap)
			if want == "" {
				want = body
			}
			if err != nil || got != want {
				t.Errorf("%s: %.300q became %.300q, %v", name, body, got, err)
			}
		}
	}
}

// TestExact: if the server may already know the length, a body leaves in as many bytes, or not at all.
func TestExact(t *testing.T) {
	boundary := strings.Repeat("b", minBoundary)
	for body, ok := range map[string]bool{
		form(head+"\r\nx", head+"\r\n\r\n"):            true,
		strings.TrimSuffix(form(head+"\r\nx"), "\r\n"): true,
		"--b--": true,
		form("CONTENT-TYPE: text/plain;charset=utf-8\r\n" + head + "\r\nx"): true,
		form("Content-Disposition: form-data; name=a\r\n\r\nx"):             false,
		form("Content-Disposition:form-data; name=\"a\"\r\n\r\nx"):          false,
		form(head + "Content-Length: 1\r\n\r\nx"):                           false,
		"\r\n" + form(head+"\r\nx"):                                         false,
		"\r\n--b--":                                                         false,
	} {
		body = strings.ReplaceAll(body, "--b", "--"+boundary)
		from, _ := ParseType([]string{"multipart/form-data; boundary=" + boundary})
		r := NewReader(strings.NewReader(body), Config{From: from, To: from.WithNewBoundary(), Exact: true,
			Open: func(_ *Part, content io.Reader) (io.Reader, error) { return content, nil }})
		if got, err := io.ReadAll(r); (err == nil) != ok || ok && len(got) != len(body) || len(got) > len(body) {
			t.Errorf("%q became %q, %v", body, got, err)
		}
	}
}

// ambiguous are bodies that servers in use read in different ways.
func ambiguous() map[string]string {
	field := func(parameters string) string {
		return form("Content-Disposition: form-data; " + parameters + "\r\n\r\nx")
	}
	return map[string]string{
		"name*":                          field(`name="a"; name*=utf-8''b`),
		"name* alone":                    field(`name*=utf-8''b`),
		"name* first":                    field(`name*=utf-8''b; name="a"`),
		"name*0":                         field(`name*0="a"; name*1="b"`),
		"name*0*":                        field(`name*0*=utf-8''a; name="a"`),
		"filename*":                      field(`name="a"; filename="f"; filename*=utf-8''g`),
		"a form in a form":               form(head + "Content-Type: application/x-www-form-urlencoded\r\n\r\na=b&c="),
		"blank name":                     field(`name=" "`),
		"bracket first":                  field(`name="[a]"`),
		"bracket that is not closed":     field(`name="a[b"`),
		"bracket that is not opened":     field(`name="a]"`),
		"bracket in brackets":            field(`name="a[[b]]"`),
		"text behind brackets":           field(`name="a[b]c"`),
		"two names":                      field(`name="a"; name="b"`),
		"two names in two cases":         field(`name="a"; NAME="b"`),
		"two filenames":                  field(`name="a"; filename="b"; filename="c"`),
		"another parameter":              field(`name="a"; size=1`),
		"a name in a parameter's name":   field(`x-name="a"; name="b"`),
		"no name":                        field(`filename="a"`),
		"empty name":                     field(`name=""`),
		"quoted pair":                    field(`name="\a"`),
		"quoted quote":                   field(`name="a\"; name=\"b"`),
		"backslash before the end":       field(`name="a\\"`),
		"backslash in a name":            field(`name="a\b"; filename="c\d"`),
		"backslash ends a file's name":   field(`name="a"; filename="b\"`),
		"two end a file's name":          field(`name="a"; filename="b\\"`),
		"quoted quote in a file's name":  field(`name="a"; filename="b\"; name=\"c"`),
		"backslash in a bare file name":  field(`name="a"; filename=b\c`),
		"backslash in another parameter": field(`name="a"; filename="b"; filename2="c\d"`),
		"backslash in a part's type":     form(head + "Content-Type: text/plain; filename=\"a\\b\"\r\n\r\nx"),
		"single quotes":                  field(`name='a'`),
		"quote that is not closed":       field(`name="a`),
		"name in a file's name":          field(`name="a"; filename="x; name=b; y"`),
		"parameter in a name":            field(`name="a; filename=b"`),
		"spaces around the equals sign":  field(`name = "a"`),
		"space in a bare name":           field(`name=a b`),
		"text behind a name":             field(`name="a"b`),
		"comma":                          field(`name="a", form-data; name="b"`),
		"comment":                        field(`name="a" (b)`),
		"encoded word":                   field(`name==?utf-8?q?b?=`),
		"two semicolons":                 field(`name="a";; name="b"`),
		"no equals sign":                 field(`name; name="b"`),
		"NUL in a name":                  field("name=\"a\x00b\""),
		"tab in a name":                  field("name=\"a\tb\""),
		"DEL in a name":                  field("name=\"a\x7fb\""),
		"invalid UTF-8 in a name":        field("name=\"a\xffb\""),
		"a C1 control in a name":         field("name=\"a\u0085b\""),
		"the charset of the other parts": field(`name="_charset_"`),
		"attachment":                     form("Content-Disposition: attachment; name=\"a\"\r\n\r\nx"),
		"no disposition":                 form("Content-Disposition: ; name=\"a\"\r\n\r\nx"),
		"no Content-Disposition":         form("Content-Type: text/plain\r\n\r\nx"),
		"no head":                        form("\r\nx"),
		"two Content-Dispositions":       form(head + "Content-Disposition: form-data; name=\"b\"\r\n\r\nx"),
		"two in two cases":               form(head + "content-disposition: form-data; name=\"b\"\r\n\r\nx"),
		"two equal ones":                 form(head + head + "\r\nx"),
		"two Content-Types":              form(head + "Content-Type: text/plain\r\nContent-Type: text/html\r\n\r\nx"),
		"base64":                         form(head + "Content-Transfer-Encoding: base64\r\n\r\nQVBJX0tFWQ=="),
		"quoted-printable":               form(head + "Content-Transfer-Encoding: quoted-printable\r\n\r\n=41"),
		"unknown transfer encoding":      form(head + "Content-Transfer-Encoding: x\r\n\r\nx"),
		"Content-Encoding":               form(head + "Content-Encoding: gzip\r\n\r\nx"),
		"another header":                 form(head + "X-Name: b\r\n\r\nx"),
		"charset of a field":             form(head + "Content-Type: text/plain; charset=utf-16\r\n\r\nx"),
		"charset twice":                  form(head + "Content-Type: text/plain; charset=utf-8; charset=utf-16\r\n\r\nx"),
		"charset*":                       form(head + "Content-Type: text/plain; charset*=''utf-16\r\n\r\nx"),
		"nested":                         form(head + "Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--"),
		"a message":                      form(head + "Content-Type: message/rfc822\r\n\r\nx"),
		"folded":                         form("Content-Disposition: form-data;\r\n name=\"a\"\r\n\r\nx"),
		"folded with a tab":              form("Content-Disposition: form-data;\r\n\tname=\"a\"\r\n\r\nx"),
		"folded first":                   form(" " + head + "\r\nx"),
		"space before the colon":         form("Content-Disposition : form-data; name=\"a\"\r\n\r\nx"),
		"a header without a colon":       form(head + "x\r\n\r\nx"),
		"LF after a header":              form("Content-Disposition: form-data; name=\"a\"\n\r\nx"),
		"LF after the head":              form(head + "\nx"),
		"CR in a header":                 form("Content-Disposition: form-data;\rname=\"a\"\r\n\r\nx"),
		"two CRs":                        form("Content-Disposition: form-data; name=\"a\"\r\r\n\r\nx"),
		"a long head":                    form(head + "Content-Type: text/plain; x=\"" + strings.Repeat("x", maxHead) + "\"\r\n\r\nx"),
		"a head without end":             "--b\r\nA:" + strings.Repeat("x", 3*readWindow),
		"LF before a boundary":           "--b\r\n" + head + "\r\nx\n--b\r\n" + head + "\r\ny\r\n--b--\r\n",
		"CR before a boundary":           "--b\r\n" + head + "\r\nx\r--b\r\n" + head + "\r\ny\r\n--b--\r\n",
		"LF after a boundary":            "--b\r\n" + head + "\r\nx\r\n--b\n" + head + "\r\ny\r\n--b--\r\n",
		"LF after the first boundary":    "--b\n" + head + "\r\nx\r\n--b--\r\n",
		"space after a boundary":         "--b \r\n" + head + "\r\nx\r\n--b--\r\n",
		"tab after a boundary":           "--b\r\n" + head + "\r\nx\r\n--b\t\r\n" + head + "\r\ny\r\n--b--\r\n",
		"space before the last":          "--b\r\n" + head + "\r\nx\r\n--b --\r\n",
		"a boundary that goes on":        "--b\r\n" + head + "\r\nx\r\n--bc\r\n" + head + "\r\ny\r\n--b--\r\n",
		"one dash":                       "--b\r\n" + head + "\r\nx\r\n--b-\r\n--b--\r\n",
		"empty content without its line": "--b\r\n" + head + "\r\n--b--\r\n",
		"preamble":                       "x\r\n" + form(head+"\r\nx"),
		"two blank lines":                "\r\n\r\n" + form(head+"\r\nx"),
		"LF first":                       "\n" + form(head+"\r\nx"),
		"epilogue":                       form(head+"\r\nx") + "x",
		"a form behind the form":         form(head+"\r\nx") + form(head+"\r\nx"),
		"a blank line behind it":         form(head+"\r\nx") + "\r\n",
		"LF at the end":                  "--b\r\n" + head + "\r\nx\r\n--b--\n",
		"no end":                         "--b\r\n" + head + "\r\nx",
		"no last boundary":               "--b\r\n" + head + "\r\nx\r\n--b\r\n",
		"half of the last boundary":      "--b\r\n" + head + "\r\nx\r\n--b-",
		"nothing":                        "",
		"another boundary":               "--c\r\n" + head + "\r\nx\r\n--c--\r\n",
		"another boundary's case":        "--B\r\n" + head + "\r\nx\r\n--B--\r\n",
	}
}

// TestAmbiguous: each is refused, however it is split, and its end never leaves.
// Promise: one-reading-of-forms
func TestAmbiguous(t *testing.T) {
	for name, body := range ambiguous() {
		for way, wrap := range wraps {
			got, _, err := read(t, "multipart/form-data; boundary=b", body, wrap)
			var a *Error
			if !errors.As(err, &a) || a.Reason == "" || strings.Contains(got, "--b--") {
				t.Errorf("%s, %s: %q became %q, %v", name, way, body, got, err)
			}
		}
	}
	var a *Error
	body := form("Content-Disposition: attachment; filename=\"_meth\\od\"\r\n\r\nx") // where that may be the field's name
	if got, _, err := read(t, "multipart/mixed; boundary=b", body, wraps["whole"]); !errors.As(err, &a) {
		t.Errorf("%q became %q, %v", body, got, err)
	}
}

// TestTypes: one Content-Type with one reading, or none.
// Promise: one-reading-of-forms
func TestTypes(t *testing.T) {
	for value, fresh := range map[string]string{
		"multipart/form-data; boundary=b":                       "multipart/form-data; boundary=NEW",
		"Multipart/Form-Data;BOUNDARY=\"b\";":                   "multipart/form-data; boundary=NEW",
		" multipart/form-data; charset=UTF-8; boundary=\"a=b\"": "multipart/form-data; boundary=NEW",
		"multipart/related; type=\"text/xml\"; boundary=b":      "multipart/related; boundary=NEW; type=\"text/xml\"",
		"application/json;charset=utf-8":                        "",
		"application/json;odata=verbose":                        "",
		"":                                                      "",
	} {
		got, err := typeOf(value)
		if err != nil || fresh != "" && got.WithBoundary("NEW").String() != fresh || got.String() != strings.TrimSpace(value) {
			t.Errorf("%q: %+v, %v", value, got, err)
		}
	}
	for _, values := range [][]string{
		{"text/plain", "multipart/form-data; boundary=b"},
		{"multipart/form-data; boundary=b", "multipart/form-data; boundary=b"},
		{"multipart/form-data"},
		{"multipart/form-data; boundary="},
		{"multipart/form-data; boundary=\"\""},
		{"multipart/form-data; boundary=a; boundary=b"},
		{"multipart/form-data; boundary=a; Boundary=b"},
		{"multipart/form-data; boundary*=utf-8''b"},
		{"multipart/form-data; boundary*=utf-8''b; boundary=a"},
		{"multipart/form-data; boundary*0=a; boundary*1=b"},
		{"multipart/form-data; boundary=a,b"},
		{"multipart/form-data; boundary=a, text/plain"},
		{"multipart/form-data, text/plain; boundary=a"},
		{"multipart/form-data; boundary=\"a\\b\""},
		{"multipart/form-data; boundary=\"a"},
		{"multipart/form-data; boundary=\"a\"b"},
		{"multipart/form-data; boundary='a'"},
		{"multipart/form-data; boundary=a b"},
		{"multipart/form-data; boundary = a"},
		{"multipart/form-data; boundary=\"a \""},
		{"multipart/form-data; boundary=\"a\x00b\""},
		{"multipart/form-data; boundary=\"é\""},
		{"multipart/form-data; boundary=" + strings.Repeat("b", 71)},
		{"multipart/form-data boundary=a"},
		{"multipart/form-data; boundary=a; charset=utf-16"},
		{"multipart /form-data; boundary=a"},
		{"multipart/form-data/x; boundary=a"},
		{"application/x-www-form-urlencoded; charset=cp037"},
		{"application/json; charset=utf-16"},
		{"application/json; charset=utf-8; charset=utf-16"},
		{"application/json, text/plain"},
		{"text"},
		{"text/plain; " + strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz0123456789", ""), "=1; ") + "=1"},
		{"text/plain; x=\"multipart/form-data; boundary=b\""},
		{"text/plain; multipart=1"},
		{"text/x-multipart; boundary=b"},
		{"application/json; x=urlencoded"},
		{"application/octet-stream; x=\"application/json\""},
		{"application/json-urlencoded"},
		{"multipart/form-data; boundary=b; x=\"application/x-www-form-urlencoded\""},
	} {
		var a *Error
		if got, err := typeOf(values...); !errors.As(err, &a) {
			t.Errorf("%q: %+v, %v", values, got, err)
		}
	}
}

// TestTypeBySpelling: a header that CGI cannot distinguish from Content-Type counts as a second one.
func TestTypeBySpelling(t *testing.T) {
	for _, h := range []http.Header{
		{"Content-Type": {"text/plain"}, "Content_type": {"multipart/form-data; boundary=b"}}, {"Content_Type": {"text/plain"}},
	} {
		if got, err := ParseRequestType(h); err == nil {
			t.Errorf("%v: %+v", h, got)
		}
	}
}

// TestFresh: a boundary cannot be guessed, and is no longer than the old one, unless that is too short.
func TestFresh(t *testing.T) {
	for _, n := range []int{1, minBoundary - 1, minBoundary, 38, 70} {
		from, err := ParseType([]string{"multipart/form-data; boundary=" + strings.Repeat("b", n)})
		if err != nil {
			t.Fatal(err)
		}
		a, b := from.WithNewBoundary().Boundary(), from.WithNewBoundary().Boundary()
		if a == b || len(a) != max(n, minBoundary) || !isBoundary(a) {
			t.Errorf("%d: %q, %q", n, a, b)
		}
	}
}

// TestOtherParts: parts of other types keep their heads, if those have one reading.
func TestOtherParts(t *testing.T) {
	const kind = "multipart/related; boundary=b"
	good := form("Content-Type: application/json\r\n\r\n{}", "Content-Type: multipart/mixed; boundary=c\r\nContent-ID: <x>\r\nX-A: b\r\n\r\n--c--", "\r\nx")
	if got, _, err := read(t, kind, good, wraps["bytes"]); err != nil || got != good {
		t.Errorf("became %q, %v", got, err)
	}
	for _, head := range []string{
		"Content-ID: a\r\ncontent-id: b\r\n", "Content-Disposition: x; name*=a\r\n", "X: y\r\n z\r\n", "Content-Transfer-Encoding: base64\r\n", "X : y\r\n",
	} {
		if got, _, err := read(t, kind, form(head+"\r\nx"), wraps["whole"]); err == nil {
			t.Errorf("%q became %q", head, got)
		}
	}
}

// TestContentArrives: content leaves as soon as it cannot be a boundary, without another byte of the body.
func TestContentArrives(t *testing.T) {
	from, _ := ParseType([]string{"multipart/form-data; boundary=b"})
	stalled := errors.New("stalled")
	src := io.MultiReader(strings.NewReader("--b\r\n"+head+"\r\n\r"), strings.NewReader("x"), iotest.ErrReader(stalled))
	got := ""
	r := NewReader(src, Config{From: from, To: from.WithNewBoundary(), Open: func(_ *Part, content io.Reader) (io.Reader, error) {
		p := make([]byte, 10)
		n, err := content.Read(p)
		got = string(p[:n])
		return content, err
	}})
	if _, err := io.ReadAll(r); got != "\rx" || !errors.Is(err, stalled) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestReadFails: an error of the source ends the body, at each byte before the last boundary's end.
func TestReadFails(t *testing.T) {
	from, _ := ParseType([]string{"multipart/form-data; boundary=b"})
	body, stalled := form(head+"\r\nx", head+"\r\ny"), errors.New("stalled")
	for n := range len(body) - 2 {
		r := NewReader(io.MultiReader(strings.NewReader(body[:n]), iotest.ErrReader(stalled)), Config{From: from, To: from.WithNewBoundary(),
			Open: func(_ *Part, content io.Reader) (io.Reader, error) { return content, nil }})
		if _, err := io.ReadAll(r); !errors.Is(err, stalled) {
			t.Errorf("after %q: %v", body[:n], err)
		}
	}
}

// TestConstantMemory: a long body passes through one window.
func TestConstantMemory(t *testing.T) {
	from, _ := ParseType([]string{"multipart/form-data; boundary=b"})
	const size = 64 << 20
	src := io.MultiReader(strings.NewReader("--b\r\n"+head+"\r\n"), io.LimitReader(noise{}, size), strings.NewReader("\r\n--b--"))
	r := NewReader(src, Config{From: from, To: from.WithNewBoundary(), Open: func(_ *Part, content io.Reader) (io.Reader, error) { return content, nil }})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, r)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || n < size || used > 1<<20 {
		t.Errorf("%d bytes, %v, %d bytes of memory", n, err, used)
	}
}

// noise contains line ends and dashes.
type noise struct{}

func (noise) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "\r\n--\n-x\r"[i%8]
	}
	return len(p), nil
}

// FuzzReader: whatever came in, Go's own lenient parser reads the output as the fields that we judged.
// Promise: one-reading-of-forms
func FuzzReader(f *testing.F) {
	for _, body := range ambiguous() {
		f.Add(body)
	}
	f.Add(form(head+"\r\nx", "Content-Disposition: form-data; name=\"f\"; filename=\"g\"\r\nContent-Type: a/b\r\n\r\n\r\n"))
	f.Fuzz(func(t *testing.T, body string) {
		got, parts, err := read(t, "multipart/form-data; boundary=b", body, wraps["whole"])
		again, same, err2 := read(t, "multipart/form-data; boundary=b", body, wraps["bytes"])
		if got != again || fmt.Sprint(err) != fmt.Sprint(err2) || err == nil && fmt.Sprint(parts) != fmt.Sprint(same) {
			t.Fatalf("%q in bytes: %q, %v, not %q, %v", body, again, err2, got, err)
		}
		if err != nil || strings.Contains(body, "--b") && strings.Count(got, "--b") != len(parts)+1 {
			return // the replaced boundary occurs in the content too
		}
		m := multipart.NewReader(strings.NewReader(got), "b")
		for i := 0; ; i++ {
			p, err := m.NextRawPart()
			if err == io.EOF && i == len(parts) { //nolint:errorlint // the reader's own value
				return
			}
			if err != nil || i == len(parts) {
				t.Fatalf("%q became %q: %v", body, got, err)
			}
			data, err := io.ReadAll(p)
			if read := p.FormName() + "|"; err != nil || !strings.HasPrefix(parts[i], read) || !strings.HasSuffix(parts[i], "="+string(data)) {
				t.Fatalf("%q became %q: part %d is %q, not %q: %v", body, got, i, read+string(data), parts[i], err)
			}
		}
	})
}

// TestUnbound: requests compare equal when every parser finds the same parts in them, and not when one may find others.
// Promise: repeated-writes
func TestUnbound(t *testing.T) {
	const head = "Content-Disposition: form-data; name=\"amount\"\r\n\r\n"
	form := func(boundary string, parts ...string) string {
		body := ""
		for _, p := range parts {
			body += "--" + boundary + "\r\n" + p + "\r\n"
		}
		return body + "--" + boundary + "--\r\n"
	}
	typed := func(boundary string) []string {
		return []string{"Accept: x", "Content-Type: multipart/form-data; boundary=" + boundary}
	}
	sum := func(headers []string, body string) string {
		headers, body = StripBoundary(headers, body)
		return fmt.Sprintf("%q %q", headers, body)
	}
	const one, two, evil = "----1111222233334444", "----5555666677778888", "deadbeefdeadbeefdead"
	same := head + "a\n--" + evil + "\r\n" + head + "b"
	approved := sum(typed(one), form(one, head+"100", same))
	if got := sum(typed(two), form(two, head+"100", same)); got != approved {
		t.Errorf("with another boundary:\n%s\n%s", got, approved)
	}
	for name, got := range map[string]string{
		"a boundary that lax parsers see in the content": sum(typed(evil), form(evil, head+"100", same)),
		"one that they see in it when they cut it":       sum(typed(evil[:16]+",zzz"), form(evil[:16]+",zzz", head+"100", same)),
		"one that they see in it when they shorten it":   sum(typed(evil[:8]+"00001111"+"2222"), form(evil[:8]+"000011112222", head+"100", same)),
		"a boundary of another length":                   sum(typed(two+"9"), form(two+"9", head+"100", same)),
		"another amount":                                 sum(typed(two), form(two, head+"900", same)),
		"the boundary in the content":                    sum(typed(two), form(two, head+two, same)),
		"one part less":                                  sum(typed(two), form(two, head+"100\r\n--"+one+"\r\n"+same)),
		"text before":                                    sum(typed(two), "x"+form(two, head+"100", same)),
		"text after":                                     sum(typed(two), form(two, head+"100", same)+"x"),
		"a line that goes on":                            sum(typed(two), strings.Replace(form(two, head+"100", same), two+"\r\n", two+" \r\n", 1)),
		"another charset":                                sum(typed(two+"; charset=utf-16"), form(two, head+"100", same)),
		"another type":                                   sum([]string{"Accept: x", "Content-Type: multipart/mixed; boundary=" + two}, form(two, head+"100", same)),
		"two types":                                      sum(append(typed(two), typed(two)...), form(two, head+"100", same)),
		"another header":                                 sum(append(typed(two), "Account: x"), form(two, head+"100", same)),
		"none":                                           sum([]string{"Accept: x"}, form(two, head+"100", same)),
	} {
		if got == approved {
			t.Errorf("%s: compares equal", name)
		}
	}
	const nested = "Content-Disposition: form-data; name=\"files\"\r\nContent-Type: multipart/mixed; boundary=evil\r\n\r\n" +
		"--evil\r\nContent-Disposition: file; filename=a\r\n\r\n1"
	for name, c := range map[string]struct {
		typed string // with BOUNDARY
		other string // a boundary that some parser takes for more than one
		part  string
	}{
		"PHP takes the first text that has boundary in its name": {
			"Content-Type: multipart/form-data; xboundary=evil; boundary=BOUNDARY", one, head + "\r\n--evil\r\n" + head + "5",
		},
		"a parser takes the last": {
			"Content-Type: multipart/form-data; boundary=BOUNDARY; xboundary=evil", one, head + "\r\n--evil\r\n" + head + "5",
		},
		"CGI reads a second type": {
			"Content_Type: multipart/form-data; boundary=" + one + "\nContent-Type: multipart/form-data; boundary=BOUNDARY", one, head + "5",
		},
		"formidable 1 reads a form without parts":          {typed("BOUNDARY")[1], "------urlencoded", head + "a&amount=900&b=c"},
		"formidable reads JSON":                            {typed("BOUNDARY")[1], "------------JSON", head + "5"},
		"formidable reads a file":                          {typed("BOUNDARY")[1], "----octet-stream", head + "5"},
		"cgi of Python looks for the inner boundary alone": {typed("BOUNDARY")[1], one, nested},
		"PHP reads a head until a blank line":              {typed("BOUNDARY")[1], one, "Content-Disposition: form-data; name=\"acct"},
		"Rack takes no blank line for a head's end":        {typed("BOUNDARY")[1], one, "\r\nContent-Disposition: form-data; name=\"acct"},
		"cgi of Python reads an inner form to the end": {
			typed("BOUNDARY")[1], one, "Content-Type: application/x-www-form-urlencoded\r\n" + head + "amount=1&account=",
		},
	} {
		with := func(boundary string) string {
			return sum(strings.Split(strings.ReplaceAll(c.typed, "BOUNDARY", boundary), "\n"), form(boundary, c.part, head+"b"))
		}
		if with(c.other) == with(strings.Repeat("7", len(c.other))) {
			t.Errorf("%s: compares equal", name)
		}
	}
	spaced := func(b string) string {
		return sum(typed(b), strings.ReplaceAll(form(b, head+"1", head+"2"), b+"\r\n", b+" \r\n"))
	}
	if spaced(one) == spaced(two) {
		t.Error("lines that only some parsers take for boundaries compare equal")
	}
	if _, kept := StripBoundary([]string{"Content_Type: multipart/form-data; boundary=" + one}, form(one, head+"5")); kept != form(one, head+"5") {
		t.Errorf("not a type to most servers: %q", kept)
	}
	// What a body is compared as is no body of another request.
	headers, body := StripBoundary(typed(one), form(one, head+"100"))
	if sum(typed(""), body) == sum(headers, body) || sum(typed(strings.Repeat("\x00", len(one))), body) != fmt.Sprintf("%q %q", headers, body) {
		t.Errorf("%q %q", headers, body)
	}
	if _, kept := StripBoundary(typed(one), `{"amount":5}`); kept != `{"amount":5}` {
		t.Errorf("%q", kept)
	}
}

// TestSecondType: a header that CGI writes as a second Content-Type makes the type ambiguous.
// Promise: one-reading-around-a-name
func TestSecondType(t *testing.T) {
	for _, name := range []string{"Content_Type", "content-type", "Content.Type", "CONTENT~TYPE"} {
		if got, err := ParseRequestType(http.Header{"Content-Type": {"text/plain"}, name: {"text/html"}}); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
