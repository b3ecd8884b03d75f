package swap

import (
	"bytes"
	"io"
	"sync"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// wholeBody searches and rewrites a short body at once. A body without a token name leaves unchanged.
type wholeBody struct {
	x   *requestRewrite
	src io.Reader
	r   io.Reader
}

// isShort reports whether Content-Length announces a short body, and the body is not multipart.
func (x *requestRewrite) isShort() bool {
	return x.req.ContentLength > 0 && x.req.ContentLength <= coding.ExactUpTo && !x.from.IsFormData()
}

// bodyBuffers is a cache: a buffer is reset before it is used.
var bodyBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// hasNoName reports whether a text has no token name, not even within a longer word.
func (s *Swapper) hasNoName(text []byte) bool {
	_, named := s.parts.FindIn(text[s.lexicon.skipPlain(text):])
	return !named
}

// ReadWhole implements coding.WholeReader. If the decoded body is longer than coding.ExactUpTo, ok is false.
func (s *wholeBody) ReadWhole() (text []byte, ok bool, err error) {
	buf := bodyBuffers.Get().(*bytes.Buffer)
	defer bodyBuffers.Put(buf)
	buf.Reset()
	_, err = buf.ReadFrom(io.LimitReader(s.src, coding.ExactUpTo+1))
	text = buf.Bytes()
	// Search before the error of the source: a value in a broken body is still an attempt to send it.
	if id, carries := s.x.s.values.FindIn(text); carries {
		return nil, false, s.x.refuseCarried(s.x.s.describeMatch(id, "body"))
	}
	if err != nil {
		return nil, false, err
	}
	if len(text) > coding.ExactUpTo {
		// The pool takes buf back on return, so the text must be copied.
		src := io.MultiReader(bytes.NewReader(bytes.Clone(text)), s.src)
		s.r = s.x.newSwapReader(s.x.s.newSearchReader(src, s.x.o.Found))
		return nil, false, nil
	}
	if s.x.s.hasNoName(text) {
		return bytes.Clone(text), true, nil
	}
	k, bad := bodyKind(s.x.req.Header)
	w := s.x.newBodyWriter(k, bad)
	text = w.pushText(make([]byte, 0, len(text)+512), text)
	if w.findFault() == nil {
		text = w.finishText(text)
	}
	return text, true, w.findFault()
}

func (s *wholeBody) Read(p []byte) (int, error) {
	if s.r == nil {
		text, ok, err := s.ReadWhole()
		if err != nil {
			return 0, err
		}
		if ok {
			s.r = bytes.NewReader(text)
		}
	}
	return s.r.Read(p)
}
