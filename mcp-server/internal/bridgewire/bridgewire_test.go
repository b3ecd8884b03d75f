package bridgewire

import (
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
