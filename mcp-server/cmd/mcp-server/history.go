package main

import (
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
)

// openHistory opens the store of runs.
func (d *daemon) openHistory() {
	c := history.Config{
		Dir: d.flags.history, Mode: d.settings.History, Clean: newRedactor(d.settings.RedactingStrings),
		Scrub: d.control.ScrubTexts, ScrubFile: d.control.ScrubFile, Database: d.database, Log: d.log,
		Cancel: func(run string) bool { return d.executor.StopRun(run) }, // the executor does not exist yet
	}
	d.history = history.OpenStore(c)
}
