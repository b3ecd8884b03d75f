package coding

import (
	"bufio"
	"io"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the window of zstd, in bytes: the size that RFC 8878 asks every decoder to support. The other
// formats have fixed bounds: 32 KiB, and 16 MiB for br.
const maxWindow = 8 << 20

// codingLayer decodes one encoding. It takes a decoder from a pool at the first byte.
type codingLayer struct {
	name string
	src  *bufio.Reader
	dec  io.Reader
	pool *sync.Pool
	err  error
}

func (l *codingLayer) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.dec == nil {
		if l.err = l.openDecoder(); l.err != nil {
			return 0, l.err
		}
	}
	n, err := l.dec.Read(p)
	if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		// Bytes after the end would be ignored by some servers and read by others.
		if _, err = l.src.Peek(1); err == nil {
			err = ErrBroken
		}
	}
	l.err = err
	return n, err
}

// openDecoder chooses the decoder. It returns io.EOF if src is empty.
func (l *codingLayer) openDecoder() error {
	// An empty body is valid in every encoding, also without the encoding's header.
	head, err := l.src.Peek(1)
	if len(head) == 0 {
		return err
	}
	switch l.name {
	case "gzip":
		l.pool = &gzips
	case "br":
		l.pool = &brotlis
	case "zstd":
		l.pool = &zstds
	default:
		l.pool = &flates
		// RFC 9110, section 8.4.1.2: deflate has a zlib header, but some servers leave it out.
		if head, _ := l.src.Peek(2); isZlib(head) {
			l.pool = &zlibs
		}
	}
	l.dec = l.pool.Get().(io.Reader)
	return resetDecoder(l.dec, l.src)
}

// isZlib recognises the header of a zlib stream (RFC 1950), which bodies sent as deflate often lack.
func isZlib(head []byte) bool {
	return len(head) == 2 && head[0]&15 == 8 && head[0]>>4 <= 7 && (int(head[0])<<8|int(head[1]))%31 == 0
}

func (l *codingLayer) freeDecoder() {
	if l.err == nil {
		l.err = io.ErrClosedPipe
	}
	if l.dec != nil {
		// Without this, the pooled decoder would keep the source, and so the whole body, in memory.
		_ = resetDecoder(l.dec, emptySource{})
		l.pool.Put(l.dec)
		l.dec = nil
	}
}

type emptySource struct{}

func (emptySource) Read([]byte) (int, error) { return 0, io.EOF }
func (emptySource) ReadByte() (byte, error)  { return 0, io.EOF }

// The pools are caches. A decoder keeps no data of one body for the next.
var (
	gzips   = sync.Pool{New: func() any { return &gzip.Reader{} }}
	zlibs   = sync.Pool{New: newZlib}
	flates  = sync.Pool{New: func() any { return flate.NewReader(emptySource{}) }}
	brotlis = sync.Pool{New: func() any { return brotli.NewReader(emptySource{}) }}
	zstds   = sync.Pool{New: newZstd}
)

// resetDecoder makes a decoder of a pool begin a new body.
func resetDecoder(d any, src io.Reader) error {
	switch d := d.(type) {
	case flate.Resetter: // of flate and zlib
		return d.Reset(src, nil)
	case *zstd.Decoder:
		if src == (emptySource{}) {
			return d.Reset(nil)
		}
	}
	return d.(interface{ Reset(src io.Reader) error }).Reset(src)
}

// newZlib returns a decoder of an empty stream, because NewReader needs a header.
func newZlib() any {
	d, err := zlib.NewReader(strings.NewReader("\x78\x9c"))
	if err != nil {
		panic(err) // the header is a constant
	}
	return d
}

// newZstd returns a decoder without goroutines.
func newZstd() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(1<<40))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}
