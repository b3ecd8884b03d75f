package coding

import (
	"bufio"
	"io"
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
	dec  decoder
	pool *sync.Pool
	err  error
}

// decoder is the common interface of the decoders. reset begins a new body.
type decoder interface {
	io.Reader
	resetSource(src io.Reader) error
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
		err = l.checkEnd()
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
	l.dec = l.pool.Get().(decoder)
	return l.dec.resetSource(l.src)
}

// checkEnd returns io.EOF if no bytes follow the decoded data, or else ErrBroken.
func (l *codingLayer) checkEnd() error {
	// Bytes after the end would be ignored by some servers and read by others.
	if _, err := l.src.Peek(1); err != nil {
		return err
	}
	return ErrBroken
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
		_ = l.dec.resetSource(emptySource{})
		l.pool.Put(l.dec)
		l.dec = nil
	}
}

type emptySource struct{}

func (emptySource) Read([]byte) (int, error) { return 0, io.EOF }
func (emptySource) ReadByte() (byte, error)  { return 0, io.EOF }

// The pools are caches. A decoder keeps no data of one body for the next.
var (
	gzips   = sync.Pool{New: func() any { return &gzipDecoder{} }}
	zlibs   = sync.Pool{New: func() any { return &zlibDecoder{} }}
	flates  = sync.Pool{New: func() any { return &flateDecoder{flate.NewReader(emptySource{})} }}
	brotlis = sync.Pool{New: func() any { return &brotliDecoder{brotli.NewReader(emptySource{})} }}
	zstds   = sync.Pool{New: newZstd}
)

type gzipDecoder struct{ gzip.Reader }

func (d *gzipDecoder) resetSource(src io.Reader) error { return d.Reset(src) }

type zlibDecoder struct{ io.ReadCloser }

func (d *zlibDecoder) resetSource(src io.Reader) error {
	if d.ReadCloser != nil {
		return d.ReadCloser.(zlib.Resetter).Reset(src, nil)
	}
	r, err := zlib.NewReader(src)
	if err == nil {
		d.ReadCloser = r
	}
	return err
}

type flateDecoder struct{ io.ReadCloser }

func (d *flateDecoder) resetSource(src io.Reader) error {
	return d.ReadCloser.(flate.Resetter).Reset(src, nil)
}

type brotliDecoder struct{ *brotli.Reader }

func (d *brotliDecoder) resetSource(src io.Reader) error { return d.Reset(src) }

type zstdDecoder struct{ *zstd.Decoder }

// newZstd returns a decoder without goroutines.
func newZstd() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(1<<40))
	if err != nil {
		panic(err) // the options are constants
	}
	return &zstdDecoder{d}
}

func (d *zstdDecoder) resetSource(src io.Reader) error {
	if _, ok := src.(emptySource); ok {
		return d.Reset(nil)
	}
	return d.Reset(src)
}
