package controlapi

import "time"

// KnownHead is the checkpoint of the ledger that a run was given: Receipt.Audit.
type KnownHead struct {
	Run   string `json:"run"`
	Audit string `json:"audit"`
}

// LedgerCheck is what was found when the ledger was read last.
type LedgerCheck struct {
	Checked time.Time `json:"checked"`
	// Records counts all, Forgotten those of which only the hashes are kept, and Unsigned those after the last checkpoint.
	Records   int64 `json:"records"`
	Forgotten int64 `json:"forgotten,omitempty"`
	Unsigned  int64 `json:"unsigned,omitempty"`
	// Compared counts the checkpoints of runs that fit.
	Compared int `json:"compared"`
	// Findings say what is wrong, in words. None: the ledger is whole.
	Findings []string `json:"findings"`
	// Head is of all records, as a checkpoint has it.
	Head string `json:"head,omitempty"`
	// Lost counts the records that could not be written since the proxy started.
	Lost int64 `json:"lost,omitempty"`
}
