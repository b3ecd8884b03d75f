package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	// half is the size of the stored start, and of the stored end, of a text, in bytes.
	half = 64 << 10
	// margin is the extra size that is scrubbed on each side of a cut. It is the longest form of a credential that the
	// proxy finds: 8 KiB in base64, with eight bytes for each character. A credential that the cut splits lies in the
	// margin, and trim removes the margin.
	margin = 88 << 10
	most   = half + margin
	// maxPrints bounds the pieces of each half of an output. joinMS and joinBytes bound the pieces that are joined.
	maxPrints = 2000
	joinMS    = 10
	joinBytes = 4 << 10
)

// runContent is the stored code and output of a run.
type runContent struct {
	Code   operatorapi.Text   `json:"code"`
	Output operatorapi.Output `json:"output"`
	Answer operatorapi.Text   `json:"answer"`
	Exit   string             `json:"exit,omitempty"`
}

// storedSize returns the approximate size in bytes.
func (c runContent) storedSize() int64 {
	n := len(c.Code.Head) + len(c.Code.Tail) + len(c.Answer.Head) + len(c.Answer.Tail) + len(c.Exit)
	for _, list := range [][]operatorapi.Print{c.Output.Head, c.Output.Tail} {
		n += sizeOf(list) + 32*len(list)
	}
	return int64(n)
}

// cleanTexts returns the content without text that must not be stored. The two halves of a complete output become one,
// because a text to remove may span both.
func (c runContent) cleanTexts(clean func(string) string) runContent {
	// A piece of the head and a piece of the tail may hold the two halves of one string.
	if c.Output.Omitted == 0 {
		c.Output.Head, c.Output.Tail = slices.Concat(c.Output.Head, c.Output.Tail), nil
	}
	for _, t := range []*operatorapi.Text{&c.Code, &c.Answer} {
		t.Head, t.Tail = clean(t.Head), clean(t.Tail)
	}
	c.Output.Head, c.Output.Tail = cleanPrints(c.Output.Head, clean), cleanPrints(c.Output.Tail, clean)
	c.Exit = clean(c.Exit)
	return c
}

// cutMargins cuts scrubbed and cleaned content to the stored size: it removes the margins.
func (c runContent) cutMargins() runContent {
	c.Code, c.Answer = trimText(c.Code), trimText(c.Answer)
	o := &c.Output
	// Sizes are taken after scrubbing: a token name is shorter or longer than its credential.
	before := sizeOf(o.Head) + sizeOf(o.Tail)
	switch {
	case o.Omitted > 0:
		// The margin at the cut may hold half of a credential, which scrubbing did not find.
		o.Head = firstOf(o.Head, min(half, sizeOf(o.Head)-margin))
		o.Tail = lastOf(o.Tail, min(half, sizeOf(o.Tail)-margin))
	case before > 2*half:
		o.Head, o.Tail = firstOf(o.Head, half), lastOf(o.Head, half)
	}
	o.Omitted += int64(before - sizeOf(o.Head) - sizeOf(o.Tail))
	return c
}

// trimText is cutMargins for a text of halves.
func trimText(t operatorapi.Text) operatorapi.Text {
	before := len(t.Head) + len(t.Tail)
	switch {
	case t.Omitted > 0:
		t.Head = safetext.CutText(t.Head, max(0, min(half, len(t.Head)-margin)), "")
		t.Tail = lastBytes(t.Tail, max(0, min(half, len(t.Tail)-margin)))
	case before > 2*half:
		t.Head, t.Tail = safetext.CutText(t.Head, half, ""), lastBytes(t.Head, half)
	}
	t.Omitted += int64(before - len(t.Head) - len(t.Tail))
	return t
}

// sizeOf returns the number of printed bytes.
func sizeOf(list []operatorapi.Print) (n int) {
	for _, p := range list {
		n += len(p.Text)
	}
	return n
}

// firstOf returns the first n bytes of the output, in whole characters.
func firstOf(list []operatorapi.Print, n int) []operatorapi.Print {
	out := []operatorapi.Print{}
	for _, p := range list {
		whole := len(p.Text)
		if p.Text = safetext.CutText(p.Text, max(0, n), ""); p.Text != "" {
			out = append(out, p)
		}
		n -= whole // below zero after a cut piece, so no later piece follows
	}
	return out
}

// lastOf returns the last n bytes of the output, in whole characters.
func lastOf(list []operatorapi.Print, n int) (out []operatorapi.Print) {
	for _, p := range slices.Backward(list) {
		whole := len(p.Text)
		if p.Text = lastBytes(p.Text, max(0, n)); p.Text != "" {
			out = append(out, p)
		}
		n -= whole // see firstOf
	}
	slices.Reverse(out)
	return out
}

// scrubTime bounds the proxy's scrubbing of one run's texts.
const scrubTime = 2 * time.Second

// scrubByProxy returns a text and a run's content after the proxy has replaced the credentials in them. It returns an
// error if the proxy does not answer. The content may be nil.
func (s *Store) scrubByProxy(ctx context.Context, text string, c *runContent) (string, *runContent, error) {
	if s.cfg.Scrub == nil || text == "" && c == nil {
		return text, c, nil
	}
	texts := []string{text}
	if c != nil {
		// cleanTexts visits each text in turn; this pass only collects them for one request to the proxy.
		c.cleanTexts(func(text string) string {
			texts = append(texts, text)
			return text
		})
	}
	ctx, cancel := context.WithTimeout(ctx, scrubTime)
	defer cancel()
	list, err := s.cfg.Scrub(ctx, texts)
	if err == nil && len(list) != len(texts) {
		err = errors.New("the proxy answered with another number of texts")
	}
	if err != nil {
		return "", nil, fmt.Errorf("scrubbing the texts of a run: %w", err)
	}
	// The content goes through clean in the same order again, so each text finds its scrubbed form.
	if c != nil {
		scrubbed := map[string]string{}
		for i, text := range texts {
			scrubbed[text] = list[i]
		}
		out := c.cleanTexts(func(text string) string { return scrubbed[text] })
		c = &out
	}
	return list[0], c, nil
}

// logUnscrubbed logs that a run is stored without title, code and output, because the proxy could not scrub them.
func (s *Store) logUnscrubbed(err error) {
	s.cfg.Log.Warn("a run is stored without its code and output", logline.Tag("history"),
		slog.String("error", err.Error()))
}

// cleanPrints cleans the output. If a text to remove spans two pieces, all pieces become one.
func cleanPrints(list []operatorapi.Print, clean func(string) string) []operatorapi.Print {
	var whole, parts strings.Builder
	out := make([]operatorapi.Print, len(list))
	for i, p := range list {
		whole.WriteString(p.Text)
		p.Text = clean(p.Text)
		parts.WriteString(p.Text)
		out[i] = p
	}
	// Cleaning the joined text finds strings that two prints have split.
	if text := clean(whole.String()); text != parts.String() {
		return []operatorapi.Print{{MS: list[0].MS, Text: text}}
	}
	return out
}

func (c runContent) joinTexts() string {
	var b strings.Builder
	for _, t := range []string{c.Code.Head, c.Code.Tail, c.Exit} {
		b.WriteString(t)
		b.WriteByte('\n')
	}
	for _, list := range [][]operatorapi.Print{c.Output.Head, c.Output.Tail} {
		for _, p := range list {
			b.WriteString(p.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// putContent stores content, compressed.
func putContent(ctx context.Context, tx *writeTransaction, number int64, c runContent) error {
	data, err := packValue(c)
	if err != nil {
		return err
	}
	tx.target.grown += int64(len(data))
	_, err = tx.ExecContext(ctx, `INSERT INTO content VALUES ($1, $2, $3)
		ON CONFLICT (number) DO UPDATE SET size = excluded.size, data = excluded.data`, number, len(data), data)
	return err
}

// packers are reused writers, because a new writer clears more than a megabyte.
var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level exists
	return w
}}

// packValue encodes and compresses a value for unpack.
func packValue(v any) ([]byte, error) {
	var b bytes.Buffer
	// Returned to the pool even after an error: Reset starts it afresh.
	w, _ := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(&b)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpackValue(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		err = json.NewDecoder(r).Decode(v)
	}
	if err != nil {
		return fmt.Errorf("reading the content of a run: %w", err)
	}
	return nil
}

// cutMiddle returns the start and the end of a text, with margins.
func cutMiddle(text string) operatorapi.Text {
	if len(text) <= 2*most {
		return operatorapi.Text{Head: strings.ToValidUTF8(text, "\uFFFD")}
	}
	head, tail := safetext.CutText(text, most, ""), lastBytes(text, most)
	return operatorapi.Text{Head: head, Tail: tail, Omitted: int64(len(text) - len(head) - len(tail))}
}

// lastBytes returns the end of a text: at most n bytes of whole characters.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	// A cut within a character would give invalid UTF-8.
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}

// outputCapture collects the start and the end of the output, with margins.
type outputCapture struct {
	head, tail           []operatorapi.Print
	headBytes, tailBytes int
	omitted              int64
}

func (c *outputCapture) addPiece(p operatorapi.Print) {
	if c.headBytes < most && len(c.head) < maxPrints && len(c.tail) == 0 {
		first := p
		first.Text = safetext.CutText(p.Text, most-c.headBytes, "")
		// Without this, every later print would try the head again.
		if len(first.Text) < len(p.Text) && first.Text == "" {
			c.headBytes = most // no room for a whole character
		}
		c.headBytes += len(first.Text)
		if p.Text = p.Text[len(first.Text):]; first.Text != "" {
			c.head = appendPiece(c.head, first)
		}
		if p.Text == "" {
			return
		}
	}
	c.tail = appendPiece(c.tail, p)
	c.tailBytes += len(p.Text)
	for c.tailBytes > most || len(c.tail) > maxPrints {
		first := &c.tail[0]
		// Only as much as exceeds the bound is dropped from the oldest piece.
		keep := lastBytes(first.Text, max(0, len(first.Text)-(c.tailBytes-most)))
		if len(c.tail) > maxPrints || c.tailBytes-len(first.Text) >= most {
			keep = ""
		}
		gone := len(first.Text) - len(keep)
		c.omitted += int64(gone)
		c.tailBytes -= gone
		// A copy, so that the dropped part of the piece can be freed.
		first.Text = strings.Clone(keep)
		if keep == "" {
			c.tail = c.tail[1:]
		}
	}
}

// appendPiece appends a piece of output. It joins the piece to the last one if that is recent and short, or if there
// are many pieces.
func appendPiece(list []operatorapi.Print, p operatorapi.Print) []operatorapi.Print {
	if n := len(list) - 1; n >= 0 {
		l := &list[n]
		soon := p.MS-l.MS < joinMS && len(l.Text) < joinBytes
		if l.Err == p.Err && (soon || n >= maxPrints-1 && len(l.Text) < most) {
			l.Text += p.Text
			return list
		}
	}
	return append(list, p)
}

func (c *outputCapture) collectedOutput() operatorapi.Output {
	return operatorapi.Output{
		Head: append([]operatorapi.Print{}, c.head...), Omitted: c.omitted, Tail: append([]operatorapi.Print(nil), c.tail...),
	}
}
