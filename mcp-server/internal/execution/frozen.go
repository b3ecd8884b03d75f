package execution

import (
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// FrozenError is the error of a run whose session an alarm has frozen. The alarm may come from the same run.
type FrozenError struct{ Alarm operatorapi.Alarm }

// Error implements error.
func (e *FrozenError) Error() string {
	return "the session is frozen: " + e.Alarm.DescribeSecret() + " was to be sent"
}

// RaiseAlarm freezes the session of a run and stops all runs of the session.
func (e *Executor) RaiseAlarm(a proxyapi.Alarm) {
	r, ok := e.runs.Load(a.Run)
	if !ok {
		// The run may have ended, or may belong to another mcp-server; the alarm is stored in any case.
		e.cfg.Alarms.Add(a, nil, "")
		return
	}
	run := r.(activeRun)
	// Frozen before the runs are stopped: otherwise the session could start another run in between.
	e.cfg.Alarms.Add(a, &run.Session, run.Client)
	e.StopFrozenRuns()
}

// StopFrozenRuns stops all runs of frozen sessions.
func (e *Executor) StopFrozenRuns() {
	e.runs.Range(func(_, r any) bool {
		//defence:alarm-ends-run
		if run := r.(activeRun); e.refuseFrozen(run.Session) != nil {
			run.stop()
		}
		return true
	})
}

// refuseFrozen returns the error for a run whose session is frozen, or nil.
func (e *Executor) refuseFrozen(session string) error {
	if a, ok := e.cfg.Alarms.FreezingAlarm(session); ok {
		return &FrozenError{a}
	}
	return nil
}
