// Package question puts questions to the person at the MCP client whose call runs code, in the middle of that call.
//
// A client of a revision before 2026-07-28 is sent a request. A newer one is given a result that asks for input, and
// calls again with the answer: the work of the call goes on meanwhile, and the second call waits for it (Desk).
// An answer proves no person: some clients give it by themselves.
package question

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Question is a form.
type Question struct {
	Message string
	// Schema is a flat JSON Schema of an object, as the protocol wants it for forms.
	Schema json.RawMessage
}

// The actions of an Answer.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

// Answer is what the person did. Content, an object, is there if the action is Accept and the form had fields.
type Answer struct {
	Action  string
	Content json.RawMessage
}

// Asker asks one question and waits for the answer. An error says in a sentence why there is none.
type Asker func(context.Context, Question) (Answer, error)

// ErrNobody means that the client shows its user no forms.
var ErrNobody = errors.New("the client that runs this code cannot show its user a question")

// nobody is the Asker of a client that shows no forms.
func nobody(context.Context, Question) (Answer, error) { return Answer{}, ErrNobody }

// params is a question in the protocol's form.
func (q Question) params() *mcp.ElicitParams {
	p := &mcp.ElicitParams{Mode: "form", Message: q.Message}
	if p.RequestedSchema = any(q.Schema); len(q.Schema) == 0 {
		p.RequestedSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return p
}

// answer is what a client answered.
func answer(r *mcp.ElicitResult) (Answer, error) {
	if r == nil || r.Action != Accept && r.Action != Decline && r.Action != Cancel {
		return Answer{}, errors.New("the client gave no answer to the question")
	}
	a := Answer{Action: r.Action}
	if r.Action == Accept && r.Content != nil {
		var err error
		if a.Content, err = json.Marshal(r.Content); err != nil {
			return Answer{}, err
		}
	}
	return a, nil
}

// asks says whether a client shows forms. A client that names no form and no other mode shows them.
func asks(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}
