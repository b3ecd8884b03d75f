package swap

import (
	"bytes"
	"io"
	"sync"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// wholeBody searches and rewrites a short body at once. A body without a token name leaves unchanged.
type wholeBody struct {
	x   *rewrite
	src io.Reader
	r   io.Reader
}

// short reports whether Content-Length announces a short body, and the body is not multipart.
func (x *rewrite) short() bool {
	return x.req.ContentLength > 0 && x.req.ContentLength <= coding.ExactUpTo && !x.from.FormData()
}

// buffers is a cache: a buffer is reset before it is used.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// unnamed reports whether a text has no token name, not even within a longer word.
func (s *Swapper) unnamed(text []byte) bool {
	_, named := s.parts.FindIn(text[s.lexicon.before(text):])
	return !named
}

// Whole implements coding.Whole. If the decoded body is longer than coding.ExactUpTo, ok is false.
func (s *wholeBody) Whole() (text []byte, ok bool, err error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	_, err = buf.ReadFrom(io.LimitReader(s.src, coding.ExactUpTo+1))
	text = buf.Bytes()
	// Search before the error of the source: a value in a broken body is still an attempt to send it.
	if id, carries := s.x.s.values.FindIn(text); carries {
		return nil, false, s.x.refused(s.x.s.carried(id, "body"))
	}
	if err != nil {
		return nil, false, err
	}
	if len(text) > coding.ExactUpTo {
		// The pool takes buf back on return, so the text must be copied.
		src := io.MultiReader(bytes.NewReader(bytes.Clone(text)), s.src)
		s.r = s.x.swapped(s.x.s.searched(src, s.x.o.Found))
		return nil, false, nil
	}
	if s.x.s.unnamed(text) {
		return bytes.Clone(text), true, nil
	}
	k, bad := bodyKind(s.x.req.Header)
	w := s.x.outer(k, bad)
	text = w.push(make([]byte, 0, len(text)+512), text)
	if w.fault() == nil {
		text = w.finish(text)
	}
	return text, true, w.fault()
}

func (s *wholeBody) Read(p []byte) (int, error) {
	if s.r == nil {
		text, ok, err := s.Whole()
		if err != nil {
			return 0, err
		}
		if ok {
			s.r = bytes.NewReader(text)
		}
	}
	return s.r.Read(p)
}
