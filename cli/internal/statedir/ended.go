package statedir

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// endedFile stores the last unrequested end.
const endedFile = "ended.json"

// Ended describes an unrequested end of a supervisor or a part of it.
type Ended struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Next is the time of the restart. Zero: there is none.
	Next time.Time `json:"next,omitzero"`
}

// String returns a sentence without a full stop.
func (e Ended) String() string {
	text := fmt.Sprintf("it ended by itself at %s: %s", e.At.Local().Format("2006-01-02 15:04:05 MST"), e.Reason)
	if !e.Next.IsZero() {
		text += ". It is started again at " + e.Next.Local().Format("15:04:05")
	}
	return text
}

// WriteEnded stores the end.
func (d Dir) WriteEnded(e Ended) error { return d.writeJSON(endedFile, e) }

// ForgetEnded removes the stored end, at a start or a requested end.
func (d Dir) ForgetEnded() { _ = os.Remove(d.Join(endedFile)) }

// ReadLastEnd returns how the last supervisor ended, unless the end was requested. A killed supervisor writes no
// ended.json, but leaves up.json behind.
func (d Dir) ReadLastEnd() (Ended, bool) {
	var e Ended
	if data, err := os.ReadFile(d.Join(endedFile)); err == nil && json.Unmarshal(data, &e) == nil {
		return e, true
	}
	var up UpState
	data, err := os.ReadFile(d.Join(upFile))
	// With the lock held, up.json belongs to a running supervisor.
	if _, held := d.FindHolder(); held || err != nil || json.Unmarshal(data, &up) != nil {
		return e, false
	}
	e.At = up.Started
	if info, err := os.Stat(d.Join("log", "codeforge.log")); err == nil && info.ModTime().After(e.At) {
		e.At = info.ModTime()
	}
	e.Reason = fmt.Sprintf("process %d was killed, or the machine was stopped; this is the time of its last log line",
		up.PID)
	return e, true
}
