package bridge

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

func TestSkim(t *testing.T) {
	for text, want := range map[string]any{
		`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`:                 7.0,
		`{"result":{"a":["id",{"id":9}],"b":"\"id\":1"},"id" : 12 }`: 12.0,
		`{"id":"a\"b","result":"x"}`:                                 `a"b`,
		`{"result":"\\","id":3}`:                                     3.0,
		`{"id":1,"method":"x"}`:                                      nil,
		`{"method":"x","params":{"id":1}}`:                           nil,
		`{"id":"` + strings.Repeat("a", 100) + `"}`:                  nil,
		`[{"id":1}]`: nil, `"id"`: nil, ``: nil, `{"id"`: nil, `{"id":{"id":1}}`: nil,
		"{\n  \"id\": 5,\n  \"result\": 1\n}": 5.0,
	} {
		var whole, parts messageSkimmer
		whole.addBytes([]byte(text))
		for i := range text {
			parts.addBytes([]byte(text[i : i+1]))
		}
		if got := whole.answeredID(); got != want || parts.answeredID() != want || whole.deepest != parts.deepest || whole.size != len(text) {
			t.Errorf("%s: answers %v, in parts %v, want %v", text, got, parts.answeredID(), want)
		}
		if json.Valid([]byte(text)) && whole.deepest != bridgewire.NestingDepth([]byte(text)) {
			t.Errorf("%s: depth %d", text, whole.deepest)
		}
	}
}

// TestLateDiscover: the SDK gets no second answer to server/discover after the bridge has answered for the server.
func TestLateDiscover(t *testing.T) {
	id, err := jsonrpc.MakeID(7.0)
	if err != nil {
		t.Fatal(err)
	}
	w := &stdioConn{incoming: make(chan jsonrpc.Message, 3), closed: make(chan struct{}), discover: id, open: true}
	w.giveUp(id)
	for _, line := range []string{`{"jsonrpc":"2.0","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":8,"result":{}}`} {
		w.takeLine([]byte(line), &messageSkimmer{})
	}
	for _, want := range []float64{7, 8} {
		r, _ := (<-w.incoming).(*jsonrpc.Response)
		if id, _ := jsonrpc.MakeID(want); r == nil || r.ID != id || (r.Error == nil) != (want == 8) {
			t.Errorf("got %+v, want the answer to %v", r, want)
		}
	}
	if len(w.incoming) > 0 || !w.late.Load() {
		t.Errorf("%d more messages, late %t", len(w.incoming), w.late.Load())
	}
}

// TestEventBounds: a stream of any length passes, an event that is too large or too deep does not.
func TestEventBounds(t *testing.T) {
	event := "event: message\r\ndata: {\"a\": [1]}\r\n\r\n"
	deep := "data: " + strings.Repeat("[", bridgewire.MaxDepth/2+1) + "\n"
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"many":          {strings.Repeat(event, 1000), true},
		"deep in parts": {strings.Repeat(deep+"\n", 4), true},
		"deep in one":   {deep + deep, false},
		"large":         {"data: " + strings.Repeat("a", bridgewire.MaxMessage+1), false},
		"large in all":  {strings.Repeat("data: "+strings.Repeat("a", bridgewire.MaxMessage/4)+"\n\n", 6), true},
	} {
		readers := map[string]io.Reader{"whole": strings.NewReader(c.text)}
		if len(c.text) < 1<<20 {
			readers["in bytes"] = iotest.OneByteReader(strings.NewReader(c.text))
		}
		for how, r := range readers {
			got, err := io.ReadAll(&eventStream{ReadCloser: io.NopCloser(r), capture: &wireCapture{}})
			if (err == nil) != c.ok || (c.ok && string(got) != c.text) {
				t.Errorf("%s, %s: %v, %d bytes of %d", name, how, err, len(got), len(c.text))
			}
		}
	}
}
