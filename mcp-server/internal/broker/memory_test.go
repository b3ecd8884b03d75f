package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
)

// allocatedBy is how many bytes work allocates, beside other goroutines.
func allocatedBy(work func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestMemoryFirst: a request whose run has used its share of the memory up costs mcp-server little. One run that sent 60 of
// these requests at once took a gigabyte: for answers with a value of the stash, for lists of tools, and for decoded arguments of tools and
// prompts.
// Promise: one-memory-budget
func TestMemoryFirst(t *testing.T) {
	const run, large, most = "s1-r1", 8 << 20, 2 << 20
	w := newWorld(t, 4, hostile(t, "a", nil))
	set := `{"key":"k","value":"` + strings.Repeat("x", large) + `"}`
	if got := w.send(t.Context(), run, http.MethodPost, "/$stash/set", set, 0); got.status != http.StatusOK {
		t.Fatal(got.status, string(got.body))
	}
	tool := &declaredTool{Tool: toolsignature.Tool{Name: "t"}, raw: json.RawMessage(`{"description":"` + strings.Repeat("x", large) + `"}`)}
	s := w.broker.findServer("a")
	w.broker.mu.Lock()
	s.tools, s.known, s.fresh = []*declaredTool{tool}, true, true
	w.broker.mu.Unlock()
	// Room for the bodies of small requests, and for the arguments below.
	used := w.broker.memory.OpenAccount(run)
	if !used.TryTake(maxHolds/4 - most) {
		t.Fatal("a run does not get its share")
	}
	for path, body := range map[string]string{"/$stash/get": `{"key":"k"}`, "/a": ""} {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		var got answer
		took := allocatedBy(func() { got = w.send(t.Context(), run, method, path, body, 0) })
		if got.Code != serverUnavailable || took > most {
			t.Errorf("%s: %q after %d KiB", path, got.text(), took>>10)
		}
	}
	values := []byte(`{"x":[` + strings.Repeat(`{"":0},`, maxChecked/16) + `0]}`)
	prompt := `{"name":"p","arguments":{"":""` + strings.Repeat(`,"":""`, 64<<10) + "}}"
	var got answer
	took := allocatedBy(func() { got = w.send(t.Context(), run, http.MethodPost, "/a/$prompt", prompt, 0) })
	if got.Code != serverUnavailable || took > most {
		t.Errorf("arguments of a prompt: %q after %d KiB", got.text(), took>>10)
	}
	c := &callRequest{broker: w.broker, memory: w.broker.memory.OpenAccount(run)}
	typed := &declaredTool{Tool: toolsignature.Tool{Name: "t", InputSchema: json.RawMessage(`{"properties":{"x":{"type":"string"}}}`)}}
	took = allocatedBy(func() {
		if f := c.checkArguments(typed, values); f != nil {
			t.Errorf("arguments that cannot be decoded now: %v", f)
		}
	})
	if took > most {
		t.Errorf("arguments of %d KiB took %d KiB", len(values)>>10, took>>10)
	}
	used.Close()
	if f := c.checkArguments(typed, values); f == nil || f.code != badArguments {
		t.Errorf("wrong arguments: %v", f)
	}
	if got := w.send(t.Context(), run, http.MethodPost, "/$stash/get", `{"key":"k"}`, 0); len(got.body) < large || !json.Valid(got.body) {
		t.Errorf("%d bytes of the stash", len(got.body))
	}
	if got := w.send(t.Context(), run, http.MethodGet, "/a", "", 0); len(got.body) < large || !json.Valid(got.body) {
		t.Errorf("%d bytes of tools", len(got.body))
	}
	if n := w.broker.memory.UsedBytes(); n != 0 {
		t.Errorf("%d bytes stay counted", n)
	}
}

// TestDecodedSize: the bound of decoded arguments holds for texts of many small values.
// Promise: one-memory-budget
func TestDecodedSize(t *testing.T) {
	for _, one := range []string{`0`, `""`, `{}`, `[]`, `[[]]`, `{"":0}`, `{"a":[]}`, `"xxxxxxx"`, `{"a":{"a":0}}`, `true`, `1.5e9`} {
		text := []byte(`{"x":[` + strings.Repeat(one+",", 100_000/len(one)) + one + `]}`)
		took := allocatedBy(func() { findMistakes(json.RawMessage(`{}`), text) })
		t.Logf("%-14s %3d bytes for each, the bound is %d", one, took/uint64(len(text)), estimateDecodedSize(text)/int64(len(text)))
		if took > uint64(estimateDecodedSize(text)) {
			t.Errorf("%s: %d bytes of JSON took %d, the bound is %d", one, len(text), took, estimateDecodedSize(text))
		}
	}
	for name, one := range map[string]string{"plain": "x", "escapes": `\n`, "invalid": "\xff", "signs": ",{["} {
		text := []byte(`{"x":"` + strings.Repeat(one, 1_000_000/len(one)) + `"}`)
		took := allocatedBy(func() { findMistakes(json.RawMessage(`{}`), text) })
		if bound := estimateDecodedSize(text); took > uint64(bound) || bound > int64(17*len(text)+1000) {
			t.Errorf("%s: %d bytes of one text took %d, the bound is %d", name, len(text), took, bound)
		}
	}
	var members strings.Builder
	for n := range 20_000 {
		members.WriteString(`,"` + strings.Repeat("k", n%7) + fmt.Sprint(n) + `":0`)
	}
	text := []byte(`{"x":0` + members.String() + `}`)
	if took := allocatedBy(func() { findMistakes(json.RawMessage(`{}`), text) }); took > uint64(estimateDecodedSize(text)) {
		t.Errorf("%d members took %d, the bound is %d", 20_000, took, estimateDecodedSize(text))
	}
}

// TestDecodingDelaysAnswers: a check of arguments has its memory only for a moment, so a large answer waits for it. The
// answer of a call that was carried out got lost.
// Promise: one-memory-budget
func TestDecodingDelaysAnswers(t *testing.T) {
	b := &Broker{memory: membudget.New(maxHolds)}
	checks, answers := callRequest{broker: b, memory: b.memory.OpenAccount("r")}, callRequest{broker: b, memory: b.memory.OpenAccount("r")}
	decodes, ends := make(chan struct{}), make(chan struct{})
	checked := make(chan bool, 1)
	go func() { checked <- checks.tryDecode(maxHolds/4-1<<20, func() { close(decodes); <-ends }) }()
	<-decodes
	answered := make(chan *callFailure, 1)
	go func() { answered <- answers.reserveAnswer(8 << 20) }()
	// Until the answer waits for the check, or got no memory.
	for len(answered) == 0 && b.decoding.TryRLock() {
		b.decoding.RUnlock()
		runtime.Gosched()
	}
	close(ends)
	if f := <-answered; f != nil || !<-checked {
		t.Error("the answer is lost:", f)
	}
	if f := answers.reserveAnswer(maxHolds); f == nil {
		t.Error("an answer without memory is kept")
	}
}
