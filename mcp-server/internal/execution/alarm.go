package execution

import (
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// FrozenError is for a run of a session that an alarm has frozen, perhaps the run's own.
type FrozenError struct{ Alarm operatorapi.Alarm }

// Error implements error.
func (e *FrozenError) Error() string {
	return "the session is frozen: " + e.Alarm.What() + " was to be sent"
}

// Alarm freezes the session of a run and stops all its runs.
func (e *Executor) Alarm(a controlapi.Alarm) {
	r, ok := e.runs.Load(a.Run)
	if !ok {
		e.cfg.Alarms.Add(a, nil, "")
		return
	}
	run := r.(active)
	e.cfg.Alarms.Add(a, &run.Session, run.Client)
	e.runs.Range(func(_, other any) bool {
		//defence:alarm-ends-run
		if o := other.(active); o.Session == run.Session {
			o.stop()
		}
		return true
	})
}

// frozen is the error for a run whose session is frozen, or nil.
func (e *Executor) frozen(session string) error {
	if a, ok := e.cfg.Alarms.Frozen(session); ok {
		return &FrozenError{a}
	}
	return nil
}
