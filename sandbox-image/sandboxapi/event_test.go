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

// TestEventLimits: a text of longText bytes follows its line. The limits themselves are allowed.
func TestEventLimits(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Stdout: strings.Repeat("x", longText-1)}, `"stdout":"x`}, {Event{Stdout: strings.Repeat("x", longText)}, `"stdout_bytes":1024`},
		{Event{Stderr: strings.Repeat("x", longText-1)}, `"stderr":"x`}, {Event{Stderr: strings.Repeat("x", longText)}, `"stderr_bytes":1024`},
	} {
		var b bytes.Buffer
		if err := writeEvent(&b, c.e); err != nil || !strings.Contains(b.String(), c.want) {
			t.Errorf("%.60s, %v, want %s", &b, err, c.want)
		}
	}
	text := fmt.Sprintf(`{"stdout_bytes":%d}`+"\n", maxText) + strings.Repeat("x", maxText)
	if e, err := nextEvent(bufio.NewReader(strings.NewReader(text))); err != nil || len(e.Stdout) != maxText {
		t.Errorf("%d bytes, %v", len(e.Stdout), err)
	}
	const frame = `{"stdout":""}` + "\n"
	line := `{"stdout":"` + strings.Repeat("x", maxLine-len(frame)) + `"}` + "\n"
	if e, err := nextEvent(bufio.NewReader(strings.NewReader(line))); err != nil || len(e.Stdout) != maxLine-len(frame) {
		t.Errorf("%d bytes, %v", len(e.Stdout), err)
	}
	if got, want := encodeTrailer(Exit{Detail: "a\x1f ~\x7f\n" + strings.Repeat("y", maxDetail)}), `"detail":"a? ~??`+strings.Repeat("y", maxDetail-6)+`"`; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
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
