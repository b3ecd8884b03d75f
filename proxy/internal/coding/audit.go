package coding

import (
	"errors"
	"io"
	"net/http"
)

// Audit gives a watcher a copy of the body, and passes the body on unchanged. The two are read in step: an error of the
// copy ends the body before its last byte, so that nobody ever gets all of it. watch adds the watcher's readers to the
// copy.
func (b *Body) Audit(watch func(copied *Body)) {
	pr, pw := io.Pipe()
	a := &auditor{pipe: pw, verdict: make(chan error, 1)}
	go func() {
		inner := NewBody(pr)
		watch(inner)
		_, err := io.Copy(io.Discard, inner) // a panic of a decoder is an error of inner
		_ = pr.CloseWithError(err)
		_ = inner.Close()
		a.verdict <- err
	}()
	b.Through(func(r io.Reader) io.Reader { a.src = r; return a })
}

// auditor copies what is read to a pipe, and asks what was found before it lets go of the last byte. A reader that
// knows the body's length does not wait for its end.
type auditor struct {
	src     io.Reader
	pipe    *io.PipeWriter
	verdict chan error
	asked   bool
	buf     [8 << 10]byte
	have    []byte // read and not handed on
	err     error
}

func (a *auditor) Read(p []byte) (int, error) {
	for len(a.have) <= 1 && a.err == nil {
		held := copy(a.buf[:], a.have)
		n, err := a.src.Read(a.buf[held:])
		a.have = a.buf[:held+n]
		a.err = a.pass(a.have[held:], err)
	}
	ready := a.have
	switch {
	case a.err == nil:
		ready = a.have[:len(a.have)-1]
	case a.err != io.EOF: //nolint:errorlint // an io.Reader ends with this value itself
		return 0, a.err
	case len(ready) == 0:
		return 0, io.EOF
	}
	n := copy(p, ready)
	a.have = a.have[n:]
	return n, nil
}

// pass copies what was read with err to the pipe, and gives what the reader has to know.
func (a *auditor) pass(piece []byte, err error) error {
	if len(piece) > 0 {
		_, werr := a.pipe.Write(piece)
		if errors.Is(werr, io.ErrClosedPipe) {
			werr = ErrBroken // more than what the encoding ends with
		}
		if werr != nil {
			return werr
		}
	}
	switch err {
	case nil:
		return nil
	case io.EOF: //nolint:errorlint // an io.Reader ends with this value itself
		_ = a.pipe.Close()
	default:
		_ = a.pipe.CloseWithError(err)
	}
	a.asked = true
	if found := <-a.verdict; found != nil && err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		return found
	}
	return err
}

// Stop ends the copy.
func (a *auditor) Stop() {
	if !a.asked {
		_ = a.pipe.CloseWithError(http.ErrBodyReadAfterClose)
		<-a.verdict //nolint:errcheck // nobody reads further
		a.asked = true
	}
}
