package sandboxapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// nextEvent reads one event.
func nextEvent(r *bufio.Reader) (e Event, err error) {
	err = readEvent(r, "", func(got Event) { e = got })
	return e, err
}

func TestEvents(t *testing.T) {
	events := []Event{
		{Stdout: "short\n"}, {Stderr: "<&>\u2028\x00"}, {Stdout: strings.Repeat("ä", longText)},
		{Stderr: strings.Repeat("{}\n", longText)}, {Stdout: strings.Repeat("x", longText)},
		{Stdout: strings.Repeat("x", longText-1)}, {Exit: &Exit{Reason: Exited, Detail: strings.Repeat("y", 3*longText)}},
	}
	var wire bytes.Buffer
	for _, e := range events {
		if err := writeEvent(&wire, e); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(wire.Bytes()), "byte by byte": iotest.OneByteReader(bytes.NewReader(wire.Bytes()))} {
		br := bufio.NewReader(r)
		for i, want := range events {
			got, err := nextEvent(br)
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s, event %d: %.60s, %v", name, i, a, err)
			}
		}
		if _, err := nextEvent(br); err != io.EOF { //nolint:errorlint // as it is
			t.Errorf("%s: %v at the end", name, err)
		}
	}
}

// What sandboxd sends is bounded, and valid UTF-8 whatever it sends.
func TestEventsRefused(t *testing.T) {
	for _, wire := range []string{
		fmt.Sprintf(`{"stdout_bytes":%d}`+"\n", maxText+1), `{"stdout_bytes":-1}` + "\n", `{"stderr_bytes":4}` + "\nabc",
		`{"stdout":"` + strings.Repeat("x", maxLine) + "\"}\n", "{\n", `{"stdout":"x"}`,
	} {
		if e, err := nextEvent(bufio.NewReader(strings.NewReader(wire))); err == nil {
			t.Errorf("%.40s: got %.40v", wire, e)
		}
	}
	e, err := nextEvent(bufio.NewReader(strings.NewReader(`{"stdout_bytes":3}` + "\na\xffb")))
	if err != nil || e.Stdout != "a\uFFFDb" {
		t.Errorf("got %q, %v", e.Stdout, err)
	}
}
