// Package userform puts questions to the person at the MCP client whose call runs code, during that call.
//
// A client with a protocol version before 2026-07-28 gets a request. A newer one gets a result that asks for input, and
// calls again with the answer. The work of the call goes on meanwhile, and the second call waits for it (Desk). An
// answer does not prove a person, because some clients answer automatically.
package userform

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Question is a form.
type Question struct {
	Message string
	// Schema is a flat JSON Schema of an object, as MCP requires for forms.
	Schema json.RawMessage
}

// Actions of an Answer.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

// Answer is the person's reaction. Content, an object, is set if the action is Accept and the form had fields.
type Answer struct {
	Action  string
	Content json.RawMessage
}

// Asker asks one question and waits for the answer. An error explains in a sentence why there is no answer.
type Asker func(context.Context, Question) (Answer, error)

// ErrNobody means that the client cannot show forms to its user.
var ErrNobody = errors.New("the client that runs this code cannot show its user a question")

// askNobody is the Asker of a client that cannot show forms.
func askNobody(context.Context, Question) (Answer, error) { return Answer{}, ErrNobody }

// elicitParams returns a question in MCP's form.
func (q Question) elicitParams() *mcp.ElicitParams {
	p := &mcp.ElicitParams{Mode: "form", Message: q.Message}
	if p.RequestedSchema = any(q.Schema); len(q.Schema) == 0 {
		p.RequestedSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return p
}

// readAnswer converts a client's answer.
func readAnswer(r *mcp.ElicitResult) (Answer, error) {
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

// canAsk reports whether a client shows forms. A client that names neither forms nor another mode shows them.
func canAsk(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}
