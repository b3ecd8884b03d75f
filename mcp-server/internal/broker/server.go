package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// maxTools bounds the tools of one server. maxName bounds a tool's name, in bytes.
	maxTools = 2000
	maxName  = 256
	// maxDefinition and maxDefinitions bound one definition of a tool, and all definitions of a server, in bytes.
	maxDefinition  = 256 << 10
	maxDefinitions = 8 << 20
	// listTime is added to the time for connecting when a server lists its tools: CodeForge may have to install its
	// package first.
	listTime = 30 * time.Second
)

// configuredServer is a server of the catalog with its present configuration. A changed configuration makes another
// server.
type configuredServer struct {
	broker *Broker
	api    proxyapi.API
	spec   mcpserver.Settings
	digest string

	turns chan struct{} // one for each call that may be in flight

	// Guarded by Broker.mu.
	instances map[string]*serverInstance
	breaker   serverBreaker
	notBefore time.Time // of the next start
	tools     []*declaredTool
	known     bool         // tools are the server's, perhaps from before its last start
	recalled  bool         // the accepted tools have been read
	fresh     bool         // tools are the server's present ones
	asked     time.Time    // when the tools were last listed
	again     *time.Timer  // runs until the tools may be listed again
	listing   *toolListing // the listing in progress
	closed    bool         // no longer in the catalog
	problem   string       // the last failed call or start; empty after a success
}

type declaredTool struct {
	toolsignature.Tool
	raw        json.RawMessage
	held       string // why code may not call it until the user has reviewed it, or empty
	repeatable bool   // it claims that calling it twice is harmless
	reads      bool   // it claims that it changes nothing
	task       bool   // it runs only as a task, which CodeForge does not support
}

func newServer(b *Broker, api proxyapi.API, digest string) *configuredServer {
	return &configuredServer{
		broker: b, api: api, spec: *api.Server, digest: digest,
		turns: make(chan struct{}, api.Server.MaxConcurrent), instances: map[string]*serverInstance{},
	}
}

func (s *configuredServer) connectTimeout() time.Duration {
	return time.Duration(s.spec.ConnectTimeoutMS) * time.Millisecond
}

// isStateful reports whether a process of the server belongs to one session or run.
func (s *configuredServer) isStateful() bool {
	return s.spec.State == "session" || s.spec.State == "run"
}

// logInfo writes a log line about the server.
func (s *configuredServer) logInfo(text string) {
	s.recordLine(text)
	s.broker.cfg.Log.Info(text, logline.Tag("server"), slog.String("server", s.api.Name))
}

func (s *configuredServer) logWarning(text string, attrs ...any) {
	s.recordLine(text, attrs...)
	s.broker.cfg.Log.Warn(text, append([]any{logline.Tag("server"), slog.String("server", s.api.Name)}, attrs...)...)
}

// listPause is the least time between two listings of a server's tools, regardless of how often it reports changes.
const listPause = 2 * time.Second

// handleChange handles an instance's report that the server's tools changed. It ignores an instance of one tenant,
// session or run: its owner may control it, and must not change the tools that others see.
func (s *configuredServer) handleChange(key string) {
	if key != "" {
		return
	}
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if wait := listPause - time.Since(s.asked); wait > 0 {
		if s.again == nil {
			s.again = time.AfterFunc(wait, s.markStale)
		}
		return
	}
	s.fresh = false
}

// markStale makes the next call list the tools again.
func (s *configuredServer) markStale() {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.fresh, s.again = false, nil
}

// noticeTime is the longest delay of a change that a server reports with an answer: the bridge gathers such reports.
const noticeTime = 200 * time.Millisecond

// listAgain lists the tools again for a call of an unknown tool, since another call may just have added it. It returns
// nil if the server does not run, or if it was asked within listPause and has reported no change since.
func (s *configuredServer) listAgain(ctx context.Context) ([]*declaredTool, *callFailure) {
	wait, running, changed := s.nextList()
	if running && !changed && wait > 0 { // a change may be on its way
		if !timing.WaitFor(ctx, noticeTime) {
			return nil, nil
		}
		wait, running, changed = s.nextList()
	}
	if !running || !changed && wait > 0 {
		return nil, nil
	}
	if !timing.WaitFor(ctx, wait) {
		return nil, nil
	}
	b := s.broker
	b.mu.Lock()
	s.fresh = s.fresh && time.Since(s.asked) < listPause // another call may have asked meanwhile
	b.mu.Unlock()
	return s.listTools(ctx)
}

// nextList returns the time until the tools may be listed again, whether the server runs, and whether it has reported a
// change since the last listing.
func (s *configuredServer) nextList() (wait time.Duration, running, changed bool) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	return max(0, listPause-time.Since(s.asked)), len(s.instances) > 0, s.again != nil || !s.fresh
}

// toolListing is one request for a server's tools, shared by all calls that wait for the answer.
type toolListing struct {
	done  chan struct{}
	tools []*declaredTool
	f     *callFailure
}

// recallTools reads the accepted tools, once. The caller holds Broker.mu.
func (s *configuredServer) recallTools() {
	if !s.known && !s.recalled {
		s.recalled = true
		s.tools, s.known = s.broker.pins.recallTools(s)
	}
}

// learnTools returns the server's tools for information only. For a server that does not run, these are the last known
// tools. A server that had no tools is asked again.
func (s *configuredServer) learnTools(ctx context.Context) ([]*declaredTool, *callFailure) {
	b := s.broker
	b.mu.Lock()
	s.recallTools()
	tools, enough := s.tools, s.known && len(s.tools) > 0 && len(s.instances) == 0
	b.mu.Unlock()
	if enough {
		return tools, nil
	}
	return s.listTools(ctx)
}

// listTools returns the server's tools, and asks the server if they are not fresh. It asks only the shared instance:
// one that belongs to a tenant, session or run may be under its owner's control.
func (s *configuredServer) listTools(ctx context.Context) ([]*declaredTool, *callFailure) {
	b := s.broker
	b.mu.Lock()
	if s.fresh && s.listing == nil {
		defer b.mu.Unlock()
		return s.tools, nil
	}
	l := s.listing
	if l == nil && b.ctx.Err() == nil {
		l = &toolListing{done: make(chan struct{})}
		s.listing = l
		// Not under ctx: other calls wait for the same listing.
		b.parts.Go(func() { s.askForTools(l) })
	}
	b.mu.Unlock()
	if l == nil {
		return nil, newUnavailable("the server is stopping", "")
	}
	select {
	case <-l.done:
		return l.tools, l.f
	case <-ctx.Done():
		return nil, &callFailure{code: timedOut, message: "the server does not list its tools", retryable: true, unsent: true}
	}
}

// askForTools lists the server's tools for all calls that wait for l.
func (s *configuredServer) askForTools(l *toolListing) {
	b := s.broker
	ctx, cancel := context.WithTimeout(b.ctx, s.connectTimeout()+connectMargin+listTime)
	defer cancel()
	b.mu.Lock()
	// Set before the request, so that a change that arrives during the listing is not lost.
	s.fresh, s.asked = true, time.Now() // a change from now on asks again
	b.mu.Unlock()
	raw, f := s.requestWithRetry(ctx, "", bridgewire.ToolsMethod, nil, true)
	if f != nil && f.code == timedOut && !f.unsent {
		f = newUnavailable(fmt.Sprintf("the server did not list its tools within %v", s.connectTimeout()), "")
	}
	var listed bridgewire.Tools
	if f == nil && json.Unmarshal(raw, &listed) != nil {
		f = &callFailure{code: serverError, message: "the server's list of tools cannot be read"}
	}
	if f == nil {
		l.tools = readDefinitions(listed.Tools)
		b.pins.markHeldBack(s, l.tools)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == nil {
		s.tools, s.known = l.tools, true
	} else {
		s.fresh = false
	}
	l.f, s.listing = f, nil
	close(l.done)
}

// readDefinitions reads definitions of tools. It skips tools without a name or beyond the bounds. It ignores members of
// a wrong type: a tool with odd annotations counts as one without annotations.
func readDefinitions(all []json.RawMessage) []*declaredTool {
	tools := []*declaredTool{}
	seen, size := map[string]bool{}, 0
	for _, raw := range all {
		if len(raw) > maxDefinition {
			continue
		}
		raw = canonicalDefinition(raw) // encoding/json ignores the case of keys and merges duplicate keys
		if size+len(raw) > maxDefinitions {
			continue
		}
		var d struct {
			toolsignature.Tool
			Annotations struct {
				ReadOnly   bool `json:"readOnlyHint"`
				Idempotent bool `json:"idempotentHint"`
			} `json:"annotations"`
			Execution struct {
				TaskSupport string `json:"taskSupport"`
			} `json:"execution"`
		}
		_ = json.Unmarshal(raw, &d) // Unmarshal goes on after a member of a wrong type
		if !bytes.HasPrefix(d.OutputSchema, []byte("{")) {
			d.OutputSchema = nil // null in most cases
		}
		if d.Name == "" || len(d.Name) > maxName || seen[d.Name] || len(tools) >= maxTools {
			continue
		}
		seen[d.Name] = true
		size += len(raw)
		tools = append(tools, &declaredTool{
			Tool: d.Tool, raw: raw,
			repeatable: d.Annotations.ReadOnly || d.Annotations.Idempotent, reads: d.Annotations.ReadOnly,
			task: d.Execution.TaskSupport == taskOnly,
		})
	}
	return tools
}

// mayCall reports whether the configuration allows a tool and CodeForge can call it.
func (s *configuredServer) mayCall(t *declaredTool) bool {
	return !t.task && matchesGlobs(t.Name, s.spec.Allow, s.spec.Deny)
}

// requestWithRetry makes one request within ctx, after waiting for its turn. It repeats the request once if it was
// certainly not sent, or if repeat allows that.
func (s *configuredServer) requestWithRetry(ctx context.Context, key, method string, params any,
	repeat bool) (json.RawMessage, *callFailure) {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, &callFailure{
			code: timedOut, message: "all calls that the server may have at once are in flight", retryable: true, unsent: true,
			hint: "Call less at once: parallel(calls, {limit: 4}).",
		}
	}
	// A turn ends when the server has stopped working on the call, which may be after the answer to code.
	release := func() { <-s.turns }
	began := time.Now()
	raw, f := s.requestOnce(ctx, key, method, params, release)
	if f == nil || !f.transport || ctx.Err() != nil || (!f.unsent && !repeat) {
		return raw, f
	}
	if time.Since(began) >= s.connectTimeout() { // a second start would double the wait
		return raw, f
	}
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return raw, f
	}
	return s.requestOnce(ctx, key, method, params, release)
}

// requestOnce makes a request once. It calls release when the server no longer works on the request.
func (s *configuredServer) requestOnce(ctx context.Context, key, method string, params any,
	release func()) (json.RawMessage,
	*callFailure) {
	ok, probe, until := s.broker.admitCall(s)
	if !ok {
		release()
		return nil, newUnavailable("the server failed too often and is not called until "+
			until.UTC().Format(time.TimeOnly)+" UTC", "Go on without it, or try again later.")
	}
	i, f := s.broker.acquireInstance(s, key)
	if f == nil {
		f = i.waitForConnection(ctx)
		if f != nil {
			s.broker.releaseInstance(i, atRest)
		}
	}
	if f != nil {
		s.broker.recordResult(s, probe, f)
		release()
		return nil, f
	}
	if method == bridgewire.ToolsMethod { // ctx may last much longer than a list needs
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.connectTimeout())
		defer cancel()
	}
	id, f := s.broker.startCall(ctx, i)
	settled := func(r callState) {
		s.broker.settleCall(i, id, r)
		s.broker.releaseInstance(i, r)
		release()
	}
	var raw json.RawMessage
	if f != nil {
		settled(atRest)
	} else {
		raw, f = i.sendAndWait(ctx, method, params, settled)
	}
	s.broker.reportCallEnd(callOf(ctx), i, id)
	s.broker.recordResult(s, probe, f)
	return raw, f
}
