// Package ledger is the record of what left the machine: a file a day with one record a line, in which changing,
// removing, adding or reordering a record is found.
//
// A record is a leaf of a Merkle tree as RFC 6962 has it. At the end of a run that sent something, a checkpoint of the
// tree is signed, written and brought to the disk before the run's end is reported to anybody; its short form is in
// the run's result and in the log, where whoever rewrites the ledger cannot reach it. Contract: the ledger holds what a
// receipt holds, so no credential and no redacted string.
//
//	audit/key                 signs checkpoints; nobody but the proxy reads it
//	audit/key.pub             verifies them
//	audit/2026-11-23.ndjson   the records of a day (UTC), with checkpoints in between
//	audit/2026-08-20.hashes   what is kept of an older day: 32 bytes per record
//	audit/2026-05-20.roots    what is kept of one whose hashes have no room: the roots of the largest subtrees of them
package ledger

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Entry is what a record tells. Exactly one field is set.
type Entry struct {
	// Exchange is a request that is over, also one that was refused.
	Exchange *controlapi.Exchange `json:"exchange,omitempty"`
	// Sending is a request that is about to leave, where AUDIT is "required".
	Sending *Sending `json:"sending,omitempty"`
	// Run is a run that has ended.
	Run *Run `json:"run,omitempty"`
	// Decision is what a person decided about a held request.
	Decision *Decision `json:"decision,omitempty"`
	// Alarm is a request that carried a canary or a credential's value.
	Alarm *controlapi.Alarm `json:"alarm,omitempty"`
	// Login is a login, or its end.
	Login *Login `json:"login,omitempty"`
	// Start is the proxy's start.
	Start *Start `json:"start,omitempty"`
	// Gap means that records before it could not be written.
	Gap *Gap `json:"gap,omitempty"`
}

// Sending is a request that may change something at its host.
type Sending struct {
	Run    string `json:"run"`
	Tenant string `json:"tenant,omitempty"`
	// CausedBy is as in controlapi.Exchange.
	CausedBy *controlapi.Cause `json:"caused_by,omitempty"`
	Method   string            `json:"method"`
	URL      string            `json:"url"`
}

// Run is a run as mcp-server describes it.
type Run struct {
	Run        string `json:"run"`
	Tenant     string `json:"tenant,omitempty"`
	Slot       int    `json:"slot"`
	Generation uint64 `json:"generation"`
	controlapi.Summary
	Count controlapi.Count `json:"count"`
}

// Decision is a person's answer about a request that was held, or about the plan of a dry run.
type Decision struct {
	Run      string `json:"run"`
	Tenant   string `json:"tenant,omitempty"`
	Server   string `json:"server,omitempty"` // the MCP server that sent the request
	API      string `json:"api"`
	Method   string `json:"method"`
	URL      string `json:"url"`
	Approved bool   `json:"approved"`
	// Scope is what was approved with the request: once, path or rule of approvalapi.
	Scope string `json:"scope,omitempty"`
	// Plan is set in the place of API, Method and URL for a decision about a plan, with its steps.
	Plan  string `json:"plan,omitempty"`
	Steps []int  `json:"steps,omitempty"`
}

// Login names the credential that a person logged in for, or out of.
type Login struct {
	Name string `json:"name"`
	Out  bool   `json:"out,omitempty"`
}

// Start is the first record that a process writes.
type Start struct {
	Version string `json:"version"`
	// Dropped is how many bytes of unfinished records the process before left at the end.
	Dropped int64 `json:"dropped,omitempty"`
	// SetAside is the folder of a ledger that did not verify, to which this one is the successor.
	SetAside string `json:"set_aside,omitempty"`
}

// Gap counts records that were lost.
type Gap struct {
	Lost int `json:"lost"`
}

// Record is one line.
type Record struct {
	// N counts from 0.
	N  int64     `json:"n"`
	At time.Time `json:"at"`
	// Prev is the beginning of the hash of the record before, in hexadecimal: it shows which record was changed, where
	// the tree shows that one was.
	Prev string `json:"prev"`
	// Salt keeps the hash of a record that is no longer kept from confirming a guess of its content.
	Salt string `json:"salt"`
	Entry
}

// Kind is the name of the entry's field.
func (e Entry) Kind() string {
	switch {
	case e.Exchange != nil:
		return "exchange"
	case e.Sending != nil:
		return "sending"
	case e.Run != nil:
		return "run"
	case e.Decision != nil:
		return "decision"
	case e.Alarm != nil:
		return "alarm"
	case e.Login != nil:
		return "login"
	case e.Start != nil:
		return "start"
	case e.Gap != nil:
		return "gap"
	}
	return ""
}

// OfRun is the run that the entry is about, or empty.
func (e Entry) OfRun() string {
	switch {
	case e.Exchange != nil:
		return e.Exchange.Run
	case e.Sending != nil:
		return e.Sending.Run
	case e.Run != nil:
		return e.Run.Run
	case e.Decision != nil:
		return e.Decision.Run
	case e.Alarm != nil:
		return e.Alarm.Run
	}
	return ""
}

// prevBytes is how many bytes of a hash a record has of the one before.
const prevBytes = 8

// line is a record as it is written, without the end of the line. entry is the JSON object of an Entry.
func line(n int64, at time.Time, prev tlog.Hash, salt, entry []byte) []byte {
	out := make([]byte, 0, len(entry)+160)
	out = append(out, `{"n":`...)
	out = strconv.AppendInt(out, n, 10)
	out = at.UTC().AppendFormat(append(out, `,"at":"`...), time.RFC3339Nano)
	out = hex.AppendEncode(append(out, `","prev":"`...), prev[:prevBytes])
	out = hex.AppendEncode(append(out, `","salt":"`...), salt)
	return append(append(out, `",`...), entry[1:]...)
}

// place reads a record's number and Prev from the beginning of its line. ok is false unless the line is one that line
// has made.
func place(text []byte) (n int64, prev []byte, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte(`{"n":`))
	if !ok {
		return 0, nil, false
	}
	digits, rest, ok := bytes.Cut(rest, []byte(`,"at":"`))
	if !ok || len(digits) > 18 {
		return 0, nil, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n < 0 {
		return 0, nil, false
	}
	_, rest, ok = bytes.Cut(rest, []byte(`","prev":"`))
	if !ok || len(rest) < 2*prevBytes {
		return 0, nil, false
	}
	return n, rest[:2*prevBytes], true
}

// follows reports whether prev is what a record has that follows the one with this hash.
func follows(prev []byte, h tlog.Hash) bool {
	var want [2 * prevBytes]byte
	hex.Encode(want[:], h[:prevBytes])
	return string(prev) == string(want[:])
}

// checkpointPrefix begins the line of a checkpoint, which is not a leaf.
const checkpointPrefix = `{"checkpoint":`

// Checkpoint is a signed state of the ledger.
type Checkpoint struct {
	At time.Time `json:"at"`
	// Run is whose end it was made for, or empty.
	Run string `json:"run,omitempty"`
	// Note is the signed note of the tree's head: https://c2sp.org/tlog-checkpoint
	Note string `json:"note"`
	// Edge are the roots of the complete subtrees, the smallest first. With them the tree goes on growing without its
	// records being read.
	Edge []tlog.Hash `json:"edge"`
	// Last is the hash of the last record.
	Last tlog.Hash `json:"last"`
}

// checkpointLine is the line of a checkpoint in the file.
type checkpointLine struct {
	Checkpoint *Checkpoint `json:"checkpoint"`
}

// parseCheckpoint reads the line of a checkpoint. It is nil when the line is none.
func parseCheckpoint(text []byte) *Checkpoint {
	if !bytes.HasPrefix(text, []byte(checkpointPrefix)) {
		return nil
	}
	var l checkpointLine
	if json.Unmarshal(text, &l) != nil || l.Checkpoint == nil {
		return &Checkpoint{} // it verifies as nothing
	}
	return l.Checkpoint
}

// parseRecord reads a line.
func parseRecord(text []byte) (Record, error) {
	var r Record
	return r, json.Unmarshal(text, &r)
}
