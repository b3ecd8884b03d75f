package proxyapi

import "time"

// KnownHead is the checkpoint of the ledger in a run's receipt: Receipt.Audit.
type KnownHead struct {
	Run   string `json:"run"`
	Audit string `json:"audit"`
}

// LedgerReport is the result of a verification of the ledger.
type LedgerReport struct {
	Records int64 `json:"records"`
	Days    int   `json:"days"`
	// Forgotten counts the records whose hashes alone are kept.
	Forgotten   int64 `json:"forgotten,omitempty"`
	Checkpoints int   `json:"checkpoints"`
	// Unsigned counts the records after the last checkpoint.
	Unsigned int64 `json:"unsigned,omitempty"`
	// Compared counts the checkpoints from outside that fit.
	Compared int `json:"compared"`
	// Findings are sentences on each fault. It is empty if the ledger is intact.
	Findings []string `json:"findings"`
	// Head is the head of all records, in the form of a checkpoint. It is empty for an empty ledger, or if records are
	// missing.
	Head string `json:"head,omitempty"`
}

// LedgerCheck is the result of the last reading of the ledger.
type LedgerCheck struct {
	Checked time.Time `json:"checked"`
	LedgerReport
	// Lost counts the records that could not be written since the proxy started.
	Lost int64 `json:"lost,omitempty"`
}
