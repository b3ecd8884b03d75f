// Package formdata reads multipart bodies in the one way that every server shares, and writes them from the parsed
// parts.
//
// Threat: a body that the proxy and the server read differently, so that a credential goes into a field that is
// published, or a method override passes unseen. Servers differ in the boundaries that they accept, in the choice
// between two headers or parameters, and in escapes, folding, encodings and charsets.
//
// Contract: a Reader's output contains only parsed parts, with a boundary that the body's author could not know, and
// heads that are written from the parsed ones. A body without a single reading ends in an *Error. Bodies stream in
// constant memory.
package formdata

import (
	"bufio"
	"bytes"
	"io"
)

// Error is the error for a body, or its type, that servers read in different ways. Reason is a constant without text of
// the request.
type Error struct{ Reason string }

// Error implements error.
func (e *Error) Error() string { return "the request's body is ambiguous: " + e.Reason }

// Sentence returns the reason as a whole sentence.
func (e *Error) Sentence() string {
	return "Servers would read the body in different ways: " + e.Reason + "."
}

// Reader reads a multipart body and returns it as it leaves the proxy. Make one with NewReader.
type Reader struct {
	conf  Config
	src   *bufio.Reader
	delim []byte // the line that separates parts, up to the end of the boundary
	out   bytes.Buffer
	part  io.Reader // the content of the current part
	began bool
	err   error
}

// Config configures a Reader.
type Config struct {
	// From is the type of the body as it arrives. To is the type with which it leaves: From.Fresh.
	From, To Type
	// Exact means that the length must not change, because the server already knows the length of the body.
	Exact bool
	// Open is called at the beginning of each part, before any content is read. It returns the new content, or rejects the
	// body with an error. Its changes to the part also leave.
	Open func(p *Part, content io.Reader) (io.Reader, error)
}

// readWindow is longer than any boundary and any line of a head, in bytes.
const readWindow = 8 << 10

// NewReader returns a Reader of a body whose types have been parsed.
func NewReader(src io.Reader, c Config) *Reader {
	return &Reader{conf: c, src: bufio.NewReaderSize(src, readWindow), delim: []byte("\r\n--" + c.From.Boundary())}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case r.out.Len() > 0:
			return r.out.Read(p)
		case r.err != nil:
			return 0, r.err
		case r.part == nil:
			r.err = r.nextPart()
			continue
		}
		n, err := r.part.Read(p)
		if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			r.part, err = nil, nil
		}
		r.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, nil
}

// nextPart writes the text between two parts: the rest of the boundary's line and the head of the next part, or the
// end.
func (r *Reader) nextPart() error {
	read, err := r.readBoundary()
	if err != nil {
		return err
	}
	last, err := r.src.Peek(2)
	switch {
	// RFC 2046 allows white space after the boundary, but servers differ in accepting it.
	case string(last) == "\r\n":
	case string(last) == "--":
		return r.writeEnd(read)
	case err != nil:
		return newEndError(err)
	default:
		return &Error{"a line continues after the boundary"}
	}
	_, _ = r.src.Discard(2)
	part, n, err := readHead(r.src, r.conf.From)
	if err != nil {
		return err
	}
	inner, err := r.conf.Open(part, &partContent{r: r, last: '\n'})
	if err != nil {
		return err
	}
	r.writeBoundary()
	r.out.WriteString("\r\n")
	// The server already knows the length, so the written head must be as long as the read one.
	part.writeHead(&r.out)
	if r.conf.Exact && r.out.Len() != read+2+n {
		r.out.Reset()
		return &Error{"a part's head is not written as browsers write it, in a body of more than 256 KiB"}
	}
	r.part = inner
	return nil
}

// readBoundary reads a boundary and returns its length. A blank line may precede the first boundary.
func (r *Reader) readBoundary() (int, error) {
	n := len(r.delim)
	if !r.began {
		if first, _ := r.src.Peek(2); string(first) != "\r\n" {
			n -= len("\r\n")
		}
	}
	line, err := r.src.Peek(n)
	switch {
	case bytes.Equal(line, r.delim[len(r.delim)-n:]):
	case err != nil && err != io.EOF: //nolint:errorlint // an io.Reader ends with this value itself
		return 0, err
	default:
		return 0, &Error{"it does not begin with its boundary"} // after a part there is always one
	}
	_, _ = r.src.Discard(n)
	return n, nil
}

func (r *Reader) writeBoundary() {
	if r.began {
		r.out.WriteString("\r\n")
	}
	r.began = true
	r.out.WriteString("--")
	r.out.WriteString(r.conf.To.Boundary())
}

// writeEnd writes the last boundary, if at most a line break follows.
func (r *Reader) writeEnd(read int) error {
	rest, err := r.src.Peek(len("--\r\n") + 1)
	switch {
	case err != nil && err != io.EOF: //nolint:errorlint // an io.Reader ends with this value itself
		// Some servers read text after the last boundary as another part.
		return err
	case err == nil || string(rest) != "--" && string(rest) != "--\r\n":
		return &Error{"something follows the last boundary"}
	}
	r.writeBoundary()
	r.out.Write(rest)
	if r.conf.Exact && r.out.Len() != read+len(rest) {
		r.out.Reset()
		return &Error{"a blank line precedes the first boundary, in a body of more than 256 KiB"}
	}
	return io.EOF
}

// newEndError returns the error for a body that ends too early.
func newEndError(err error) error {
	if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		return &Error{"it does not end with its boundary"}
	}
	return err
}

type partContent struct {
	r    *Reader
	last byte // the last byte read
	done bool
}

func (c *partContent) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}
	src := c.r.src
	for want := 1; ; {
		if _, err := src.Peek(want); err != nil {
			return 0, newEndError(err)
		}
		// Only buffered bytes: the content leaves as it arrives.
		held, _ := src.Peek(src.Buffered())
		n, err := c.countPlain(held)
		if err != nil || c.done {
			return 0, err
		}
		if n = min(n, len(p)); n > 0 {
			copy(p, held[:n])
			c.last = held[n-1]
			_, _ = src.Discard(n)
			return n, nil
		}
		want = len(held) + 1
	}
}

// countPlain returns the number of bytes that certainly belong to the content. 0 may mean that the content has ended.
func (c *partContent) countPlain(held []byte) (int, error) {
	delim := c.r.delim
	dashes := delim[len("\r\n"):]
	i := bytes.Index(held, dashes)
	if i < 0 {
		// The end of the buffer may be the beginning of a boundary.
		return len(held) - max(longestOverlap(held, delim), longestOverlap(held, dashes)), nil
	}
	if i >= 2 && string(held[i-2:i]) == "\r\n" {
		c.done = i == 2
		return i - 2, nil
	}
	last := c.last
	if i > 0 {
		last = held[i-1]
	}
	// Some servers accept a bare CR or LF before a boundary, others read it as content.
	//defence:multipart
	if last == '\n' || last == '\r' {
		return 0, &Error{"a line begins with the boundary after something other than CRLF"}
	}
	return i + 1, nil
}

// longestOverlap returns the length of the longest suffix of s that is a prefix of text.
func longestOverlap(s, text []byte) int {
	for n := min(len(s), len(text)-1); n > 0; n-- {
		if s[len(s)-n] == text[0] && bytes.HasPrefix(text, s[len(s)-n:]) {
			return n
		}
	}
	return 0
}
