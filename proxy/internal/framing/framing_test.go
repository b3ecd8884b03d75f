package framing_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

const secret = "sk_live_51Hx/Zq+canary=="

func set() *multisearch.Set { return multisearch.New(multisearch.ListForms(secret, 1)) }

func replaced(int) (string, error) { return "<1>", nil }

// prefixed is a message of gRPC.
func prefixed(text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
}

// TestOf lists the types that have messages, and types that look like them.
func TestOf(t *testing.T) {
	for kind, media := range map[framing.Kind][]string{
		framing.Lengths: {"application/grpc", "application/grpc+proto", "Application/gRPC; x=y", "application/grpc-web", "application/grpc-web+json", "application/connect+json"},
		framing.Lines:   {"application/x-ndjson", "application/jsonl; charset=utf-8", "application/json-seq"},
		framing.JSON:    {"application/json", "application/vnd.api+json; charset=utf-8"},
		framing.None:    {"", "text/event-stream", "text/plain", "application/grpc-web-text", "application/grpcx", "application/octet-stream", "application/jsonx"},
	} {
		for _, m := range media {
			if got := framing.DetectKind(http.Header{"Content-Type": {m}}); got != kind {
				t.Errorf("%q: %d, want %d", m, got, kind)
			}
		}
	}
}

// TestMessages: a body is cut into its messages, however it arrives.
func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		kind framing.Kind
		want []string
	}{
		"lengths":          {framing.Lengths, []string{prefixed("123456789"), prefixed(""), prefixed("\x00\x00\x00"), prefixed(strings.Repeat("x", 40<<10)), "\x00\x00\x00\x00\x09half"}},
		"no lengths":       {framing.Lengths, []string{"{\"error\": 1}{}"}},
		"flags":            {framing.Lengths, []string{"\x02\x00\x00\x00\x02{}", "\x80\x00\x00\x00\x01x"}},
		"lines":            {framing.Lines, []string{"{\"a\":1}\n", "\n", "{}\r\n", "half"}},
		"an array":         {framing.JSON, []string{`[{"a":[1,{"b":"}]\"\\"}]}`, `, {"c":2}`, "\n,\"text, with\\\" ]\"", `,1,`, ` true,`, `[[],[1,2]]`, `]`, "\n"}},
		"an object":        {framing.JSON, []string{`{"a":[{},{}],"b":"]}"}`, "\n"}},
		"values in a row":  {framing.JSON, []string{`{"a":1}`, "\n" + `{"b":[2]}`, `{}`}},
		"brackets too few": {framing.JSON, []string{`]`, `}`, `{"a":1}`, `}`}},
	} {
		text := strings.Join(c.want, "")
		for _, size := range []int{1, 2, 7, 5000, 1 << 20} {
			var got []string
			s := c.kind.NewScanner()
			now := ""
			for from := 0; from < len(text); {
				piece := text[from:min(from+size, len(text))]
				n, ended := s.NextPart([]byte(piece))
				now += piece[:n]
				if ended {
					got, now = append(got, now), ""
				}
				from += n
			}
			if now != "" {
				got = append(got, now)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, in pieces of %d:\n%.300q\nwant\n%.300q", name, size, got, c.want)
			}
		}
	}
}

// TestThroughEqualsWhole: what leaves is what replacing in each whole message gives, at every split of the reads.
// Promise: no-oracle
func TestThroughEqualsWhole(t *testing.T) {
	s := set()
	quoted, _ := json.Marshal(secret)
	escaped := strings.ReplaceAll(string(quoted), "/", `\/`)
	for name, c := range map[string]struct {
		kind     framing.Kind
		messages []string
	}{
		"lengths": {framing.Lengths, []string{prefixed("a " + secret), prefixed(secret[:10]), prefixed(secret[10:]), prefixed(secret + secret), prefixed("")}},
		"lines":   {framing.Lines, []string{`{"a":"` + secret + "\"}\n", "{}\n", escaped + "\n", secret[:5] + "\n", secret[5:] + "\n"}},
		"json":    {framing.JSON, []string{`[{"a":` + escaped + `}`, `,` + string(quoted), `,{"` + secret + `":[]}`, `]`}},
	} {
		var want strings.Builder
		for _, m := range c.messages {
			text, _ := s.ReplaceAll(m, func(int) string { return "<1>" })
			want.WriteString(text)
		}
		text := strings.Join(c.messages, "")
		for at := range len(text) {
			src := io.MultiReader(strings.NewReader(text[:at]), strings.NewReader(text[at:]))
			got, err := io.ReadAll(c.kind.WrapMessages(src, func(r io.Reader) io.Reader { return s.NewReader(r, replaced) }))
			if err != nil || string(got) != want.String() {
				t.Fatalf("%s, split at %d: %q, %v\nwant %q", name, at, got, err, want.String())
			}
		}
		if strings.Contains(want.String(), secret) || !strings.Contains(want.String(), "<1>") {
			t.Errorf("%s: the test shows nothing: %q", name, want.String())
		}
	}
}

// TestMessageLeaves: a complete message is read before the next one arrives.
func TestMessageLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		kind    framing.Kind
		message string
	}{
		"lengths": {framing.Lengths, prefixed("pong")}, "lines": {framing.Lines, "{}\n"}, "json": {framing.JSON, `{"n":1}`},
	} {
		pr, pw := io.Pipe()
		s := multisearch.New(multisearch.ListForms("with a\nline feed, as a private key", 1))
		r := c.kind.WrapMessages(pr, func(r io.Reader) io.Reader { return s.NewReader(r, replaced) })
		for range 3 {
			go func() { _, _ = io.WriteString(pw, c.message) }()
			got := make([]byte, len(c.message))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != c.message {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		pw.Close()
	}
}

// TestThroughErrors: a source that breaks off fails, also between two messages, and what was held back is lost.
func TestThroughErrors(t *testing.T) {
	s := set()
	for _, text := range []string{prefixed("one"), prefixed("one") + "\x00\x00\x00\x00\x09half"} {
		src := io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))
		r := framing.Lengths.WrapMessages(src, func(r io.Reader) io.Reader { return s.NewReader(r, replaced) })
		got, err := io.ReadAll(r)
		if string(got) != prefixed("one") || err != io.ErrUnexpectedEOF { //nolint:errorlint // passed on as it is
			t.Errorf("%q: %q, %v", text, got, err)
		}
		r.(interface{ Stop() }).Stop()
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("after Stop: %d, %v", n, err)
		}
	}
}

// FuzzThrough compares with replacing in each message as the scanner cuts the whole body.
// Promise: no-oracle
func FuzzThrough(f *testing.F) {
	s := set()
	f.Add(uint8(1), uint8(3), prefixed("a "+secret)+prefixed(secret[:9])+prefixed(secret[9:]))
	f.Add(uint8(2), uint8(1), secret+"\n"+secret[:5]+"\n"+secret[5:])
	f.Add(uint8(3), uint8(7), `[{"a":"`+secret+`"},"`+strings.ReplaceAll(secret, "/", `\/`)+`",1]{}`)
	f.Fuzz(func(t *testing.T, kind, size uint8, text string) {
		k := framing.Kind(kind % 4)
		var want strings.Builder
		scan := k.NewScanner()
		message := ""
		add := func() {
			out, _ := s.ReplaceAll(message, func(int) string { return "<1>" })
			want.WriteString(out)
			message = ""
		}
		for rest := text; rest != ""; {
			n, ended := scan.NextPart([]byte(rest))
			message, rest = message+rest[:n], rest[n:]
			if ended {
				add()
			}
		}
		add()
		src := iotest.OneByteReader(strings.NewReader(text))
		if size > 0 {
			src = &pieces{text, int(size)}
		}
		got, err := io.ReadAll(k.WrapMessages(src, func(r io.Reader) io.Reader { return s.NewReader(r, replaced) }))
		if err != nil || string(got) != want.String() {
			t.Fatalf("%d: %q, %v\nwant %q", k, got, err, want.String())
		}
	})
}

// pieces reads a text in pieces of one size.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(p.size, len(b))], p.text)
	p.text = p.text[n:]
	return n, nil
}
