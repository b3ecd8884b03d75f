package egress

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// searchedBody is how many bytes of a refused request's body are searched. searchTime is how long the client may take
	// to send them.
	searchedBody = 256 << 10
	searchTime   = 3 * time.Second
)

// usualMethods are the methods that cannot be text of the code.
var usualMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete}

// NewRunSwapper returns the Swapper of a snapshot for a run, which also refuses the run's canaries.
func NewRunSwapper(snap *reload.Snapshot, l *lease.Lease) *swap.Swapper {
	//defence:canaries permits
	if l.Canaries == nil {
		return snap.Swap
	}
	return snap.Swap.WithCanaries(l.Canaries())
}

// RaiseAlarm records that a request carried a credential or a canary, and ends the run. An MCP server or an
// installation goes on: the request was refused, and no session is to blame.
func RaiseAlarm(j *receipt.Journal, l *lease.Lease, c swap.CarriedValue, method, host string) {
	a := proxyapi.Alarm{
		Run: l.Run, Tenant: l.Tenant, Kind: proxyapi.AlarmCredential, Name: c.Name, In: c.In, Method: method, Host: host,
	}
	if c.Canary {
		a.Kind = proxyapi.AlarmCanary
	}
	j.RecordAlarm(int(l.Slot), l.Recorder, a)
	//defence:alarm-ends-run
	if l.ClientType() == policy.ClientRun {
		l.Revoke()
	}
}

// raiseAlarm calls RaiseAlarm for this exchange, at most once. It is safe for concurrent use: another goroutine may
// search a body.
func (x *exchange) raiseAlarm(c swap.CarriedValue) {
	x.from.alarm.Do(func() {
		method := x.note.Method
		// An alarm is shown to people and kept: a method that the code invented could carry text into it.
		if !slices.Contains(usualMethods, method) {
			method = ""
		}
		RaiseAlarm(x.conf.Journal, x.from.lease, c, method, x.note.Host)
	})
}

// searchRefused searches a request that was refused for another reason: a canary is an alarm wherever the request was
// to go. The answer leaves only afterwards, because a client that has it sends no more of the body.
func (x *exchange) searchRefused(r *http.Request) {
	if x.note.Outcome != proxyapi.OutcomeDenied || x.note.Code == policy.CodeCredentialSent {
		return
	}
	guard, host := x.snap.guard, x.request.Host
	// Code can hide a secret in a host name, or in the part that a wildcard matches.
	for _, name := range [...]string{x.from.conn.Host().Name(), r.Host, host.Name()} {
		if c, ok := guard.SearchName(findChosenHostPart(name, x.snap.Rules.Catalog.ListHolders(host)), "host"); ok {
			x.raiseAlarm(c)
			return
		}
	}
	req := r
	switch {
	case x.creds.swapped != nil: // already searched before the swap, except for the rest of the body
		req = &http.Request{URL: new(url.URL), Header: http.Header{"Content-Encoding": r.Header["Content-Encoding"]}}
		if x.creds.rest != nil {
			req.Body = x.creds.rest
		}
	case x.msg.out != nil:
		req = x.msg.out
	}
	if req.Body != nil && req.Body != http.NoBody {
		if !takeWindows(x.ctx, req.Header, coding.Parse) {
			req.Header.Del("Content-Encoding") // without memory for the decoder, the body is searched as it came
		}
		rc := http.NewResponseController(x.w.ResponseWriter)
		// A client that stops sending would hold the exchange open.
		_ = rc.SetReadDeadline(time.Now().Add(searchTime))
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	defer x.msg.received.Store(x.msg.received.Load()) // bytes read here do not leave, so they do not count as sent
	if c, ok := guard.SearchRequest(req, "", searchedBody); ok {
		x.raiseAlarm(c)
	}
}
