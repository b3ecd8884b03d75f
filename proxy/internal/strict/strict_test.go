package strict

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// wire is a connection that has these bytes to read.
type wire struct {
	net.Conn
	r io.Reader
}

func (w wire) Read(p []byte) (int, error) { return w.r.Read(p) }

// TestStrictPasses: it passes on every byte unchanged, however the bytes arrive.
func TestStrictPasses(t *testing.T) {
	const host = "Host: a.test\r\n"
	text := "GET /1 HTTP/1.1\r\n" + host + "\r\n" +
		"POST /2 HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello" +
		"POST /3 HTTP/1.1\r\n" + host + "transfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n" +
		"POST /4 HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n" +
		"POST /5 HTTP/1.1\r\n" + host + "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n" +
		"OPTIONS /6 HTTP/1.1\r\n" + host + "\r\n" +
		"GET /7?a=b%20c HTTP/1.0\r\n" + host + "\r\n"
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"at once":    func(r io.Reader) io.Reader { return r },
		"by bytes":   iotest.OneByteReader,
		"by halves":  iotest.HalfReader,
		"with error": iotest.DataErrReader,
	} {
		s := New(wire{r: wrap(strings.NewReader(text))})
		got, err := io.ReadAll(iotest.OneByteReader(s))
		if err != nil || string(got) != text {
			t.Errorf("%s: %v, handed on\n%q", name, err, got)
		}
		if s.heads != 7 || s.bad.Load() != nil {
			t.Errorf("%s: %d heads, bad %v", name, s.heads, s.bad.Load())
		}
	}
}

// TestStrictLooksAtOneRequest: what follows a request is not checked before the server reads it.
func TestStrictLooksAtOneRequest(t *testing.T) {
	first := "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab"
	s := New(wire{r: strings.NewReader(first + "garbage\r\n\r\n")})
	buf := make([]byte, len(first))
	if _, err := io.ReadFull(s, buf); err != nil || string(buf) != first {
		t.Fatalf("%q, %v", buf, err)
	}
	if s.bad.Load() != nil {
		t.Error("the second request was looked at")
	}
	rest := make([]byte, len(refusedHead))
	if _, err := io.ReadFull(s, rest); err != nil || string(rest) != refusedHead {
		t.Errorf("%q, %v", rest, err)
	}
	if b := s.bad.Load(); b == nil || b.at != 2 || b.err == nil {
		t.Errorf("bad is %+v", b)
	}
}

// TestStrictResumes: reading can go on after a deadline in the middle of a head.
func TestStrictResumes(t *testing.T) {
	in, out := net.Pipe()
	defer in.Close()
	defer out.Close()
	s := New(in)
	resume := make(chan struct{})
	go func() {
		_, _ = io.WriteString(out, "GET / HT")
		<-resume
		_, _ = io.WriteString(out, "TP/1.1\r\nHost: a.test\r\n\r\n")
	}()
	var timeout net.Error
	_ = in.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if _, err := s.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("got %v", err)
	}
	close(resume)
	_ = in.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := s.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// TestRaw: after an upgrade every byte passes, beginning with those that were read ahead.
func TestRaw(t *testing.T) {
	head := "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
	s := New(wire{r: strings.NewReader(head + "\x81\x00frames\r\n")})
	buf := make([]byte, len(head))
	if _, err := io.ReadFull(s, buf); err != nil {
		t.Fatal(err)
	}
	s.state = stateRaw
	if rest, err := io.ReadAll(s); err != nil || string(rest) != "\x81\x00frames\r\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

// FuzzStrict: net/http reads what passes as the same requests with the same bodies as an independent parser does, and
// accepts every head that passes.
func FuzzStrict(f *testing.F) {
	const host = "Host: a.test\r\n"
	for _, s := range []string{
		"GET / HTTP/1.1\r\n" + host + "\r\n",
		"POST /2 HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello",
		"POST /3 HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"GET / HTTP/1.1\n" + host + "\r\n\r\n",
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET http://b/ HTTP/1.1\r\n" + host + "\r\n",
		"OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTrailer: a, content-length\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := New(wire{r: bytes.NewReader(in)})
		a, errA := io.ReadAll(whole)
		bytewise := New(wire{r: iotest.OneByteReader(bytes.NewReader(in))})
		b, errB := io.ReadAll(bytewise)
		if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
			t.Fatalf("what passes depends on how it came: %q %v, %q %v", a, errA, b, errB)
		}
		passed := a
		if bad := whole.bad.Load(); bad != nil {
			passed = bytes.TrimSuffix(a, []byte(refusedHead))
		}
		if !bytes.HasPrefix(in, passed) {
			t.Fatalf("it made %q up", passed)
		}
		r := bufio.NewReader(bytes.NewReader(passed))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("net/http does not take %q: %v", passed, err)
				}
				return
			}
			if req.Host == "" || !strings.HasPrefix(req.RequestURI, "/") {
				t.Fatalf("passed: %q %q", req.Host, req.RequestURI)
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
		}
	})
}
