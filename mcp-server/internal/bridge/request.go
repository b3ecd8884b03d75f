package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

const (
	// maxPages bounds the pages that are read of a list.
	maxPages = 100
	// maxErrorText bounds the reported part of an HTTP error response, in bytes.
	maxErrorText = 1 << 10
)

// sendFunc sends one request with the SDK's session, and returns the result.
type sendFunc func(context.Context, *mcp.ClientSession) (any, error)

// newSendFunc returns the sendFunc that calls a method of the SDK's session with params.
func newSendFunc[P, R any](method func(*mcp.ClientSession, context.Context, *P) (R, error), params *P) sendFunc {
	return func(ctx context.Context, cs *mcp.ClientSession) (any, error) { return method(cs, ctx, params) }
}

// doRequest carries out one request.
func (b *Bridge) doRequest(ctx context.Context, s serverConn, f bridgewire.ToBridge) bridgewire.FromBridge {
	var result any
	var err error
	switch f.Method {
	case bridgewire.ToolsMethod:
		result, err = b.listTools(ctx, s)
	case bridgewire.ResourcesMethod:
		result, err = b.listResources(ctx, s)
	case bridgewire.PromptsMethod:
		result, err = b.listPrompts(ctx, s)
	case bridgewire.CallMethod, bridgewire.ReadMethod, bridgewire.PromptMethod:
		var send sendFunc
		if send, err = readSingleRequest(f); err != nil {
			err = &bridgewire.Error{Code: bridgewire.BadRequest, Message: "reading the params: " + err.Error()}
			break
		}
		result, err = b.sendOne(ctx, s, send, true)
	default:
		err = &bridgewire.Error{Code: bridgewire.BadRequest, Message: fmt.Sprintf("there is no method %.40q", f.Method)}
	}
	if err != nil {
		return bridgewire.FromBridge{Error: toFrameError(err)}
	}
	line, err := bridgewire.EncodeLine(result)
	if err != nil {
		return bridgewire.FromBridge{Error: toFrameError(err)}
	}
	return bridgewire.FromBridge{Result: line}
}

// readSingleRequest reads the params of a request with one answer, and returns its sendFunc.
func readSingleRequest(f bridgewire.ToBridge) (sendFunc, error) {
	switch f.Method {
	case bridgewire.CallMethod:
		var p bridgewire.Call
		err := json.Unmarshal(f.Params, &p)
		params := &mcp.CallToolParams{Name: p.Name}
		// MCP, Progress: the server repeats the token, so reportProgress finds the request by its ID.
		params.SetProgressToken(strconv.FormatUint(f.ID, 10))
		if len(p.Arguments) > 0 {
			params.Arguments = p.Arguments
		}
		return newSendFunc((*mcp.ClientSession).CallTool, params), err
	case bridgewire.ReadMethod:
		var p bridgewire.Read
		err := json.Unmarshal(f.Params, &p)
		return newSendFunc((*mcp.ClientSession).ReadResource, &mcp.ReadResourceParams{URI: p.URI}), err
	default:
		var p bridgewire.Prompt
		err := json.Unmarshal(f.Params, &p)
		return newSendFunc((*mcp.ClientSession).GetPrompt, &mcp.GetPromptParams{Name: p.Name, Arguments: p.Arguments}), err
	}
}

// sendOne sends one request and returns the result: exactly as the server wrote it if isExact is set or the SDK cannot
// read it, and otherwise in the SDK's form, whose large numbers are rounded. A result that the capture has not recorded
// always has the SDK's form.
func (b *Bridge) sendOne(ctx context.Context, s serverConn, send sendFunc, isExact bool) (json.RawMessage, error) {
	for again := true; ; again = false {
		cs, err := s.ensureSession()
		if err != nil {
			return nil, err
		}
		asking, c := withCapture(ctx)
		result, err := send(asking, cs)
		if ctx.Err() != nil {
			return nil, b.waitUntilSettled(ctx, s, cs, c)
		}
		if raw := c.rawResult(err); raw != nil && (err != nil || isExact) {
			return raw, nil
		}
		if err == nil {
			return bridgewire.EncodeLine(result)
		}
		// Repeated once, and only if the server cannot have carried out the request.
		if (s.isSessionLost(cs, c, err) || c.isUnsent()) && again && !s.isProcess() {
			continue
		}
		return nil, c.explainError(err)
	}
}

// waitUntilSettled waits until a server has stopped working on a cancelled request, and returns the request's error.
func (b *Bridge) waitUntilSettled(ctx context.Context, s serverConn, cs *mcp.ClientSession, c *wireCapture) error {
	// A remote server works outside of the slot, so waiting for it protects no other call here.
	if !s.isProcess() {
		return &bridgewire.Error{Code: bridgewire.Cancelled, Message: "cancelled"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	alive := make(chan bool, 1)
	go func() {
		err := cs.Ping(ctx, nil)
		answer := (*jsonrpc.Error)(nil)
		alive <- err == nil || errors.As(err, &answer) // an error such as "no such method" is an answer, too
	}()
	select {
	case <-c.answered:
		return &bridgewire.Error{Code: bridgewire.Cancelled, Message: "cancelled"}
	case <-s.endSignal():
		return &bridgewire.Error{Code: bridgewire.Gone, Message: "the server ended"}
	case <-ctx.Done():
	}
	select { // an answer in time counts, however late it is read here
	case <-c.answered:
		return &bridgewire.Error{Code: bridgewire.Cancelled, Message: "cancelled"}
	default:
	}
	if w, ok := s.(*childServer); ok {
		w.wire.forgetCapture(c)
	}
	if <-alive {
		return &bridgewire.Error{Code: bridgewire.Abandoned, Message: "cancelled; the server does not say whether it stopped"}
	}
	return &bridgewire.Error{Code: bridgewire.Hung, Message: "cancelled; the server no longer answers"}
}

// rawResult returns the result exactly as the server wrote it. It returns nil if the transport did not record it, or if
// the SDK must handle it because the server wants to ask the user.
func (c *wireCapture) rawResult(err error) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r struct {
		Type string `json:"resultType"`
	}
	// Only an object can be a result.
	if len(c.raw) == 0 || c.raw[0] != '{' || json.Unmarshal(c.raw, &r) != nil || r.Type == "input_required" {
		return nil
	}
	return c.raw
}

// isUnsent reports whether no part of the request has reached the server.
func (c *wireCapture) isUnsent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.sent
}

// explainError replaces an error of the SDK by a better one that the transport recorded.
func (c *wireCapture) explainError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	// The server never saw the request, so the model may safely repeat the call.
	case !c.sent:
		return &bridgewire.Error{Code: bridgewire.NotSent, Message: err.Error()}
	case c.large:
		return tooLarge()
	case c.status >= http.StatusMultipleChoices, c.status != 0 && !errors.As(err, new(*jsonrpc.Error)):
		code := bridgewire.ServerError
		if c.status == http.StatusTooManyRequests {
			code = bridgewire.Limited
		}
		return &bridgewire.Error{Code: code, Message: strings.TrimSpace(fmt.Sprintf("HTTP %d %s", c.status, c.body))}
	}
	return err
}

// toFrameError converts an error of the SDK to one for the broker. It is the only place that does so.
func toFrameError(err error) *bridgewire.Error {
	if e := (*bridgewire.Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*jsonrpc.Error)(nil); errors.As(err, &e) {
		if e.Code == codeTooLarge {
			return tooLarge()
		}
		data, _ := bridgewire.EncodeLine(e)
		return &bridgewire.Error{Code: bridgewire.ServerError, Message: e.Message, Data: data}
	}
	talking := (*url.Error)(nil)
	switch {
	case errors.As(err, &talking):
		return &bridgewire.Error{Code: bridgewire.Gone, Message: err.Error()}
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		return &bridgewire.Error{Code: bridgewire.Gone, Message: "the connection to the server ended"}
	}
	return &bridgewire.Error{Code: bridgewire.ServerError, Message: err.Error()}
}

// listPage is a page of a list. MCP defines the names of the lists.
type listPage struct {
	Tools     []json.RawMessage `json:"tools"`
	Resources []json.RawMessage `json:"resources"`
	Templates []json.RawMessage `json:"resourceTemplates"`
	Prompts   []json.RawMessage `json:"prompts"`
	Next      string            `json:"nextCursor"`
}

// readPages reads a list to its end or to a bound. A server that does not know the list has an empty one.
func (b *Bridge) readPages(
	ctx context.Context, s serverConn, send func(cursor string) sendFunc, items func(listPage) []json.RawMessage,
) (all []json.RawMessage, truncated bool, err error) {
	all = []json.RawMessage{}
	cursor, size := "", 0
	// A hostile server may have pages without end.
	for range maxPages {
		// The SDK drops tools of a remote server with an invalid x-mcp-header, as MCP requires of clients.
		raw, err := b.sendOne(ctx, s, send(cursor), s.isProcess())
		if e := (*jsonrpc.Error)(nil); errors.As(err, &e) && e.Code == jsonrpc.CodeMethodNotFound {
			return all, false, nil
		}
		var p listPage
		if err == nil {
			err = json.Unmarshal(raw, &p)
		}
		if err != nil {
			return nil, false, err
		}
		for _, item := range items(p) {
			// All pages together are one result, with one bound.
			if size += len(item); size > bridgewire.MaxMessage {
				return nil, false, tooLarge()
			}
			all = append(all, item)
		}
		// A server that repeats its cursor would otherwise be asked for the same page again and again.
		if p.Next == "" || p.Next == cursor {
			return all, false, nil
		}
		cursor = p.Next
	}
	return all, true, nil
}

func (b *Bridge) listTools(ctx context.Context, s serverConn) (bridgewire.Tools, error) {
	all, truncated, err := b.readPages(ctx, s, func(cursor string) sendFunc {
		return newSendFunc((*mcp.ClientSession).ListTools, &mcp.ListToolsParams{Cursor: cursor})
	}, func(p listPage) []json.RawMessage { return p.Tools })
	return bridgewire.Tools{Tools: all, Truncated: truncated}, err
}

func (b *Bridge) listResources(ctx context.Context, s serverConn) (bridgewire.Resources, error) {
	all, truncated, err := b.readPages(ctx, s, func(cursor string) sendFunc {
		return newSendFunc((*mcp.ClientSession).ListResources, &mcp.ListResourcesParams{Cursor: cursor})
	}, func(p listPage) []json.RawMessage { return p.Resources })
	if err != nil {
		return bridgewire.Resources{}, err
	}
	templates, more, err := b.readPages(ctx, s, func(cursor string) sendFunc {
		return newSendFunc((*mcp.ClientSession).ListResourceTemplates, &mcp.ListResourceTemplatesParams{Cursor: cursor})
	}, func(p listPage) []json.RawMessage { return p.Templates })
	return bridgewire.Resources{Resources: all, Templates: templates, Truncated: truncated || more}, err
}

func (b *Bridge) listPrompts(ctx context.Context, s serverConn) (bridgewire.Prompts, error) {
	all, truncated, err := b.readPages(ctx, s, func(cursor string) sendFunc {
		return newSendFunc((*mcp.ClientSession).ListPrompts, &mcp.ListPromptsParams{Cursor: cursor})
	}, func(p listPage) []json.RawMessage { return p.Prompts })
	return bridgewire.Prompts{Prompts: all, Truncated: truncated}, err
}
