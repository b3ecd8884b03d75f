package interp

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// pipe makes a stream and its write end, which the caller closes.
func pipe(t *testing.T, ended <-chan struct{}) (*outputStream, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStream(r, ended)
	if err != nil {
		t.Fatal(err)
	}
	return s, w
}

// Everything arrives in order, whatever the pauses.
func TestStream(t *testing.T) {
	s, w := pipe(t, make(chan struct{}))
	defer s.Close()
	var want bytes.Buffer
	go func() {
		defer w.Close()
		for i := range 20000 {
			_, _ = fmt.Fprintf(w, "line %d\n", i)
		}
	}()
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	var got bytes.Buffer
	buf := make([]byte, 1<<10)
	for {
		n, err := s.Read(buf)
		got.Write(buf[:n])
		if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		s.pauseReading(n == len(buf))
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("got %d bytes, want %d", got.Len(), want.Len())
	}
}

// A process that could not be killed holds the pipe: the stream ends all the same, with what was printed.
func TestStreamHeld(t *testing.T) {
	ended := make(chan struct{})
	s, w := pipe(t, ended)
	defer s.Close()
	defer w.Close()
	_, _ = w.WriteString("printed")
	time.AfterFunc(50*time.Millisecond, func() { close(ended) })
	read := make(chan string, 1)
	go func() {
		data, err := io.ReadAll(s)
		read <- fmt.Sprint(string(data), err)
	}()
	select {
	case got := <-read:
		if got != "printed<nil>" {
			t.Errorf("got %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("it never ended")
	}
}

// What a program prints last arrives, also if it ends while the reader finds the pipe empty.
func TestStreamLast(t *testing.T) {
	for range 10000 {
		ended := make(chan struct{})
		s, w := pipe(t, ended)
		go func() {
			_, _ = w.WriteString("x")
			close(ended)
		}()
		if n, err := s.Read(make([]byte, 2)); n != 1 {
			t.Fatalf("read %d bytes: %v", n, err)
		}
		s.Close()
		_ = w.Close()
	}
}

// The end of a run does not wait for a pause.
func TestStreamRest(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	s, w := pipe(t, ended)
	defer s.Close()
	defer w.Close()
	start := time.Now()
	for range 1000 {
		s.pauseReading(false)
	}
	if took := time.Since(start); took > 1000*pause/2 {
		t.Errorf("1000 pauses after the end took %s", took)
	}
}
