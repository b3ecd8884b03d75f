package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// cancelTime bounds the wait for the end of a run that get_run cancels.
const cancelTime = 15 * time.Second

func (s *Surface) addGetRun() {
	s.addTool(&mcp.Tool{
		Name:        "get_run",
		Title:       "Get a run",
		Description: "Wait for a run that goes on: its new output or its end.",
		Annotations: toolHints(false, false, true, false),
		InputSchema: json.RawMessage(`{"type":"object","required":["id"],"properties":{
"id":{"type":"string"},
"wait":{"type":"number","description":"Seconds"},
"cancel":{"type":"boolean"}}}`),
	}, s.getRun)
}

// runID matches the IDs of runs: see execution.NewID. A shorter text would be the beginning of several.
var runID = regexp.MustCompile(`^r[a-z2-7]{12}$`)

// getRun waits for a run. The end of ctx does not end the run.
func (s *Surface) getRun(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := readArguments(req.Params.Arguments, argumentSpec{
		Tool: "get_run", Names: []string{"id", "wait", "cancel"}, Example: `{"id": "r` + strings.Repeat("a", 12) + `"}`,
	})
	id, mayCancel := a.Text("id", "the ID of a run", true), a.Flag("cancel")
	most := s.cfg.TimeoutMax.Seconds()
	seconds := a.Number("wait", fmt.Sprintf("a number of seconds from 0 to %.0f", most), 0, most,
		min(s.cfg.AnswerAfter.Seconds(), most))
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	wait := time.Duration(seconds * float64(time.Second))
	if mayCancel {
		wait = cancelTime
	}
	short, stop := context.WithTimeout(ctx, wait)
	defer stop()
	l, d, err := s.waitForRun(short, id, mayCancel)
	switch {
	case ctx.Err() != nil: // an answer that does not arrive must not count as a look
		return nil, ctx.Err()
	case err != nil:
		return errorResult(fmt.Sprintf("There is no run %.40q here. It ended more than an hour ago, or a restart of the "+
			"server ended it.", id)), nil
	case l == nil:
		_, _, protocol := clientInfo(req.Session)
		return renderStored(d, protocol), nil
	}
	return l.readOutput(s.callerSession(req)), nil
}

// waitForRun waits until a run or ctx ends. If mayCancel, it first cancels the run. It returns a run of this process,
// or the state in the history of another run: one of another replica, or one that ended long ago.
func (s *Surface) waitForRun(ctx context.Context, id string, mayCancel bool) (*longRun, operatorapi.Detail, error) {
	if l := s.runs.find(id); l != nil {
		if mayCancel {
			l.stop(context.Canceled)
		}
		select {
		case <-l.done:
		case <-ctx.Done():
		}
		return l, operatorapi.Detail{}, nil
	}
	if !runID.MatchString(id) {
		return nil, operatorapi.Detail{}, history.ErrUnknown
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	// This comes before the wait and the cancellation, because the run may be another tenant's.
	d, err := s.cfg.History.WaitForRun(now, id)
	if err != nil {
		return nil, d, err
	}
	if !s.isOwn(d.Run) {
		return nil, operatorapi.Detail{}, history.ErrUnknown
	}
	if mayCancel && d.IsUnfinished() {
		s.cfg.History.CancelElsewhere(id)
	}
	d, err = s.cfg.History.WaitForRun(ctx, id)
	return nil, d, err
}

// isOwn reports whether a run belongs to the tenant of the surface.
func (s *Surface) isOwn(run operatorapi.Run) bool {
	name := ""
	if s.cfg.Tenant != nil {
		name = s.cfg.Tenant.Name
	}
	//defence:tenant-runs permits
	return run.Tenant == name
}

// renderStored returns the result of a run from the history. It links to shown images and sounds like to other files.
func renderStored(d operatorapi.Detail, protocol string) *mcp.CallToolResult {
	switch {
	case d.IsUnfinished():
		res := textResult(fmt.Sprintf("Run %s: still %s, at another replica of the server; get_run gives its output after "+
			"its end.", d.ID, d.State))
		res.Meta = mcp.Meta{runKey: d.ID}
		return res
	case d.State == operatorapi.Lost:
		return errorResult("Run " + d.ID + " has ended: a restart of the server ended it. The code may have run partly: " +
			"check before you run it again.")
	}
	text := d.Answer.Head
	if d.Answer.Omitted > 0 {
		text += fmt.Sprintf("\n[... %d bytes left out ...]\n", d.Answer.Omitted)
	}
	text += d.Answer.Tail
	if !d.Kept {
		text = fmt.Sprintf("Run %s has ended: %s (%s). The history does not keep its output.", d.ID, d.State, d.Reason)
	}
	links, notes := linkFiles(d.ID, d.Files, protocol)
	res := textResult(strings.Join(append([]string{text}, notes...), "\n"))
	res.Content = append(res.Content, links...)
	res.IsError = d.State != operatorapi.OK
	return res
}
