package tools

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// beginRecording starts to store a run. running is called when the run has its slot.
func (s *Surface) beginRecording(req *mcp.CallToolRequest, r *execution.RunRequest, running func()) *history.Recording {
	// The session's ID acts as a password, so only its digest is stored.
	run := operatorapi.Run{ID: r.ID, Session: alarm.SessionDigest(r.Session), Narrowed: r.APIs, Language: r.Language}
	run.Client, run.ClientVersion, run.Protocol = clientInfo(req.Session)
	r.Client = strings.TrimSpace(run.Client + " " + run.ClientVersion)
	if t := s.cfg.Tenant; t != nil {
		run.Tenant, run.User = t.Name, task.UserOf(req.Extra)
		r.Client = t.Name + ": " + r.Client // for the ledger and for alarms
	}
	recording := s.cfg.History.BeginRecording(run, r.Code)
	r.Started = func(l sandboxapi.Lease) {
		running()
		recording.RecordSlot(int(l.Slot), l.Generation)
	}
	return recording
}

func clientInfo(session *mcp.ServerSession) (name, version, protocol string) {
	p := session.InitializeParams()
	if p == nil {
		return "", "", ""
	}
	if p.ClientInfo != nil {
		name, version = p.ClientInfo.Name, p.ClientInfo.Version
	}
	return name, version, p.ProtocolVersion
}

// endRecording stores the end of a run.
func (s *Surface) endRecording(
	recording *history.Recording, o execution.Outcome, err error, res *mcp.CallToolResult,
) {
	if recording == nil {
		return
	}
	e := history.RunEnd{Exit: o.Exit, Receipt: o.Receipt, Lost: o.Lost}
	var texts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	e.Answer = strings.Join(texts, "\n")
	if err != nil {
		e.Reason, e.Stopped = describeNoExit(err), errors.Is(err, context.Canceled)
		e.Frozen = errors.As(err, new(*execution.FrozenError))
		e.Detail = explainNoExit(err, o).Person
	}
	recording.RecordEnd(e)
}

// recordVersions stores a run's changes of skills. run is empty if several runs could be the author.
func (s *Surface) recordVersions(req *mcp.CallToolRequest, run string, changes []skill.SkillChange) {
	name := ""
	if run != "" {
		name, _, _ = clientInfo(req.Session)
	}
	for _, c := range changes {
		s.recordChange(operatorapi.SkillVersion{
			Skill: c.Name, By: operatorapi.ByRun, Run: run, Client: name, Deleted: c.What == skill.Deleted,
		})
	}
}

// remarkPinned alerts the user to pinned skills whose files changed during a run. It returns remarks on the files that
// the run's code changed.
func (s *Surface) remarkPinned(changes []skill.SkillChange, code string, alone bool, run string) []string {
	own := selectOwnChanges(code, alone, changes)
	var out []string
	for _, c := range changes {
		alert := operatorapi.Alert{
			Kind: operatorapi.AlertPinned, Skill: c.Name,
			Title: "The file of a pinned skill was changed: " + c.Name,
			Text:  "Imports still get the pinned source.",
		}
		if slices.Contains(own, c) {
			alert.Run = run
			out = append(out, "The file of the pinned skill "+c.Name+" changed, without effect: imports get the pinned source.")
		}
		s.cfg.History.AddAlert(alert)
	}
	return out
}

// describeNoExit returns operatorapi.Run.Reason for a run without an exit.
func describeNoExit(err error) string {
	var busy *queue.BusyError
	var frozen *execution.FrozenError
	switch {
	case errors.As(err, &frozen):
		return "alarm"
	case errors.As(err, &busy):
		return "busy"
	case errors.Is(err, errRestart):
		return "restart"
	case errors.Is(err, context.Canceled):
		return string(sandboxapi.Cancelled)
	case errors.Is(err, sandboxapi.ErrInterrupted):
		return "interrupted"
	}
	return "unavailable"
}

func (s *Surface) recordChange(v operatorapi.SkillVersion) {
	if s.cfg.History.Mode() == history.Off || s.cfg.Tenant != nil { // the history has versions of the shared skills only
		return
	}
	source := ""
	if !v.Deleted {
		var err error
		if _, source, err = s.cfg.Skills.ReadSkill(v.Skill); err != nil {
			return // it has changed again, which is reported separately
		}
	}
	s.cfg.History.RecordSkill(v, source)
}
