package bridgewire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, f := range []FromBridge{
		{Ready: &Ready{Protocol: "2025-11-25"}},
		{ID: 1, Result: json.RawMessage(`{"text":"<a & b>"}`)},
		{ID: 2, Error: &Error{Code: Gone, Message: "ended"}},
	} {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(b.String(), "<a & b>") {
		t.Errorf("escaped: %s", &b)
	}
	r := NewReader(iotest.OneByteReader(&b))
	var got [3]FromBridge
	for i := range got {
		if err := r.Read(&got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got[0].Ready.Protocol != "2025-11-25" || got[1].ID != 1 || got[2].Error.Code != Gone {
		t.Errorf("%+v", got)
	}
	if err := r.Read(new(FromBridge)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// failOnce is a writer that fails at first.
type failOnce struct{ n int }

func (f *failOnce) Write(p []byte) (int, error) {
	if f.n++; f.n == 1 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestReadLine: the limit counts the bytes of a line without its end, in one part or in several.
func TestReadLine(t *testing.T) {
	for size := range 40 {
		for _, limit := range []int{10, 16, 20} {
			r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", size)+"\nb\n"), 16)
			line, err := readLine(r, limit)
			if size > limit != errors.Is(err, ErrTooLong) || err == nil && len(line) != size {
				t.Errorf("%d bytes, limit %d: %d bytes, %v", size, limit, len(line), err)
			}
			if next, err2 := readLine(r, limit); err == nil && (err2 != nil || string(next) != "b") {
				t.Errorf("after %d bytes: %q, %v", size, next, err2)
			}
		}
	}
}

func TestNestingDepth(t *testing.T) {
	for text, want := range map[string]int{
		"1": 0, "[]": 1, "[[],[],[]]": 2, `{"a":[{}],"b":{}}`: 3, `["[[\\"]`: 1, `["\\",[]]`: 2, `["\"[[[",[]]`: 2, `["a\\\"[","b"]`: 1,
	} {
		if got := NestingDepth([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestWrongFrames: a line that is not a frame, and a value that is not JSON, are errors. A writer that failed stays closed.
func TestWrongFrames(t *testing.T) {
	if err := NewReader(strings.NewReader("{\n")).Read(new(FromBridge)); err == nil || !strings.HasPrefix(err.Error(), "reading a frame: ") {
		t.Errorf("half an object: %v", err)
	}
	var b bytes.Buffer
	if err := NewWriter(&b).Write(func() {}); err == nil || b.Len() != 0 {
		t.Errorf("a function: %v, %q", err, &b)
	}
	short := strings.Repeat("a", MaxLine-len(`{"log":""}`))
	if err := NewWriter(&b).Write(struct {
		Log string `json:"log"`
	}{short}); err != nil || b.Len() != MaxLine+1 {
		t.Errorf("the longest line: %v, %d bytes", err, b.Len())
	}
	failing := &failOnce{}
	w := NewWriter(failing)
	first, second := w.Write(1), w.Write(2)
	if !errors.Is(first, io.ErrClosedPipe) || !errors.Is(second, io.ErrClosedPipe) || failing.n != 1 {
		t.Errorf("%v, %v after %d calls", first, second, failing.n)
	}
}

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"long":        {`{"log":"` + strings.Repeat("a", MaxLine) + `"}` + "\n", ErrTooLong},
		"endless":     {strings.Repeat("a", 2*MaxLine), ErrTooLong},
		"deep":        {`{"id":1,"result":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "}\n", ErrTooDeep},
		"cut off":     {`{"id":1`, io.ErrUnexpectedEOF},
		"deep enough": {`{"id":1,"result":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + "}\n", nil},
		"quoted":      {`{"log":"` + strings.Repeat(`[\"`, MaxDepth) + `"}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(strings.NewReader(c.text))
			var f FromBridge
			if err := r.Read(&f); !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want != nil && !errors.Is(r.Read(&f), c.want) {
				t.Error("the error does not stick")
			}
		})
	}
	w := NewWriter(io.Discard)
	if err := w.Write(FromBridge{Log: strings.Repeat("a", MaxLine)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("writing: %v", err)
	}
	if err := w.Write(FromBridge{Log: "a"}); err != nil {
		t.Errorf("after a frame that was too long: %v", err)
	}
}
