// Package framing finds the ends of messages in a streamed body, so that each message can leave once it is complete.
//
// Threat: the time at which a byte leaves must reveal nothing about credentials.
//
// Contract: the end of a message depends only on the body's type and on the framing bytes: lengths, line feeds, or the
// brackets, commas and quotes of JSON. Each message is searched separately, so a credential that is split over two
// messages is not found.
package framing

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
)

// Kind is the framing of a body's messages. With the zero Kind, the body is one message.
type Kind uint8

// The kinds of framing.
const (
	None    Kind = iota
	Lengths      // gRPC, gRPC-Web and Connect: a byte of flags and a length of four bytes before each message
	Lines        // JSON lines: a line feed after each message
	JSON         // the elements of one array, or a sequence of values
)

// DetectKind returns the framing of a body by its Content-Type. SSE events have no framing: they leave at their line
// feeds.
func DetectKind(h http.Header) Kind {
	media, _, _ := strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	grpc, isGRPC := strings.CutPrefix(media, "application/grpc")
	switch {
	case isGRPC && (grpc == "" || strings.HasPrefix(strings.TrimPrefix(grpc, "-web"), "+") || grpc == "-web"),
		strings.HasPrefix(media, "application/connect+"):
		return Lengths
	}
	switch media {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
		"application/x-jsonlines", "application/json-lines", "application/json-seq", "application/stream+json":
		return Lines
	}
	if media == "application/json" || strings.HasSuffix(media, "+json") {
		return JSON
	}
	return None
}

// Scanner finds the ends of messages in a body that arrives in pieces.
type Scanner struct {
	kind Kind

	head [5]byte // of Lengths
	have int     // the number of bytes in head
	left int64   // the remaining bytes of the message after its head

	depth           int  // of JSON: the number of open brackets
	array           bool // the outermost bracket is that of an array
	quoted, escaped bool
	scalar          bool // an element without brackets or quotes has begun
}

// NewScanner returns a Scanner for the beginning of a body.
func (k Kind) NewScanner() *Scanner { return &Scanner{kind: k} }

// NextPart returns the length of the first part of p. p must not be empty. The part ends with the current message
// (ended), or with p.
func (s *Scanner) NextPart(p []byte) (n int, ended bool) {
	switch s.kind {
	case Lengths:
		return s.nextLength(p)
	case Lines:
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			return i + 1, true
		}
	case JSON:
		return s.nextJSON(p)
	}
	return len(p), false
}

func (s *Scanner) nextLength(p []byte) (n int, ended bool) {
	if s.have < len(s.head) {
		n = copy(s.head[s.have:], p)
		if s.have += n; s.have < len(s.head) {
			return n, false
		}
		s.left = int64(binary.BigEndian.Uint32(s.head[1:]))
	}
	// The flags are 1: compressed; 2: the end of a stream of Connect; 0x80: trailers of gRPC-Web.
	if s.head[0]&^0x83 != 0 {
		return len(p), false // other flags mean another framing, so the rest leaves as one message
	}
	part := min(s.left, int64(len(p)-n))
	// The next byte begins another message.
	if s.left -= part; s.left == 0 {
		s.have = 0
	}
	return n + int(part), s.left == 0
}

func (s *Scanner) nextJSON(p []byte) (n int, ended bool) {
	for i, c := range p {
		if s.scanJSONByte(c) {
			s.scalar = false
			return i + 1, true
		}
	}
	return len(p), false
}

// scanJSONByte takes one byte and reports whether it ends a message.
func (s *Scanner) scanJSONByte(c byte) bool {
	// A message is a value at the top level, or an element of the outermost array.
	isElement := func() bool { return s.depth == 0 || s.depth == 1 && s.array }
	if s.quoted {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.quoted = false
			return isElement()
		}
		return false
	}
	switch c {
	case '"':
		s.quoted = true
	case '[', '{':
		if s.depth == 0 {
			s.array = c == '['
		}
		s.depth++
	case ']', '}':
		s.depth = max(s.depth-1, 0)
		return isElement()
	// A comma ends a scalar; a bracket or a quote has already ended other elements.
	case ',':
		return s.scalar && isElement()
	case ' ', '\t', '\r', '\n':
	default:
		s.scalar = s.scalar || isElement()
	}
	return false
}

// WrapMessages reads src through wrap. Unless the Kind is None, wrap makes one reader for each message. So a message
// leaves once it is complete, even if its reader holds bytes back until its end. If a message's reader has a Stop
// method, it is called when the reader is no longer needed.
func (k Kind) WrapMessages(src io.Reader, wrap func(io.Reader) io.Reader) io.Reader {
	if k == None {
		return wrap(src)
	}
	return &messageReader{message: message{src: src, scan: k.NewScanner()}, wrap: wrap}
}

// pieceSize is the size of one read from a source, in bytes.
const pieceSize = 16 << 10

// messageReader reads messages. Its error is sticky.
type messageReader struct {
	message message
	wrap    func(io.Reader) io.Reader
	current io.Reader
	err     error
}

func (r *messageReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		if r.current == nil {
			r.current = r.wrap(&r.message)
		}
		n, err := r.current.Read(p)
		// The end of a message is not the end of the body: the next message gets a new reader.
		if err == io.EOF && r.message.nextMessage() { //nolint:errorlint // an io.Reader ends with this value itself
			// Each message has its own reader, with buffers to return.
			r.stopCurrent()
			err = nil
		}
		r.err = err
		if n > 0 {
			return n, r.err
		}
	}
	return 0, r.err
}

func (r *messageReader) stopCurrent() {
	if s, ok := r.current.(interface{ Stop() }); ok {
		s.Stop()
	}
	r.current = nil
}

// Stop releases the reader of the current message. Later reads fail.
func (r *messageReader) Stop() {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	r.stopCurrent()
}

// message is one message of a source as an io.Reader.
type message struct {
	src   io.Reader
	scan  *Scanner
	buf   []byte
	rest  []byte // the part of buf that was read but not returned
	part  int    // the number of bytes of rest that belong to this message
	ended bool   // the message ends with these bytes
	err   error
}

func (m *message) Read(p []byte) (int, error) {
	if m.part == 0 && m.ended {
		return 0, io.EOF
	}
	// Only one read at a time: the next message may come much later.
	if len(m.rest) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		if m.buf == nil {
			m.buf = make([]byte, pieceSize)
		}
		n, err := m.src.Read(m.buf)
		m.rest, m.err = m.buf[:n], err
		if n == 0 {
			return 0, err
		}
	}
	if m.part == 0 {
		m.part, m.ended = m.scan.NextPart(m.rest)
	}
	n := copy(p, m.rest[:m.part])
	m.rest, m.part = m.rest[n:], m.part-n
	return n, nil
}

// nextMessage proceeds to the next message. It returns false at the end of the source.
func (m *message) nextMessage() bool {
	ended := m.ended
	m.ended = false
	return ended && (len(m.rest) > 0 || m.err != io.EOF) //nolint:errorlint // an io.Reader ends with this value itself
}
