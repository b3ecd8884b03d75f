// Package ledger records the requests that left the machine: one file a day with one record a line. `codeforge audit
// verify` detects every changed, removed, added or reordered record.
//
// A record is a leaf of a Merkle tree (RFC 6962). If a run sent a request, the proxy signs a checkpoint of the tree at
// the run's end and flushes it to disk before it reports the end. The checkpoint's short form is in the run's result
// and in the log, so a person who rewrites the ledger cannot change it there. Contract: the ledger holds the content of
// receipts, so no credential and no redacted string.
//
//	audit/key                 signs checkpoints; only the proxy reads it
//	audit/key.pub             verifies them
//	audit/2026-11-23.ndjson   the records of a day (UTC), with checkpoints in between
//	audit/2026-08-20.hashes   the rest of an older day: 32 bytes for each record
//	audit/2026-05-20.roots    the rest of a day without space for its hashes: the roots of their largest subtrees
package ledger

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Entry is the content of a record. Exactly one field is set.
type Entry struct {
	// Exchange is a finished or refused request.
	Exchange *proxyapi.Exchange `json:"exchange,omitempty"`
	// Sending is a request that is about to leave, if AUDIT is "required".
	Sending *Sending `json:"sending,omitempty"`
	// Run is a run that has ended.
	Run *Run `json:"run,omitempty"`
	// Decision is a person's decision about a held request or a plan.
	Decision *Decision `json:"decision,omitempty"`
	// Alarm is a request that carried a canary or a credential's value.
	Alarm *proxyapi.Alarm `json:"alarm,omitempty"`
	// Login is a login or a logout.
	Login *Login `json:"login,omitempty"`
	// Start is the proxy's start.
	Start *Start `json:"start,omitempty"`
	// Gap means that earlier records could not be written.
	Gap *Gap `json:"gap,omitempty"`
}

// Sending is a request that may change something at its host.
type Sending struct {
	Run    string `json:"run"`
	Tenant string `json:"tenant,omitempty"`
	// CausedBy is the same as in proxyapi.Exchange.
	CausedBy *proxyapi.Cause `json:"caused_by,omitempty"`
	Method   string          `json:"method"`
	URL      string          `json:"url"`
}

// Run is a run with mcp-server's description.
type Run struct {
	Run        string `json:"run"`
	Tenant     string `json:"tenant,omitempty"`
	Slot       int    `json:"slot"`
	Generation uint64 `json:"generation"`
	proxyapi.Summary
	Count proxyapi.Count `json:"count"`
}

// Decision is a person's answer about a held request, or about the plan of a dry run.
type Decision struct {
	Run      string `json:"run"`
	Tenant   string `json:"tenant,omitempty"`
	Server   string `json:"server,omitempty"` // the MCP server that sent the request
	API      string `json:"api"`
	Method   string `json:"method"`
	URL      string `json:"url"`
	Approved bool   `json:"approved"`
	// Scope is the scope of the approval: once, path or rule of approvalapi.
	Scope string `json:"scope,omitempty"`
	// Plan and Steps are set instead of API, Method and URL for a decision about a plan.
	Plan  string `json:"plan,omitempty"`
	Steps []int  `json:"steps,omitempty"`
}

// Login names the credential of a login or, with Out, of a logout.
type Login struct {
	Name string `json:"name"`
	Out  bool   `json:"out,omitempty"`
}

// Start is the first record that a process writes.
type Start struct {
	Version string `json:"version"`
	// Dropped is how many bytes of unfinished records the previous process left.
	Dropped int64 `json:"dropped,omitempty"`
	// SetAside is the folder of the ledger that did not verify, and which this ledger succeeds.
	SetAside string `json:"set_aside,omitempty"`
}

// Gap counts lost records.
type Gap struct {
	Lost int `json:"lost"`
}

// Record is one line.
type Record struct {
	// N counts from 0.
	N  int64     `json:"n"`
	At time.Time `json:"at"`
	// Prev is the beginning of the previous record's hash, in hexadecimal. The tree shows that a record was changed, and
	// Prev shows which.
	Prev string `json:"prev"`
	// Salt prevents a guess: without it, the hash of a dropped record would confirm a guess of its content.
	Salt string `json:"salt"`
	Entry
}

// Kind returns the name of the entry's field.
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

// RunID returns the run that the entry belongs to, or "".
func (e Entry) RunID() string {
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

// prevBytes is how many bytes of the previous record's hash a record has.
const prevBytes = 8

// formatRecord returns a record as it is written, without the end of the line. entry is the JSON object of an Entry.
func formatRecord(n int64, at time.Time, prev tlog.Hash, salt, entry []byte) []byte {
	// The order of the fields is fixed: parsePlace reads n and prev without parsing JSON.
	out := make([]byte, 0, len(entry)+160)
	out = append(out, `{"n":`...)
	out = strconv.AppendInt(out, n, 10)
	out = at.UTC().AppendFormat(append(out, `,"at":"`...), time.RFC3339Nano)
	out = hex.AppendEncode(append(out, `","prev":"`...), prev[:prevBytes])
	out = hex.AppendEncode(append(out, `","salt":"`...), salt)
	return append(append(out, `",`...), entry[1:]...)
}

// parsePlace reads a record's number and Prev from the beginning of its line. ok is false if formatRecord cannot have
// written the text.
func parsePlace(text []byte) (n int64, prev []byte, ok bool) {
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

// isNext reports whether a record with this prev follows the record with this hash.
func isNext(prev []byte, h tlog.Hash) bool {
	var want [2 * prevBytes]byte
	hex.Encode(want[:], h[:prevBytes])
	return string(prev) == string(want[:])
}

// checkpointPrefix begins the line of a checkpoint. A checkpoint is not a leaf of the tree.
const checkpointPrefix = `{"checkpoint":`

// Checkpoint is a signed state of the ledger.
type Checkpoint struct {
	At time.Time `json:"at"`
	// Run is the run for whose end the checkpoint was made, or empty.
	Run string `json:"run,omitempty"`
	// Note is the signed note of the tree's head: https://c2sp.org/tlog-checkpoint
	Note string `json:"note"`
	// Edge holds the roots of the complete subtrees, the smallest first. With them, the tree can grow without its records.
	Edge []tlog.Hash `json:"edge"`
	// Last is the hash of the last record.
	Last tlog.Hash `json:"last"`
}

type checkpointLine struct {
	Checkpoint *Checkpoint `json:"checkpoint"`
}

// parseCheckpoint parses the line of a checkpoint. It returns nil for another line.
func parseCheckpoint(text []byte) *Checkpoint {
	if !bytes.HasPrefix(text, []byte(checkpointPrefix)) {
		return nil
	}
	var l checkpointLine
	if json.Unmarshal(text, &l) != nil || l.Checkpoint == nil {
		return &Checkpoint{} // an empty checkpoint never verifies
	}
	return l.Checkpoint
}

func parseRecord(text []byte) (Record, error) {
	var r Record
	return r, json.Unmarshal(text, &r)
}
