package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestSchemaCost: whatever a server's schema is, checking arguments by it takes little time, which no caller can end.
// Promise: bounded-servers
func TestSchemaCost(t *testing.T) {
	const many = 8000
	list := func(one string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	times := list(`{"$ref":"#/$defs/a"}`, many)
	object := manyProperties(many / 2)
	defs := func(a, rest string) string { return `{"$defs":{"a":{` + a + `}},` + rest + `}` }
	any, all := `"properties":{"x":{"anyOf":`+times+`}}`, `"allOf":`+times
	half := list(`{"$ref":"#/$defs/a"}`, many/2)
	var unknown []string
	for i := range 2 * many {
		unknown = append(unknown, fmt.Sprintf(`"unknown%d":0`, i))
	}
	for name, c := range map[string][2]string{
		"a large value":      {`{"allOf":` + list(`{"enum":[{}]}`, many) + `}`, `{"x":"` + strings.Repeat("x", 900<<10) + `"}`},
		"a large schema":     {`{"x":` + list(`{}`, 6<<20) + `}`, `{}`},
		"a large enum":       {defs(`"enum":`+list(`"a"`, many), any), `{"x":"b"}`},
		"itself, many times": {`{"allOf":` + list(`{"$ref":"#"}`, many) + `}`, `{"x":1}`},
		"long references":    {defs(`"$ref":"#`+strings.Repeat("/$defs", many)+`"`, all), `{"x":1}`},
		"many types":         {defs(`"type":`+list(`"a"`, many), any), `{"x":"b"}`},
		"many required":      {defs(`"required":`+list(`"a"`, many), all), `{"a":"b"}`},
		"many properties":    {defs(`"properties":`+object, `"allOf":`+half), `{"a":"b"}`},
		"a long key":         {`{"additionalProperties":{"items":{"type":"integer"}}}`, `{"` + strings.Repeat("k", 800<<10) + `":` + list("0", 45_000) + `}`},
		"a long property":    {`{"additionalProperties":false,"properties":{"` + strings.Repeat("p", 250<<10) + `":{}}}`, `{` + strings.Join(unknown, ",") + `}`},
		"long literals":      {defs(`"enum":`+list(`"`+strings.Repeat("e", 4<<10)+`"`, 20), any), `{"x":"b"}`},
		"no such arguments":  {defs(`"additionalProperties":false,"properties":`+object, `"anyOf":`+half), `{"a":"b"}`},
	} {
		costtest.RequireBounded(t, name, 2*time.Second, func() { findMistakes(json.RawMessage(c[0]), json.RawMessage(c[1])) })
	}
	required := list(`"other"`, 3*many) // each property was compared with each
	costtest.RequireBounded(t, "a tool's arguments", 2*time.Second, func() {
		argumentNames(json.RawMessage(`{"properties":` + manyProperties(3*many) + `,"required":` + required + `}`))
	})
}

// manyProperties returns the properties of a schema, n of them.
func manyProperties(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"property%d":{}`, i))
	}
	return `{` + strings.Join(all, ",") + `}`
}

// TestImpatience: calls that code gives up at once say nothing about the server. Other runs can still call it.
// Promise: bounded-servers
func TestImpatience(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Fatalf("%s", got.body)
	}
	for range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.send(ctx, "s2-r2", http.MethodPost, "/a/echo", `{"text":"x"}`, 0)
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("%s", got.body)
	}
}

// TestFlood: a server can write to its bridge's output, so the bridge's bounds do not hold for what it prints.
// Promise: bounded-servers
func TestFlood(t *testing.T) {
	var out bytes.Buffer
	s := &configuredServer{broker: &Broker{cfg: Config{Log: logline.New(&out, "text", nil)}}, api: proxyapi.API{Name: "a"}}
	i := newInstance(s, "", nil)
	large := strings.Repeat("x", 1<<20)
	for range 2000 {
		_, _ = i.handleFrame(bridgewire.FromBridge{Log: large}, nil)
	}
	if out.Len() > 1<<20 || !strings.Contains(out.String(), "xxx") {
		t.Errorf("%d bytes of log", out.Len())
	}
}

// TestDefinitions: what a server's tools take is bounded, whatever the server says.
// Promise: bounded-servers
func TestDefinitions(t *testing.T) {
	var all []json.RawMessage
	for i := range maxTools {
		all = append(all, json.RawMessage(fmt.Sprintf(`{"name":"t%d","description":"%s"}`, i, strings.Repeat("x", 100<<10))))
	}
	all = append(all, json.RawMessage(`{"name":"last"}`))
	big := json.RawMessage(`{"name":"big","description":"` + strings.Repeat("x", maxDefinition) + `"}`)
	tools := readDefinitions(append([]json.RawMessage{big}, all...))
	size := 0
	for _, t := range tools {
		size += len(t.raw)
	}
	if size > maxDefinitions || len(tools) == 0 || tools[0].Name != "t0" {
		t.Errorf("%d tools, %d bytes", len(tools), size)
	}
	var small []json.RawMessage
	for i := range maxTools + 1 {
		small = append(small, json.RawMessage(fmt.Sprintf(`{"name":"t%d"}`, i)))
	}
	if tools := readDefinitions(small); len(tools) != maxTools {
		t.Errorf("%d small tools", len(tools))
	}
}

// TestCallMemory: what calls hold in memory is bounded, of one run and of all together, and is free again after them.
// Promise: bounded-servers, one-memory-budget
func TestCallMemory(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	large := `{"text":"` + strings.Repeat("x", 8<<20) + `"}`
	r := w.broker.memory
	var mu sync.Mutex
	codes, ended := map[string]int{}, 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for i := range 64 { // eight turns: the others wait, with their arguments
		calls.Go(func() {
			got := w.send(ctx, fmt.Sprintf("s1-r%d", i%2), http.MethodPost, "/a/never", large, 0)
			mu.Lock()
			defer mu.Unlock()
			codes[got.Code]++
			ended++
		})
	}
	testkit.WaitFor(t, func() bool { // every call is refused, or holds all of its arguments
		mu.Lock()
		defer mu.Unlock()
		return r.UsedBytes() == int64((64-ended)*len(large))
	})
	cancel()
	calls.Wait()
	if n := codes[timedOut] + codes[cancelled]; n == 0 || n > maxHolds/len(large) || codes[serverUnavailable] != 64-n {
		t.Errorf("%v", codes)
	}
	if r.UsedBytes() != 0 {
		t.Errorf("%d bytes are still held", r.UsedBytes())
	}
	other, own := r.OpenAccount("other"), r.OpenAccount("s1-r1")
	if !other.TryTake(maxHolds/4) || other.TryTake(1) {
		t.Error("a run's bound")
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("beside a run that has its share: %s", got.body)
	}
	if !own.TryTake(maxHolds / 8) {
		t.Error("a second run has no share")
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.Code != serverUnavailable {
		t.Errorf("%s", got.body)
	}
	own.Close()
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("%s", got.body)
	}
}

// TestFrameRate: a server that writes frames without pause waits for mcp-server, and takes little of a processor. An answer
// after its frames arrives.
// Promise: bounded-servers
func TestFrameRate(t *testing.T) {
	for name, frame := range map[string]string{"small": `{"id":7,"result":{}}`, "large": `{"id":7,"result":"` + strings.Repeat("x", 1<<20) + `"}`} {
		synctest.Test(t, func(t *testing.T) {
			n := 60 * unaskedRate / (len(frame) + frameCost)
			took, answered := readFlood(t, frame, n)
			if took < 20*time.Second || took > time.Minute || !answered {
				t.Errorf("%s: %d frames took %v, answered: %v", name, n, took, answered)
			}
			if took, answered = readFlood(t, frame, 20); took > 0 || !answered {
				t.Errorf("%s: an honest server waits for %v, answered: %v", name, took, answered)
			}
		})
	}
}

// readFlood reads frames that answer no request, and an answer. It returns the time, and whether the answer arrived.
func readFlood(t *testing.T, frame string, n int) (took time.Duration, answered bool) {
	t.Helper()
	i := newInstance(&configuredServer{broker: &Broker{}}, "", nil)
	p := &pendingRequest{answer: make(chan bridgewire.FromBridge, 1)}
	i.pending[1] = p
	flood := make([]io.Reader, n, n+1)
	for k := range flood {
		flood[k] = strings.NewReader(frame + "\n")
	}
	began := time.Now()
	err := i.followBridge(t.Context(), io.MultiReader(append(flood, strings.NewReader(`{"id":1,"result":{}}`+"\n"))...), nil)
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return time.Since(began), len(p.answer) == 1
}

// TestLongFrames: arguments within the bound reach the server, whatever characters they have. Escapes made some of them longer
// than a frame. Then the broker ended the server, with the calls of all other runs.
// Promise: bounded-servers
func TestLongFrames(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil))
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Fatalf("%s", got.body)
	}
	first := w.instance("a")
	for path, body := range map[string]string{
		"/a/echo":    `{"text":"` + strings.Repeat("<", 3<<20) + `"}`,
		"/a/$read":   `{"uri":"` + strings.Repeat("\xff", 3<<20) + `"}`,
		"/a/$prompt": `{"name":"p","arguments":{"x":"` + strings.Repeat("<", 900<<10) + `"}}`,
	} {
		got := w.call(path, body)
		if got.Code == serverUnavailable || got.Code == badArguments { // the server may answer with an error
			t.Errorf("%s: %d %s %.200s", path, got.status, got.Code, got.body)
		}
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" || w.instance("a") != first {
		t.Errorf("the server was ended: %.200s", got.body)
	}
}

// instance returns the shared instance of a server.
func (w *world) instance(server string) *serverInstance {
	s := w.broker.findServer(server)
	w.broker.mu.Lock()
	defer w.broker.mu.Unlock()
	return s.instances[""]
}
