package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/frame"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/question"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
)

const (
	// maxQuestions is how many questions a server may ask in one call.
	maxQuestions = 5
	// maxQuestion is how long a question may be, and maxForm how large its form, in bytes.
	maxQuestion = 2000
	maxForm     = 16 << 10
)

// forbidden is the reason why a form with a field for a secret is not shown.
const forbidden = "its form has a field for a secret, which belongs in the credentials of its config.json"

// pending is a request that a bridge has not answered yet.
type pending struct {
	answer chan frame.FromBridge
	call   *call           // nil: nobody's
	ctx    context.Context //nolint:containedctx // of the request, which its questions end with
	asked  int             // questions; of the reading goroutine
}

// question passes what a server asks on to the client of the run that called it, and the answer back.
func (i *instance) question(q frame.Question) {
	p, why := i.asking(q.Request)
	if p != nil {
		if p.asked++; p.asked > maxQuestions {
			why = fmt.Sprintf("it asked more than %d questions in one call", maxQuestions)
		}
	}
	form, wrong := formOf(q.Schema)
	if why == "" {
		why = wrong
	}
	if why != "" {
		i.refuse(p, q.ID, why)
		return
	}
	// A user could take the server's words for CodeForge's, and they can ask for a secret in countless ways. So the
	// warning always comes first, where the server's text cannot move it.
	shown := question.Question{Schema: form, Message: fmt.Sprintf("The MCP server %q asks; never type a secret here: %s",
		i.server.api.Name, signature.Clean(q.Message, maxQuestion))}
	i.server.log("the server asks the user: " + signature.Clean(q.Message, maxQuestion))
	go func() {
		a, err := i.server.broker.cfg.Ask(p.ctx, p.call.run, shown)
		if err != nil {
			i.refuse(p, q.ID, clean(err.Error()))
			return
		}
		i.server.log("the user's answer: " + a.Action)
		select {
		case i.out <- frame.ToBridge{Answer: &frame.Answer{ID: q.ID, Action: a.Action, Content: a.Content}}:
		case <-i.gone:
		}
	}()
}

// asking is the request that a question is part of. Where the server does not say which, all that it has must be of one
// session: otherwise another one's user would be asked.
func (i *instance) asking(request uint64) (p *pending, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	session := ""
	for id, one := range i.pending {
		if one.call == nil || request != 0 && id != request {
			continue
		}
		of, ok := i.server.broker.cfg.Session(one.call.run)
		switch {
		case !ok:
			continue
		//defence:question-session
		case p != nil && of != session:
			return nil, "calls of several clients are in flight, and the server does not say whose user it asks; " +
				`with "state": "session" in its config.json it has a process for each`
		}
		p, session = one, of
	}
	if p == nil {
		return nil, "it belongs to no call"
	}
	return p, ""
}

// refuse answers a question that is not put to the user. Code learns of it too: the server's own error may not mention
// it.
func (i *instance) refuse(p *pending, id uint64, why string) {
	if p != nil {
		p.call.unasked.Store(&why)
	}
	select {
	case i.out <- frame.ToBridge{Answer: &frame.Answer{ID: id, Refused: why}}:
	default: // its bridge does not read, so it does not wait for this either
	}
}

// formOf returns the form of a question as the user sees it: small, without invisible characters. A form with a field
// that the schema declares secret is an error.
func formOf(schema json.RawMessage) (json.RawMessage, string) {
	if len(schema) > maxForm {
		return nil, "its form is too large"
	}
	if len(schema) == 0 || string(schema) == "null" {
		return nil, ""
	}
	var form struct {
		Type       string                    `json:"type"`
		Properties map[string]map[string]any `json:"properties"`
		Required   []string                  `json:"required,omitempty"`
	}
	if err := json.Unmarshal(schema, &form); err != nil {
		return nil, "its form cannot be read"
	}
	if form.Type = "object"; form.Properties == nil {
		form.Properties = map[string]map[string]any{}
	}
	hidden := slices.ContainsFunc(form.Required, hides)
	for name, field := range form.Properties {
		hidden = hidden || hides(name) || hidesName(field)
		//defence:question-secret
		if field["format"] == "password" || field["writeOnly"] == true {
			return nil, forbidden
		}
		for key, value := range field {
			field[key] = shown(value)
		}
	}
	if hidden {
		return nil, "names in its form have characters that do not show"
	}
	line, err := json.Marshal(form)
	if err != nil {
		return nil, err.Error()
	}
	return line, ""
}

// hides reports whether a name has characters that do not show. The answer is under that name, so it is not cleaned.
func hides(name string) bool { return signature.Clean(name, len(name)) != name }

// hidesName reports whether a name within a value of a form does.
func hidesName(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, hidesName)
	case map[string]any:
		for name, inside := range v {
			if hides(name) || hidesName(inside) {
				return true
			}
		}
	}
	return false
}

// shown is a value of a form without characters that do not show.
func shown(value any) any {
	switch v := value.(type) {
	case string:
		return signature.Clean(v, maxQuestion)
	case []any:
		for i := range v {
			v[i] = shown(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = shown(v[key])
		}
	}
	return value
}
