package proxyapi

import "time"

// KnownHead is the checkpoint of the ledger in a run's receipt: Receipt.Audit.
type KnownHead struct {
	Run   string `json:"run"`
	Audit string `json:"audit"`
}

// LedgerCheck is the result of the last reading of the ledger.
type LedgerCheck struct {
	Checked time.Time `json:"checked"`
	// Records counts all records. Forgotten counts those whose hashes alone are kept, and Unsigned those after the last
	// checkpoint.
	Records   int64 `json:"records"`
	Forgotten int64 `json:"forgotten,omitempty"`
	Unsigned  int64 `json:"unsigned,omitempty"`
	// Compared counts the checkpoints of runs that fit.
	Compared int `json:"compared"`
	// Findings are sentences on each fault. It is empty if the ledger is intact.
	Findings []string `json:"findings"`
	// Head is the head of all records, in the form of a checkpoint.
	Head string `json:"head,omitempty"`
	// Lost counts the records that could not be written since the proxy started.
	Lost int64 `json:"lost,omitempty"`
}
