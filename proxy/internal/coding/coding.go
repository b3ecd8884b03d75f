// Package coding decodes the Content-Encoding of bodies while they stream: gzip, deflate (with and without a zlib
// header), br and zstd, at most two of them stacked.
//
// Threat: a decompression bomb. Contract: windows are bounded, and a body that grows more than Ratio times fails with
// ErrRatio.
package coding

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
)

const (
	// MaxStack is the number of encodings that may be stacked.
	MaxStack = 2
	// Ratio is the factor by which a body may grow, once it has RatioFrom decoded bytes.
	Ratio = 256
	// RatioFrom is the decoded size in bytes from which on Ratio applies.
	RatioFrom = 16 << 20
)

var (
	// ErrUnknown is the error for an unknown encoding, or for more than MaxStack encodings.
	ErrUnknown = errors.New("content encoding is not supported")
	// ErrRatio ends a body that grows too much.
	ErrRatio = errors.New("decoded body grows too much")
	// ErrBroken ends a body that does not match its encoding. It replaces the decoder's error, which may quote bytes.
	ErrBroken = errors.New("encoded body is broken")
)

// Parse reads Content-Encoding into the encodings to decode, outermost first. Nil means identity.
func Parse(h http.Header) ([]string, error) { return parseEncodings(h, "") }

// awsChunked is the coding in which S3 clients send a signature with each chunk. Some servers store an object decoded
// but still answer with the name. Clients do not decode it in a response.
const awsChunked = "aws-chunked"

// parseEncodings is Parse, but skips the encoding with the name ignored.
func parseEncodings(h http.Header, ignored string) ([]string, error) {
	var list []string
	for _, v := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(v, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity", ignored:
			case "x-gzip":
				list = append(list, "gzip")
			case "gzip", "deflate", "br", "zstd":
				list = append(list, name)
			default:
				return nil, ErrUnknown
			}
		}
	}
	if len(list) > MaxStack {
		return nil, ErrUnknown
	}
	// RFC 9110, section 8.4: the header lists encodings in the order in which they were applied.
	slices.Reverse(list)
	return list, nil
}

// ParseResponse is Parse for a response. It skips aws-chunked. A name that servers set by mistake counts as identity,
// because clients do not decode it. This holds only if no real encoding is beside the name. In a request such a name is
// an unknown encoding, because a server may decode it.
func ParseResponse(h http.Header) ([]string, error) {
	list, err := parseEncodings(h, awsChunked)
	if err == nil {
		return list, nil
	}
	for _, v := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(v, ",") {
			if !isMistake(strings.ToLower(strings.TrimSpace(name))) {
				return nil, err
			}
		}
	}
	return nil, nil
}

// isMistake reports whether a name is identity, or a value of another header.
func isMistake(name string) bool {
	switch name {
	case "", "identity", awsChunked, "none", "binary", "7bit", "8bit", "base64", "utf-8", "utf8", "us-ascii", "iso-8859-1":
		return true
	}
	return false
}

// NeedsLargeWindow reports whether decoding needs megabytes of memory for the windows of br or zstd.
func NeedsLargeWindow(encodings []string) bool {
	return slices.Contains(encodings, "br") || slices.Contains(encodings, "zstd")
}

// largeWindow is the largest window of a br or zstd decoder, in bytes.
const largeWindow = 16 << 20

// SumWindows returns the largest total size of the decoders' windows, in bytes. It counts only br and zstd: the other
// windows are small.
func SumWindows(encodings []string) (n int64) {
	for _, name := range encodings {
		if NeedsLargeWindow([]string{name}) {
			n += largeWindow
		}
	}
	return n
}

// Reader is a decoded body. Its error is sticky.
type Reader struct {
	src     countedSource
	layers  []*codingLayer
	top     io.Reader // the last layer, or src without layers
	decoded int64
	err     error
}

// NewReader decodes src by the encodings that Parse found. It passes on an error of src unchanged. An empty body is
// empty in every encoding.
func NewReader(src io.Reader, encodings []string) *Reader {
	r := &Reader{src: countedSource{src: src}}
	r.top = &r.src
	for _, name := range encodings {
		l := &codingLayer{name: name, src: bufio.NewReaderSize(r.top, 4<<10)}
		r.layers, r.top = append(r.layers, l), l
	}
	return r
}

// Read reads decoded bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.top.Read(p)
	r.decoded += int64(n)
	//nolint:errorlint // an io.Reader ends with io.EOF itself
	switch {
	// The ratio uses the bytes of the source, so that stacked encodings cannot multiply.
	case len(r.layers) > 0 && r.decoded > RatioFrom && r.decoded/Ratio > r.src.n:
		n, err = 0, ErrRatio
	// A source that fails breaks the encoding too. The source's error is the real cause.
	case err != nil && err != io.EOF && r.src.err != nil && r.src.err != io.EOF:
		err = r.src.err
	case err != nil && err != io.EOF:
		err = ErrBroken
	}
	if err != nil {
		r.err = err
		r.freeLayers()
	}
	return n, err
}

// Stop returns the decoders to their pools. Later reads fail.
func (r *Reader) Stop() {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	r.freeLayers()
}

func (r *Reader) freeLayers() {
	for _, l := range r.layers {
		l.freeDecoder()
	}
}

// countedSource counts the bytes read, and remembers the error that ended them.
type countedSource struct {
	src io.Reader
	n   int64
	err error
}

func (s *countedSource) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	s.n += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}
