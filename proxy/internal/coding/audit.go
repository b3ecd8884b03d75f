package coding

import (
	"errors"
	"io"
	"net/http"
)

// AddWatcher gives a watcher a copy of the body, and passes the body on unchanged. watch adds the watcher's readers to
// the copy. Both are read in step: if the copy fails, the body ends before its last byte, so that no receiver has all
// of it.
func (b *Body) AddWatcher(watch func(copied *Body)) {
	pr, pw := io.Pipe()
	a := &auditor{pipe: pw, verdict: make(chan error, 1)}
	go func() {
		inner := NewBody(pr)
		watch(inner)
		// Body.Read turns a panic of a decoder into an error of inner.
		_, err := io.Copy(io.Discard, inner)
		_ = pr.CloseWithError(err)
		_ = inner.Close()
		a.verdict <- err
	}()
	b.AddReader(func(r io.Reader) io.Reader { a.src = r; return a })
}

// auditor copies the bytes that are read to a pipe. It waits for the watcher's verdict before it releases the last
// byte. A receiver that knows the body's length does not wait for EOF, so EOF would be too late.
type auditor struct {
	src     io.Reader
	pipe    *io.PipeWriter
	verdict chan error
	asked   bool
	buf     [8 << 10]byte
	have    []byte // read but not passed on
	err     error
}

func (a *auditor) Read(p []byte) (int, error) {
	// Read ahead until there is a byte besides the last one.
	for len(a.have) <= 1 && a.err == nil {
		held := copy(a.buf[:], a.have)
		n, err := a.src.Read(a.buf[held:])
		a.have = a.buf[:held+n]
		a.err = a.copyPiece(a.have[held:], err)
	}
	ready := a.have
	switch {
	case a.err == nil:
		// Keep one byte back until the verdict is known.
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

// copyPiece copies a piece to the pipe. It returns err, or the error that must end the body.
func (a *auditor) copyPiece(piece []byte, err error) error {
	if len(piece) > 0 {
		_, werr := a.pipe.Write(piece)
		if errors.Is(werr, io.ErrClosedPipe) {
			// The copy has ended, but the body goes on: bytes follow the end of the encoded data.
			werr = ErrBroken
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

// Stop ends the copy and waits for the watcher.
func (a *auditor) Stop() {
	// Without this the goroutine of the copy would wait for more of the body forever.
	if !a.asked {
		_ = a.pipe.CloseWithError(http.ErrBodyReadAfterClose)
		<-a.verdict //nolint:errcheck // nobody reads further
		a.asked = true
	}
}
