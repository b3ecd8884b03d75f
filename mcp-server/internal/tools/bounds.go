package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxParams bounds everything in a message except a tool's arguments, in bytes of JSON: names, URIs, cursors, progress
// tokens, _meta, and the client's data from initialize, which a session stores.
const MaxParams = 16 << 10

// Bounds of subscriptions, which are stored as long as their sessions.
const (
	maxSubscribed    = 64
	maxSubscriptions = 4096 // of all sessions
)

// rejectLongParams rejects messages whose params are longer than MaxParams. argumentReader bounds the arguments of
// tools.
func rejectLongParams(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		var params any = req.GetParams()
		if call, ok := params.(*mcp.CallToolParamsRaw); ok && call != nil {
			rest := *call
			// Arguments have a larger bound, and encoding them again here would cost memory.
			rest.Arguments = nil
			params = &rest
		}
		// Encoded again, because the SDK keeps only the decoded params.
		text, err := json.Marshal(params)
		//defence:message-bounds
		if err != nil || len(text) > MaxParams {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
				Message: fmt.Sprintf("the params of %.40q have more than %d bytes", method, MaxParams)}
		}
		return next(ctx, method, req)
	}
}

type subscriptionCount struct {
	mu  sync.Mutex
	all int
	of  map[*mcp.ServerSession]map[string]bool
}

// addSubscription adds a subscription. It returns false if a bound is reached.
func (s *subscriptionCount) addSubscription(server *mcp.Server, session *mcp.ServerSession, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[session]
	if mine == nil {
		// Sessions that ended are removed only here, when another session subscribes.
		s.removeEnded(server)
		mine = map[string]bool{}
	}
	// Subscribing twice to one skill takes one place.
	if mine[uri] {
		return true
	}
	if len(mine) >= maxSubscribed || s.all >= maxSubscriptions {
		return false
	}
	if s.of == nil {
		s.of = map[*mcp.ServerSession]map[string]bool{}
	}
	mine[uri], s.of[session] = true, mine
	s.all++
	return true
}

func (s *subscriptionCount) removeSubscription(session *mcp.ServerSession, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.of[session]; mine[uri] {
		delete(mine, uri)
		s.all--
	}
}

// removeEnded removes sessions that have ended. The caller holds the lock.
func (s *subscriptionCount) removeEnded(server *mcp.Server) {
	if len(s.of) == 0 {
		return
	}
	live := map[*mcp.ServerSession]bool{}
	for session := range server.Sessions() {
		live[session] = true
	}
	for session, uris := range s.of {
		if !live[session] {
			s.all -= len(uris)
			delete(s.of, session)
		}
	}
}
