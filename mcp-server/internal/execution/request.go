package execution

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// RunRequest is one run.
type RunRequest struct {
	// ID is the run's ID, from NewID.
	ID string
	// Session is the session whose turn in the queue the run takes.
	Session string
	Code    string
	// Language is the language of the code. Empty means TypeScript.
	Language sandboxapi.Language
	// APIs narrows the run to these APIs. Empty means all active ones, or all of the tenant's.
	APIs []string
	// Tenant owns the run. Nil means the operator.
	Tenant  *TenantSources
	Timeout time.Duration // bounded by package tools
	// DryRun records writes in a plan instead of sending them: see proxyapi.Registration.
	DryRun bool
	// Input is the run's own input, or nil.
	Input *sandboxapi.Input
	// Client is the name and version of the MCP client. Traceparent is the one of its request. Both may be empty.
	Client      string
	Traceparent string
	// Started, if not nil, is called when the run gets its slot.
	Started func(sandboxapi.Lease)
	// Ask asks the client's user. If nil, the user cannot be asked.
	Ask userform.Asker
	// Approve, if not nil, asks the user about a request of the run that a rule holds. It returns nil without a decision,
	// which leaves the request waiting. Each call has a separate goroutine. Its context ends when the request no longer
	// waits.
	Approve func(context.Context, approvalapi.HeldRequest) *approvalapi.Answer
	// Waiting, if not nil, is called with true when requests of the run start to wait for a person, and with false when
	// the last one stops waiting.
	Waiting func(bool)
	// Progress, if not nil, is called with an MCP server's progress reports.
	Progress func(text string)
}

// newSummary returns the ledger's record of a run.
func (r RunRequest) newSummary(o Outcome) proxyapi.Summary {
	// The ledger identifies the code by a digest, and does not store it.
	digest := sha256.Sum256([]byte(r.Code))
	return proxyapi.Summary{
		Language: string(cmp.Or(r.Language, sandboxapi.LanguageTypeScript)), CodeSHA256: hex.EncodeToString(digest[:]),
		CodeBytes: len(r.Code), Outcome: string(o.Exit.Reason), ExitCode: o.Exit.Code,
		Milliseconds: float64(o.Exit.WallMS), CPUMilliseconds: o.Exit.CPUMS, MemoryPeak: o.Exit.MaxRSS, Warm: o.Exit.Warm,
		Client: r.Client[:min(len(r.Client), maxClient)], Traceparent: r.Traceparent,
	}
}

// Outcome is the result of a run. After an error it contains the part that was known by then.
type Outcome struct {
	Run     string
	Waited  time.Duration
	Exit    sandboxapi.Exit
	Receipt proxyapi.Receipt
	// Modules are the typed clients that the code got.
	Modules []sandboxapi.Module
	// Lost means that the code may have run, but the proxy could not return a receipt.
	Lost bool
}

// NewID returns a new ID for a run.
func NewID() string { return "r" + strings.ToLower(rand.Text()[:12]) }
