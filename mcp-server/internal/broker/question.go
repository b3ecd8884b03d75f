package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
)

const (
	// maxQuestions is the largest number of questions that a server may ask in one call.
	maxQuestions = 5
	// maxQuestion and maxForm bound the text of a question and its form, in bytes.
	maxQuestion = 2000
	maxForm     = 16 << 10
)

// forbidden is the reason why a form with a field for a secret is not shown.
const forbidden = "its form has a field for a secret, which belongs in the credentials of its config.json"

// pendingRequest is a request that a bridge has not answered yet.
type pendingRequest struct {
	answer chan bridgewire.FromBridge
	call   *callRequest    // nil if the request serves no call
	ctx    context.Context //nolint:containedctx // of the request, which its questions end with
	asked  int             // questions; of the reading goroutine
}

// passQuestion passes a server's question to the client of the run that called the server, and returns the answer.
func (i *serverInstance) passQuestion(q bridgewire.Question) {
	p, why := i.findAsker(q.Request)
	if p != nil {
		if p.asked++; p.asked > maxQuestions {
			why = fmt.Sprintf("it asked more than %d questions in one call", maxQuestions)
		}
	}
	form, wrong := formOf(q.Schema)
	why = cmp.Or(why, wrong)
	if why != "" {
		i.refuseQuestion(p, q.ID, why)
		return
	}
	// A user could mistake the server's words for CodeForge's, and the words can ask for a secret in countless ways. So
	// the warning always comes first, and the server's text cannot move it.
	shown := userform.Question{Schema: form, Message: fmt.Sprintf("The MCP server %q asks; never type a secret here: %s",
		i.server.api.Name, toolsignature.CleanLine(q.Message, maxQuestion))}
	i.server.logInfo("the server asks the user: " + toolsignature.CleanLine(q.Message, maxQuestion))
	// In the background: a person may take minutes, and the reading goroutine must pass on other frames.
	go func() {
		a, err := i.server.broker.cfg.Ask(p.ctx, p.call.run, shown)
		if err != nil {
			i.refuseQuestion(p, q.ID, cleanText(err.Error()))
			return
		}
		i.server.logInfo("the user's answer: " + a.Action)
		select {
		case i.out <- bridgewire.ToBridge{Answer: &bridgewire.Answer{ID: q.ID, Action: a.Action, Content: a.Content}}:
		case <-i.gone:
		}
	}()
}

// findAsker returns the request that a question is part of. If the server does not name the request, all of its calls
// must belong to one session. Otherwise the question could reach another session's user.
func (i *serverInstance) findAsker(request uint64) (p *pendingRequest, why string) {
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

// refuseQuestion answers a question that is not put to the user. It also stores the reason for code, because the
// server's error may not mention it.
func (i *serverInstance) refuseQuestion(p *pendingRequest, id uint64, why string) {
	if p != nil {
		p.call.unasked.Store(&why)
	}
	select {
	case i.out <- bridgewire.ToBridge{Answer: &bridgewire.Answer{ID: id, Refused: why}}:
	default: // a bridge that does not read does not wait for this answer
	}
}

// formOf returns a question's form for the user: small, and without invisible characters. A field that the schema
// declares secret is an error.
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
	// Names are refused and not cleaned: the answer returns under the name that the server wrote.
	hidden := slices.ContainsFunc(form.Required, hasInvisible)
	for name, field := range form.Properties {
		hidden = hidden || hasInvisible(name) || hasHiddenName(field)
		//defence:question-secret
		if field["format"] == "password" || field["writeOnly"] == true {
			return nil, forbidden
		}
		for key, value := range field {
			field[key] = removeInvisible(value)
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

func hasInvisible(name string) bool { return toolsignature.CleanLine(name, len(name)) != name }

// hasHiddenName reports whether a value of a form has a name with invisible characters.
func hasHiddenName(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, hasHiddenName)
	case map[string]any:
		for name, inside := range v {
			if hasInvisible(name) || hasHiddenName(inside) {
				return true
			}
		}
	}
	return false
}

// removeInvisible returns a form's value without invisible characters.
func removeInvisible(value any) any {
	switch v := value.(type) {
	case string:
		return toolsignature.CleanLine(v, maxQuestion)
	case []any:
		for i := range v {
			v[i] = removeInvisible(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = removeInvisible(v[key])
		}
	}
	return value
}
