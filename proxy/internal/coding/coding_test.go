package coding

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// Promise: scrubbed-responses
func TestParse(t *testing.T) {
	for header, want := range map[string][]string{
		"": nil, "identity": nil, "gzip": {"gzip"}, "X-GZIP": {"gzip"}, "gzip, br": {"br", "gzip"}, " deflate ,, zstd": {"zstd", "deflate"},
		"identity, gzip, identity": {"gzip"},
	} {
		got, err := Parse(http.Header{"Content-Encoding": {header}})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v", header, got, err)
		}
	}
	for _, header := range []string{"compress", "gzip, gzip, gzip", "gzip;x", "br2", "*"} {
		if _, err := Parse(http.Header{"Content-Encoding": {header}}); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: got %v", header, err)
		}
	}
}

// TestParseResponse: aws-chunked is left out, because it is the coding of a request that S3 and its like store as a name.
// A coding beside it counts.
// Promise: scrubbed-responses
func TestParseResponse(t *testing.T) {
	for header, want := range map[string][]string{
		"aws-chunked": nil, "AWS-Chunked, identity": nil, "aws-chunked,gzip": {"gzip"}, "gzip, aws-chunked": {"gzip"}, "utf-8": nil, "br": {"br"},
	} {
		got, err := ParseResponse(http.Header{"Content-Encoding": {header}})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v", header, got, err)
		}
	}
	for _, header := range []string{"aws-chunked, odd", "aws-chunked, utf-8, gzip", "aws-chunked2", "gzip, gzip, aws-chunked, gzip"} {
		if _, err := ParseResponse(http.Header{"Content-Encoding": {header}}); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: got %v", header, err)
		}
	}
	if _, err := Parse(http.Header{"Content-Encoding": {"aws-chunked"}}); !errors.Is(err, ErrUnknown) {
		t.Errorf("of a request: %v", err)
	}
}

func TestReader(t *testing.T) {
	for _, name := range []string{"gzip", "deflate", "br", "zstd"} {
		if got, err := io.ReadAll(NewReader(strings.NewReader(""), []string{name})); len(got) > 0 || err != nil {
			t.Errorf("%s of nothing: %q, %v", name, got, err)
		}
		r := NewReader(strings.NewReader("\x00\x01\x02 no such thing"), []string{name})
		if _, err := io.ReadAll(r); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: then %v", name, err)
		}
		broken := errors.New("broken")
		if _, err := io.ReadAll(NewReader(iotest.ErrReader(broken), []string{name, "gzip"})); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", name, err)
		}
		r = NewReader(strings.NewReader("x"), []string{name})
		r.Stop()
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: a stopped reader reads", name)
		}
	}
}

func TestTrailing(t *testing.T) {
	for name, coded := range map[string]string{"gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00", "deflate": "\x03\x00"} {
		if got, err := io.ReadAll(NewReader(strings.NewReader(coded), []string{name})); len(got) > 0 || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := io.ReadAll(NewReader(strings.NewReader(coded+"x"), []string{name})); !errors.Is(err, ErrBroken) {
			t.Errorf("%s and more: %v", name, err)
		}
	}
}

// TestReuse: a decoder that was returned in the middle of a body, or after an error, decodes the next body.
func TestReuse(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, strings.Repeat("text ", 1000))
	_ = w.Close()
	for i := range 50 {
		data := bytes.Clone(b.Bytes())
		if i%3 == 1 {
			data[len(data)/2] ^= 0xFF
		}
		r := NewReader(bytes.NewReader(data), []string{"gzip"})
		if i%3 == 2 {
			_, _ = r.Read(make([]byte, 10))
			r.Stop()
			continue
		}
		got, err := io.ReadAll(r)
		if i%3 == 0 && (err != nil || len(got) != 5000) || i%3 == 1 && !errors.Is(err, ErrBroken) {
			t.Fatalf("%d: %d bytes, %v", i, len(got), err)
		}
	}
}

// TestPanic: a panic in a reader below a body ends that body. http.Transport reads it in a goroutine whose panic would
// end the process.
func TestPanic(t *testing.T) {
	b := NewBody(io.NopCloser(strings.NewReader("x")))
	b.AddReader(func(io.Reader) io.Reader { return panics{} })
	for range 2 {
		if n, err := b.Read(make([]byte, 8)); n != 0 || !errors.Is(err, ErrBroken) {
			t.Errorf("%d, %v", n, err)
		}
	}
}

type panics struct{}

func (panics) Read([]byte) (int, error) { panic("on purpose") }
