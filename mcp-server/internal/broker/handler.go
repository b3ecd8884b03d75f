package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxBody is the largest body of a request, in bytes.
const maxBody = 16 << 20

// ServeHTTP answers the requests of code, which the proxy passes on:
//
//	POST /{server}/{tool}           arguments, an object -> the CallToolResult, with "_schema" and "_hint" of addMarkers
//	GET  /{server}                  -> {"tools": [...]}
//	GET  /{server}/$resources       -> {"resources": [...], "templates": [...]}
//	POST /{server}/$read            {"uri"} -> the ReadResourceResult
//	POST /{server}/$prompt          {"name", "arguments"} -> the GetPromptResult
//	POST /$stash/{get,set,delete,keys}
//
// If a request ends early, its call is cancelled. A call that a dry run records is checked but not made: see plan.go.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	c := callRequest{broker: b, run: r.Header.Get(proxyapi.HeaderRun), plan: r.Header.Get(proxyapi.HeaderPlan)}
	if c.plan == proxyapi.PlanSend {
		// The run that recorded the call is usually over, so cfg.Session no longer knows its session.
		b.lendSession(c.run, r.Header.Get(proxyapi.HeaderSession))
	}
	c.memory = b.memory.OpenAccount(b.holderOf(c.run))
	defer c.memory.Close()
	result, f := c.routeRequest(r)
	// The account stays open until the answer is written: a slow reader would otherwise hold memory that is not counted.
	if f == nil {
		if f = c.reserveAnswer(len(result)); f != nil {
			result = nil
		}
	}
	if c.server != nil {
		b.cfg.Called(c.server.api.Name, resultWord(result, f), time.Since(began))
	}
	if f != nil {
		own := *f // others may wait for the same, such as a list of tools
		own.server, own.tool = c.name, c.tool
		own.writeFailure(w)
		return
	}
	c.setResultCode(w.Header(), result)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(result)))
	_, _ = w.Write(result) // an error means that the client is gone
}

// reserveAnswer takes the memory for an answer of this size, as far as the request has not taken it yet. An answer that
// the broker makes itself must take the memory first: code could otherwise ask for many answers at once.
func (c *callRequest) reserveAnswer(size int) *callFailure {
	more := max(0, int64(size)-c.reserved)
	isTaken := c.memory.TryTake(more)
	if !isTaken {
		// Decoded values of other calls of the holder have their memory only for a moment, but this answer would be lost.
		c.broker.decoding.Lock()
		isTaken = c.memory.TryTake(more)
		c.broker.decoding.Unlock()
	}
	if !isTaken {
		return &callFailure{
			code: resultTooLarge, message: "this answer and the unread answers are too large together",
			hint: "The call was carried out. Call less at once, and ask for less.",
		}
	}
	c.reserved += more
	return nil
}

// resultWord returns a call's result in one word: "ok", "tool_error" or the code of a failure.
func resultWord(result []byte, f *callFailure) string {
	if f != nil {
		return f.code
	}
	var r struct {
		IsError bool `json:"isError"`
	}
	// The search is cheap, and spares most results the decoding.
	if bytes.Contains(result, []byte(`"isError"`)) && json.Unmarshal(result, &r) == nil && r.IsError {
		return "tool_error"
	}
	return "ok"
}

type callRequest struct {
	broker *Broker
	run    string
	name   string // of the server, as the request wrote it
	tool   string
	server *configuredServer
	limit  time.Duration      // the timeout that code set, or 0
	memory *membudget.Account // for arguments and answers

	reserved int64 // bytes of memory that are for the answer

	plan    string // HeaderPlan
	planned bool   // checked, but not made

	unasked atomic.Pointer[string] // why a server's question was not put to the user
}

// routeRequest routes a request to the stash or to a server.
func (c *callRequest) routeRequest(r *http.Request) ([]byte, *callFailure) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, p := range parts {
		name, err := url.PathUnescape(p)
		if err != nil || name == "" || len(parts) > 2 {
			return nil, &callFailure{code: badRequest, message: "the path is /server or /server/tool"}
		}
		parts[i] = name
	}
	if c.run == "" {
		return nil, &callFailure{code: badRequest, message: "the request belongs to no run"}
	}
	c.name = parts[0]
	if len(parts) == 2 {
		c.tool = parts[1]
	}
	body, f := c.readBody(r)
	if f != nil {
		return nil, f
	}
	if c.name == "$stash" {
		c.name = ""
		return c.doStash(body)
	}
	if ms, err := strconv.ParseInt(r.Header.Get(proxyapi.HeaderTimeout), 10, 64); err == nil && ms > 0 {
		// The inner min comes first, because a large ms times time.Millisecond would overflow.
		c.limit = min(time.Duration(min(ms, maxTimeout.Milliseconds()))*time.Millisecond, maxTimeout)
	}
	if c.server = c.broker.findServer(c.name); c.server == nil {
		return nil, &callFailure{
			code: serverNotFound, message: fmt.Sprintf("there is no server %.80q", c.name), hint: "list_apis lists them.",
		}
	}
	if f := c.broker.recordUse(c.run, c.server); f != nil {
		return nil, f
	}
	return c.routeToServer(r, body)
}

// readBody reads a request's body, within maxBody and the memory that the run's holder has left.
func (c *callRequest) readBody(r *http.Request) ([]byte, *callFailure) {
	body, err := io.ReadAll(c.memory.NewReader(io.LimitReader(r.Body, maxBody+1)))
	if errors.Is(err, membudget.ErrFull) {
		return nil, newTooManyArguments()
	}
	if err != nil {
		return nil, &callFailure{code: badRequest, message: "the body broke off"}
	}
	if len(body) > maxBody {
		return nil, &callFailure{code: badArguments, message: fmt.Sprintf("the arguments are larger than %d MiB",
			maxBody>>20)}
	}
	// The frame for the bridge nests the arguments two levels deeper, and a frame beyond MaxDepth is not read.
	if bridgewire.NestingDepth(body) > bridgewire.MaxDepth-2 {
		return nil, &callFailure{code: badArguments, message: "the arguments nest too deep"}
	}
	return body, nil
}

// routeToServer carries out a request for a server.
func (c *callRequest) routeToServer(r *http.Request, body []byte) ([]byte, *callFailure) {
	ctx := r.Context()
	get := r.Method == http.MethodGet
	switch {
	case c.tool == "" && get:
		return c.listTools(ctx)
	case c.tool == proxyapi.ListResources && get:
		return c.requestServer(ctx, bridgewire.ResourcesMethod, nil, true)
	case get || r.Method != http.MethodPost || c.tool == "":
		return nil, &callFailure{code: badRequest, message: "a tool is called with POST, and $tools and $resources with GET"}
	// The server gets the body itself: encoded again, escapes could make it longer than a frame.
	case c.tool == proxyapi.ReadResource:
		var p bridgewire.Read
		if json.Unmarshal(body, &p) != nil || p.URI == "" {
			return nil, &callFailure{code: badArguments, message: "uri: missing; want string", hint: `$read("file:///a.txt")`}
		}
		return c.requestServer(ctx, bridgewire.ReadMethod, json.RawMessage(body), true)
	case c.tool == proxyapi.GetPrompt:
		if f := c.checkPrompt(body); f != nil {
			return nil, f
		}
		return c.requestServer(ctx, bridgewire.PromptMethod, json.RawMessage(body), true)
	}
	return c.callTool(ctx, body)
}

// instanceKey returns the key of the instance that the call uses: a run's, a session's, a tenant's or the shared one.
func (c *callRequest) instanceKey() (string, *callFailure) {
	session, ok := c.broker.sessionOfRun(c.run)
	of := tenant.TenantOf(session)
	switch {
	case !ok: // its owner is unknown
		return "", &callFailure{code: cancelled, message: "the run has ended"}
	case c.server.spec.State == "run":
		return c.run, nil
	case c.server.spec.State == "session":
		return "session " + session, nil
	case of != "": // another tenant must not see this one's data there
		return "tenant " + of, nil
	}
	return "", nil
}

// tenantOf returns the tenant whose instance has the key. Empty means the operator. The key of a run that is over is
// returned unchanged, and matches no tenant.
func (b *Broker) tenantOf(key string) string {
	if name, ok := strings.CutPrefix(key, "tenant "); ok {
		return name
	}
	if session, ok := strings.CutPrefix(key, "session "); ok {
		return tenant.TenantOf(session)
	}
	session, ok := b.sessionOfRun(key)
	if !ok {
		return key
	}
	return tenant.TenantOf(session)
}

// requestServer makes a request to the server within its time limit. Only a limit that code has set includes the time
// to start the server.
func (c *callRequest) requestServer(ctx context.Context, method string, params any, repeat bool) ([]byte,
	*callFailure) {
	key, f := c.instanceKey()
	if f != nil {
		return nil, f
	}
	limit := c.limit
	if limit == 0 {
		limit = time.Duration(c.server.spec.TimeoutMS) * time.Millisecond
		if !c.broker.isConnected(c.server, key) {
			limit += c.server.connectTimeout()
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, callKey{}, c))
	defer cancel(nil)
	defer c.broker.limitCall(c.run, limit, func() { cancel(context.DeadlineExceeded) })()
	raw, f := c.server.requestWithRetry(ctx, key, method, params, repeat)
	// A failure that was not sent keeps its own code: it is retryable, and a timeout is not.
	if f != nil && !f.unsent && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil, newTimeout(limit)
	}
	if f != nil && !f.unsent && ctx.Err() != nil {
		return nil, &callFailure{code: cancelled, message: "the call was cancelled"}
	}
	return raw, f
}

// listTools returns the definitions of the tools that code may call, as JSON.
func (c *callRequest) listTools(ctx context.Context) ([]byte, *callFailure) {
	tools, f := c.fetchTools(ctx, c.server.learnTools)
	if f != nil {
		return nil, f
	}
	tools = slices.DeleteFunc(slices.Clone(tools), func(t *declaredTool) bool {
		return !c.server.mayCall(t) || t.held != ""
	})
	all := convert.Each(tools, func(t *declaredTool) []byte { return t.raw })
	return c.joinAnswer(`{"tools":[`, all, "]}")
}

// joinAnswer returns an answer of JSON values with commas between them. An encoder would need several times the memory
// of a long answer.
func (c *callRequest) joinAnswer(start string, values [][]byte, end string) ([]byte, *callFailure) {
	size := len(start) + len(end) + len(values)
	for _, v := range values {
		size += len(v)
	}
	if c.reserveAnswer(size) != nil {
		return nil, newUnavailable("this answer and the unread answers are too large together",
			"Ask for less at once: parallel(calls, {limit: 2}).")
	}
	out := append(make([]byte, 0, size), start...)
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, end...), nil
}

// fetchTools returns all tools of the server, from one of its methods, within the limit that code has set.
func (c *callRequest) fetchTools(ctx context.Context,
	from func(context.Context) ([]*declaredTool, *callFailure)) ([]*declaredTool, *callFailure) {
	if _, f := c.instanceKey(); f != nil { // the run is over
		return nil, f
	}
	if c.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.limit)
		defer cancel()
	}
	return from(ctx)
}

func (c *callRequest) callTool(ctx context.Context, body []byte) ([]byte, *callFailure) {
	began := time.Now()
	tools, f := c.fetchTools(ctx, c.server.listTools)
	if f != nil {
		return nil, f
	}
	t, f := findTool(tools, c.tool)
	// Another call may just have added the tool.
	if f != nil && f.code == toolNotFound {
		if newer, failed := c.fetchTools(ctx, c.server.listAgain); failed == nil && newer != nil {
			t, f = findTool(newer, c.tool)
		}
	}
	if f != nil {
		return nil, f
	}
	// From here on the name is the server's, not the alias that code may have written.
	c.tool = t.Name
	if t.task {
		return nil, &callFailure{code: toolDenied, message: "it runs only as a task, which CodeForge does not support",
			hint: "Do without it."}
	}
	if !c.server.mayCall(t) {
		return nil, &callFailure{code: toolDenied, message: "the user's configuration does not allow this tool",
			hint: "Do without it, or ask the user."}
	}
	if f := c.server.checkQuarantine(t); f != nil {
		return nil, f
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	if f := c.checkArguments(t, body); f != nil {
		return nil, f
	}
	//defence:dry-run-approved
	checks := c.plan == proxyapi.PlanCheck
	// Only a tool that claims to be read-only really runs in a dry run.
	//defence:dry-run-tools
	records := c.plan == proxyapi.PlanRecord && !t.reads
	if checks || records {
		c.planned = true
		return []byte("{}"), nil
	}
	// The limit of code includes the time for listing the tools.
	if c.limit > 0 {
		if c.limit -= time.Since(began); c.limit <= 0 {
			return nil, &callFailure{code: timedOut, message: "the time limit passed before the tool was called",
				retryable: true}
		}
	}
	again := c.server.spec.Retry && t.repeatable
	raw, f := c.requestServer(ctx, bridgewire.CallMethod, bridgewire.Call{Name: t.Name, Arguments: body}, again)
	hint := ""
	if why := c.unasked.Load(); why != nil {
		hint = "The server wanted to ask the user something, and could not: " + *why + "."
	}
	if f != nil {
		f.hint = cmp.Or(f.hint, hint)
		return nil, f
	}
	if c.plan == proxyapi.PlanSend { // a person, not code, reads the result
		return raw, nil
	}
	return addMarkers(raw, len(t.OutputSchema) > 0, hint)
}

// addMarkers adds two members to a result: "_schema" reports whether the tool has an outputSchema, and "_hint" explains
// an error. They come last, so that they override members of the same name from the server.
func addMarkers(raw json.RawMessage, schema bool, hint string) ([]byte, *callFailure) {
	text := bytes.TrimSpace(raw)
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return nil, &callFailure{code: serverError, message: "the result is not an object"}
	}
	// The bytes are joined instead of decoded, because a result may be large and its numbers must stay exact.
	inside := bytes.TrimSpace(text[1 : len(text)-1])
	out := append(make([]byte, 0, len(text)+48+2*len(hint)), text[:len(text)-1]...)
	if len(inside) > 0 {
		out = append(out, ',')
	}
	words, _ := json.Marshal(hint) // a string
	return fmt.Appendf(out, `"_schema":%v,"_hint":%s}`, schema, words), nil
}
