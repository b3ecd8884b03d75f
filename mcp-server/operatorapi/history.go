package operatorapi

import (
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// The types of this file are the record of runs. mcp-server stores it (mcp-server/internal/history), this API
// transports it, and the console and codeforge show it.
//
// Code, output, URLs and names of clients are text from outside, bounded but otherwise unchanged. A program that shows
// them must make them harmless. The record contains no credential and no string of REDACTING_STRINGS.

// States of a run.
const (
	Waiting = "waiting" // for a slot
	Running = "running"
	OK      = "ok"      // exit code 0
	Failed  = "failed"  // any other end, by the code or by a limit
	Stopped = "stopped" // cancelled by its client or by mcp-server's end
	Frozen  = "frozen"  // an alarm ended it, or has frozen its session
	Lost    = "lost"    // mcp-server ended before the run, or could not store its end
)

// Run is a run without its code, output and exchanges.
type Run struct {
	// Number orders the runs of one store by their start.
	Number int64     `json:"number"`
	ID     string    `json:"run"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended,omitzero"`
	State  string    `json:"state"`
	// Reason is sandboxapi.Exit's. Without an exit it is "alarm", "busy", "interrupted", "restart" or "unavailable".
	Reason   string `json:"reason,omitempty"`
	ExitCode int    `json:"exit_code"`
	// Title is the first line of the comment at the start of the code, or else of the code.
	Title     string              `json:"title"`
	Language  sandboxapi.Language `json:"language"`
	CodeSHA   string              `json:"code_sha256"`
	CodeBytes int                 `json:"code_bytes"`

	// Client and ClientVersion are the client's name and version. Protocol is its MCP protocol version. Session is a
	// digest that distinguishes sessions.
	Client        string `json:"client,omitempty"`
	ClientVersion string `json:"client_version,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
	Session       string `json:"session,omitempty"`
	// Tenant is the owner of the run: a tenant of MCP_TOKENS_FILE, or "" for the operator.
	Tenant string `json:"tenant,omitempty"`
	// User is the login of the tenant that started the run, or "" for a token of MCP_TOKENS_FILE.
	User string `json:"user,omitempty"`

	// Narrowed are the APIs that the run was limited to. APIs are those that it sent requests to. Skills are those that
	// its code imports.
	Narrowed []string `json:"narrowed,omitempty"`
	APIs     []string `json:"apis"`
	Skills   []string `json:"skills,omitempty"`

	Slot       int    `json:"slot"`
	Generation uint64 `json:"generation"`
	Warm       bool   `json:"warm,omitempty"`
	WaitedMS   int64  `json:"waited_ms"`
	WallMS     int64  `json:"wall_ms"`
	CPUMS      int64  `json:"cpu_ms"`
	// MaxRSS is the peak resident memory in bytes.
	MaxRSS      int64 `json:"max_rss"`
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// Shown is the size of the text that the model got, in bytes.
	Shown int64 `json:"shown"`

	Count proxyapi.Count `json:"count"`
	// Omitted counts exchanges that are not stored.
	Omitted int `json:"omitted,omitempty"`
	// Audit is Receipt.Audit: the checkpoint that covers the run.
	Audit string `json:"audit,omitempty"`
	// ReceiptLost means that the proxy stopped before the run's receipt.
	ReceiptLost bool `json:"receipt_lost,omitempty"`
	// Spans are the run's first exchanges, for a small picture. Only with RunFilter.Spans.
	Spans []ExchangeSpan `json:"spans,omitempty"`
}

// IsUnfinished reports whether the run waits or runs.
func (r Run) IsUnfinished() bool { return r.State == Waiting || r.State == Running }

// ExchangeSpan is an exchange in a small picture: milliseconds since the run's start.
type ExchangeSpan struct {
	Begin   float64 `json:"a"`
	End     float64 `json:"b"`
	Outcome string  `json:"o"`
}

// Detail is all stored data of a run.
type Detail struct {
	Run
	// Kept reports whether the code and output are stored: HISTORY may store receipts only, and content is removed
	// earlier.
	Kept bool `json:"kept"`
	Code Text `json:"code"`
	// Output is the text that the code printed, in order.
	Output Output `json:"output"`
	// Answer is the text that the model got.
	Answer Text `json:"answer"`
	// Files are the files that the code left in /out or passed to show.
	Files []RunFile `json:"files,omitempty"`
	// Exit is sandboxapi.Exit.Detail, or why there was no exit.
	Exit      string          `json:"exit,omitempty"`
	Exchanges []Exchange      `json:"exchanges"`
	Hints     []proxyapi.Hint `json:"hints,omitempty"`
}

// RunFile is a file of a run, without its content.
type RunFile struct {
	// Name is valid: see sandboxapi.IsFileName. Code chose it.
	Name string `json:"name"`
	Type string `json:"type"` // MIME
	Size int64  `json:"size"` // bytes
}

// Text is a text whose middle may be missing: Omitted bytes between Head and Tail.
type Text struct {
	Head    string `json:"head"`
	Omitted int64  `json:"omitted,omitempty"`
	Tail    string `json:"tail,omitempty"`
}

// Output is printed text. Its middle may be missing: Omitted bytes between Head and Tail.
type Output struct {
	Head    []Print `json:"head"`
	Omitted int64   `json:"omitted,omitempty"`
	Tail    []Print `json:"tail,omitempty"`
}

// Print is text that was printed at once, MS milliseconds after the run's start.
type Print struct {
	MS   int64  `json:"ms"`
	Err  bool   `json:"err,omitempty"` // to stderr
	Text string `json:"text"`
}

// Exchange is an exchange of a run, an MCP server or an installation.
type Exchange struct {
	// Number orders the exchanges of one store by the time of storing.
	Number int64 `json:"number"`
	proxyapi.Exchange
}

// RunFilter selects the runs of a list. The zero RunFilter selects all.
type RunFilter struct {
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// API, Host, Skill, Client and Session match exactly. Host matches a host to which the run sent a request, or tried
	// to.
	API     string `json:"api,omitempty"`
	Host    string `json:"host,omitempty"`
	Skill   string `json:"skill,omitempty"`
	Client  string `json:"client,omitempty"`
	Session string `json:"session,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	// State is one of the states, or "denied": something was refused.
	State string `json:"state,omitempty"`
	// Grep are words that must all occur in code, output, URLs, title or client name, as prefixes of words.
	Grep string `json:"grep,omitempty"`
	// Run is a run's ID or a prefix.
	Run string `json:"run,omitempty"`
	// Limit is the size of a page in runs: 0 means 100, and the maximum is 1,000.
	Limit int  `json:"limit,omitempty"`
	Spans bool `json:"spans,omitempty"`
}

// Page is a part of a list, latest run first. Next is the cursor of the next page, or "".
type Page struct {
	Runs []Run  `json:"runs"`
	Next string `json:"next,omitempty"`
}

// ExchangeFilter selects the exchanges of a list.
type ExchangeFilter struct {
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Run is the ID of a run, "server-NAME" or "install-NAME", or a prefix of such an ID.
	Run  string `json:"run,omitempty"`
	API  string `json:"api,omitempty"`
	Host string `json:"host,omitempty"`
	Name string `json:"name,omitempty"` // a token name that was swapped
	// Outcome is one of proxyapi's.
	Outcome string `json:"outcome,omitempty"`
	// Oldest lists the oldest first.
	Oldest bool `json:"oldest,omitempty"`
	// Limit is the size of a page: 0 means 100, and the maximum is 1,000.
	Limit int `json:"limit,omitempty"`
}

// ExchangePage is a part of a list.
type ExchangePage struct {
	Exchanges []Exchange `json:"exchanges"`
	Next      string     `json:"next,omitempty"`
}

// Ledger sums up the traffic that left this machine in a period.
type Ledger struct {
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Runs      int64     `json:"runs"`
	Requests  int64     `json:"requests"`
	Denied    int64     `json:"denied"`
	Failed    int64     `json:"failed"`
	BytesUp   int64     `json:"bytes_up"`
	BytesDown int64     `json:"bytes_down"`
	Shown     int64     `json:"shown"`
	Sanitized int64     `json:"sanitized"`
	Redacted  int64     `json:"redacted"`
	Swapped   int64     `json:"swapped"`
	// Traffic is by API and host, most bytes first. Matrix counts the swaps of each name for each host.
	Traffic []Traffic     `json:"traffic"`
	Matrix  []Cell        `json:"matrix"`
	Carried []CarriedRuns `json:"carried"`
}

// Traffic is the traffic with one host of one API. API is empty for hosts of no API.
type Traffic struct {
	API       string `json:"api"`
	Host      string `json:"host"`
	Requests  int64  `json:"requests"`
	Denied    int64  `json:"denied"`
	Failed    int64  `json:"failed"`
	BytesUp   int64  `json:"bytes_up"`
	BytesDown int64  `json:"bytes_down"`
}

// Cell counts how often a name was swapped for its credential in requests to a host, and how often the credential came
// back and was replaced by the name.
type Cell struct {
	Name     string `json:"name"`
	Host     string `json:"host"`
	Swapped  int64  `json:"swapped"`
	Scrubbed int64  `json:"scrubbed"`
}

// CarriedRuns are runs that read from one API and then wrote to another, with the written bytes. The written data
// likely contains the read data, but this is not certain.
type CarriedRuns struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	Runs  int64     `json:"runs"`
	Bytes int64     `json:"bytes"`
	First time.Time `json:"first"` // ever, as far as the store reaches
}

// Hour is the traffic of one API in one step of time. Steps without traffic are omitted.
type Hour struct {
	At        time.Time `json:"at"` // its start
	API       string    `json:"api"`
	Requests  int64     `json:"requests"`
	Denied    int64     `json:"denied"`
	Failed    int64     `json:"failed"`
	BytesUp   int64     `json:"bytes_up"`
	BytesDown int64     `json:"bytes_down"`
}

// Ways in which a skill can change.
const (
	ByRun    = "run"     // code wrote the file
	ByTool   = "tool"    // update_skill or delete_skill
	ByPerson = "outside" // outside of runs and tools
	ByHand   = "console" // in the console
)

// SkillVersion is a version of a skill, or its deletion.
type SkillVersion struct {
	Skill   string    `json:"skill"`
	Version int       `json:"version"` // from 1
	At      time.Time `json:"at"`
	// By is one of the ways above. Run is set if By is ByRun and the run is known.
	By      string `json:"by"`
	Run     string `json:"run,omitempty"`
	Client  string `json:"client,omitempty"`
	SHA     string `json:"sha256,omitempty"`
	Bytes   int    `json:"bytes"`
	Deleted bool   `json:"deleted,omitempty"`
	// Added and Removed count lines compared with the previous version.
	Added   int `json:"added"`
	Removed int `json:"removed"`
}

// SkillUse counts the runs that imported a skill.
type SkillUse struct {
	Skill string    `json:"skill"`
	Runs  int64     `json:"runs"`
	OK    int64     `json:"ok"`
	Last  time.Time `json:"last"`
}

// Kinds of alerts.
const (
	AlertNewPair = "new_pair" // data went from one API to another for the first time
	AlertSkill   = "skill"    // a skill changed
	AlertHistory = "history"  // the history lost data
	AlertPinned  = "pinned"   // the file of a pinned skill changed, without effect on imports
	AlertAPI     = "api"      // an API fails
	AlertServer  = "server"   // an MCP server does not start, or has unaccepted tools
	AlertAlarm   = "alarm"    // a request carried a canary, or the value of a credential
)

// MaxTitles bounds Alert.Titles.
const MaxTitles = 20

// Alert is an event that a person may want to know.
type Alert struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Title  string    `json:"title"`
	Text   string    `json:"text,omitempty"`
	Run    string    `json:"run,omitempty"`
	API    string    `json:"api,omitempty"`
	Skill  string    `json:"skill,omitempty"`
	Seen   bool      `json:"seen"`
	// Further counts later alerts with the same cause, which have no entry. Titles are the titles of the first MaxTitles
	// of these alerts.
	Further int      `json:"further,omitempty"`
	Titles  []string `json:"titles,omitempty"`
}

// Status describes the stored data.
type Status struct {
	// Mode is "full", "receipts" or "off".
	Mode string `json:"mode"`
	Path string `json:"path,omitempty"`
	// Problem is the reason why no data is stored, or the data that was lost.
	Problem   string    `json:"problem,omitempty"`
	Runs      int64     `json:"runs"`
	Exchanges int64     `json:"exchanges"`
	Oldest    time.Time `json:"oldest,omitzero"`
	// Bytes is the size of the files. Content is the size of the stored code and output.
	Bytes   int64 `json:"bytes"`
	Content int64 `json:"content"`
	// Dropped counts the data that was not stored since mcp-server's start, because the disk was full or too slow.
	Dropped int64 `json:"dropped"`
	// ContentDays, ContentBytes and ReceiptDays bound the stored data.
	ContentDays  int   `json:"content_days"`
	ContentBytes int64 `json:"content_bytes"`
	ReceiptDays  int   `json:"receipt_days"`
	// Waiting counts the changes that wait for Postgres.
	Waiting int64 `json:"waiting,omitempty"`
	// Cursor is the cursor of the latest event. The lists contain all earlier events.
	Cursor string `json:"cursor,omitempty"`
}

// Kinds of events.
const (
	EventRun      = "run"      // a run started or changed its state: Run
	EventExchange = "exchange" // an exchange ended: Exchange
	EventPrint    = "print"    // code printed: RunID, Print
	EventSkill    = "skill"    // a skill changed: Skill
	EventAlert    = "alert"    // Alert
	EventCancel   = "cancel"   // between replicas: the replica that executes RunID ends the run
	// EventGap means that this reader has missed events, and must reload its data.
	EventGap = "gap"
)

// HistoryEvent is an event that happened just now. Events are numbered without gaps from mcp-server's start. Cursor is
// the position of an event, from which Follow continues.
type HistoryEvent struct {
	Cursor   string        `json:"cursor"`
	Kind     string        `json:"kind"`
	RunID    string        `json:"run_id,omitempty"`
	Run      *Run          `json:"run,omitempty"`
	Exchange *Exchange     `json:"exchange,omitempty"`
	Print    *Print        `json:"print,omitempty"`
	Skill    *SkillVersion `json:"skill,omitempty"`
	Alert    *Alert        `json:"alert,omitempty"`
}
