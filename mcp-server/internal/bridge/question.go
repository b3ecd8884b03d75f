package bridge

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// maxQuestions bounds the open questions. The broker's bound is lower.
const maxQuestions = 16

// requestKey is the context key of a request's ID.
type requestKey struct{}

// openQuestions are the questions that the broker has not answered yet.
type openQuestions struct {
	mu   sync.Mutex
	id   uint64
	open map[uint64]chan bridgewire.Answer
}

// openQuestion opens a question. It returns 0 and nil if too many are open.
func (q *openQuestions) openQuestion() (uint64, chan bridgewire.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.open) >= maxQuestions {
		return 0, nil
	}
	if q.open == nil {
		q.open = map[uint64]chan bridgewire.Answer{}
	}
	// IDs are never reused, so a late answer cannot reach another question.
	q.id++
	answer := make(chan bridgewire.Answer, 1)
	q.open[q.id] = answer
	return q.id, answer
}

// passAnswer passes an answer on to the waiting elicit.
func (q *openQuestions) passAnswer(a bridgewire.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.open[a.ID]; c != nil {
		c <- a
	}
	delete(q.open, a.ID)
}

// passQuestion passes a server's question to the broker, and returns the answer to the server. If the user does not
// answer, the server gets an error with the reason, so that it cannot mistake the result for the user's answer.
func (b *Bridge) passQuestion(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	refuse := func(why string) (*mcp.ElicitResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: why}
	}
	// A question with a URL would send the user to a page that the server chose.
	if mode := req.Params.Mode; mode != "" && mode != "form" {
		return refuse("only questions with a form are passed on")
	}
	f := bridgewire.Question{Message: req.Params.Message}
	f.Request, _ = ctx.Value(requestKey{}).(uint64)
	var err error
	if f.Schema, err = json.Marshal(req.Params.RequestedSchema); err != nil {
		return nil, err
	}
	id, answer := b.questions.openQuestion()
	if id == 0 {
		return refuse("too many questions are open")
	}
	f.ID = id
	b.writeFrame(bridgewire.FromBridge{Question: &f})
	select {
	case a := <-answer:
		if a.Refused != "" {
			return refuse(a.Refused)
		}
		r := &mcp.ElicitResult{Action: a.Action}
		if len(a.Content) > 0 {
			err = json.Unmarshal(a.Content, &r.Content)
		}
		return r, err
	case <-ctx.Done():
		// This removes the question; a later answer of the broker finds none.
		b.questions.passAnswer(bridgewire.Answer{ID: id})
		return nil, ctx.Err()
	}
}
