package egress

import (
	"errors"
	"net/http"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// The steps of an exchange, in the order in which they run. The order is the security: each step relies on the steps
// before it. To add a check, add its line here. A step that needs much of the exchange is a method. The line of any
// other step passes the values that it reads.
var (
	// headSteps read a request of the sandbox.
	headSteps = []requestStep{
		(*exchange).readHead, // one host, one target, no header of the client's connection
	}

	// storedSteps load the request of a plan's step.
	storedSteps = []requestStep{
		func(x *exchange) error { return x.msg.loadStep(x.ctx, x.plan.replay, &x.request) },
		// The approver saw a plan under the old catalog.
		func(x *exchange) error {
			if x.snap.Public.Version != x.plan.replay.version {
				return x.deny(policy.Refuse(policy.CodePlanStale, x.request.Host, nil))
			}
			return nil
		},
	}

	// draftSteps make the request that leaves. They follow headSteps, unless the request is a call.
	draftSteps = []requestStep{
		(*exchange).judgeHead, // a request that only its head condemns needs no body and no decoder memory
		(*exchange).prepareRequest,
		// Redaction may change names and values, so the verdict comes afterwards.
		func(x *exchange) error { return x.msg.redact(x.conf.Redact, x.holders()) },
	}

	// judgeSteps decide about the request as it will leave, except for credentials. Steps of plans begin here.
	judgeSteps = []requestStep{
		(*exchange).readOverrides, // each method that a server may read
		(*exchange).judgeRequest,
		(*exchange).recordWrite,   // a dry run's write ends here
		(*exchange).reserveLimits, // first, so that a person never approves a request that a limit refuses
		(*exchange).askForApproval,
		func(x *exchange) error { return releaseContent(&x.request) },
		(*exchange).describeRequest,
	}

	// sendSteps put the credentials in, and send the request.
	sendSteps = []requestStep{
		func(x *exchange) error { return endStale(x.snap.Snapshot, x.conf.Current(), x.cancel) },
		// First of all: a crash after sending would leave a write without a ledger entry.
		func(x *exchange) error {
			return announceWrite(x.conf.Sending, &x.note, x.request, x.verdict, x.msg.out)
		},
		// Shows token names, so it comes before the swap.
		func(x *exchange) error { return x.msg.keepForLog(x.conf.Debug) },
		func(x *exchange) error { return x.plan.keepRead(x.from.lease.Plan, x.request, x.msg.out) },
		func(x *exchange) error {
			return x.settlement.setKey(x.conf.Keys, x.from.lease.Tenant, x.request, x.verdict.APIs, x.msg.out)
		},
		// A retry swaps again, with the renewed value. An approved request is sent only once.
		func(x *exchange) error {
			return x.creds.minted.keepForRetry(x.msg.out, x.request, x.verdict.APIs, x.settlement.approved)
		},
		(*exchange).putCredentials,
		func(x *exchange) error { return x.msg.watchRequest(x.verdict.APIs, x.creds.swapped) },
		// An upstream proxy would resolve the name itself.
		func(x *exchange) error { return x.conf.Pool.CheckTarget(x.ctx, x.creds.want, x.msg.out.URL) },
		(*exchange).forwardRequest,
	}

	// callSteps pass a call of an MCP server's tool to the broker. They follow headSteps. The proxy swaps token names
	// only when the server sends them in a request.
	callSteps = []requestStep{
		(*exchange).prepareRequest,
		(*exchange).judgeCall,
		func(x *exchange) error { return releaseContent(&x.request) },
		(*exchange).describeRequest,
		func(x *exchange) error { return endStale(x.snap.Snapshot, x.conf.Current(), x.cancel) },
		// The broker could not read unfit arguments.
		func(x *exchange) error { x.call.leaves = true; return x.call.unfit },
		func(x *exchange) error { return x.msg.keepForLog(x.conf.Debug) },
		// Stops a credential that code has got hold of.
		func(x *exchange) error { return x.creds.searchCall(x.snap.guard, x.msg.out, x.raiseAlarm) },
		func(x *exchange) error { return x.call.keepForPlan(x.from.lease.Plan, x.request.Host, x.msg.out) },
		func(x *exchange) error {
			return x.call.setAddress(x.msg.out, x.from.lease, x.verdict.Hold != nil, x.plan.replay)
		},
		(*exchange).forwardRequest,
	}

	// responseSteps turn the answer into one that the sandbox may read.
	responseSteps = []responseStep{
		func(_ *exchange, resp *http.Response) error { return checkStatus(resp.StatusCode) },
		func(_ *exchange, resp *http.Response) error { return removeHopHeaders(resp) },
		func(x *exchange, resp *http.Response) error { return x.creds.compression.check(resp, x.msg.out.Method) },
		func(x *exchange, resp *http.Response) error { return reserveWindows(x.ctx, resp) },
		// Before the scrubber, which holds bytes back.
		func(x *exchange, resp *http.Response) error {
			return x.answer.watchArrival(&x.msg, resp, x.verdict.APIs)
		},
		(*exchange).scrubAnswer,
		func(x *exchange, resp *http.Response) error { return x.w.setDelivery(resp, &x.note) },
		func(x *exchange, resp *http.Response) error {
			return x.answer.observeBody(x.ctx, resp, &x.msg, &x.plan)
		},
	}

	// endSteps run once for each exchange, also after a refusal.
	endSteps = []endStep{
		func(x *exchange) { noteLeft(&x.note, x.call.leaves, x.answer.left.Load()) },
		func(x *exchange) { x.settlement.returnUnused(&x.note) }, // limits and approvals, if no byte left
		func(x *exchange) { x.settlement.endAttempt(x.answer.status, x.note.Left) },
		func(x *exchange) { x.conf.Journal.RecordExchange(x.note) },
		func(x *exchange) {
			x.plan.rememberRead(x.from.lease.Plan, &x.note, x.call.leaves && len(x.verdict.APIs) == 0)
		},
		func(x *exchange) {
			x.msg.debug.writeLog(x.conf.Log, &x.note, x.w.status, func(text string) string {
				return cleanForLog(x.conf.Redact, x.snap.Snapshot, text)
			})
		},
		func(x *exchange) { coding.ReleaseBody(x.msg.out) }, // the request may never have left
	}
)

type (
	// requestStep returns nil if the exchange goes on, and errAnswered if the client has its answer. After any other error
	// the request must not leave: see exchange.refusal.
	requestStep func(*exchange) error
	// responseStep returns an error if the answer must not reach the client.
	responseStep func(*exchange, *http.Response) error
	endStep      func(*exchange)
)

// errAnswered ends an exchange whose client has its answer.
var errAnswered = errors.New("the client has its answer")

// serveRequest takes a request of the sandbox, or a plan's step, through its steps.
func (x *exchange) serveRequest() {
	switch replays := x.plan.replay != nil; {
	case replays && !x.runSteps(storedSteps), !replays && !x.runSteps(headSteps):
	case x.request.IsCall():
		x.runSteps(callSteps)
	case replays:
		x.runSteps(judgeSteps, sendSteps)
	default:
		x.runSteps(draftSteps, judgeSteps, sendSteps)
	}
}

// runSteps runs lists of steps until a step ends the exchange. It reports whether the exchange goes on.
func (x *exchange) runSteps(lists ...[]requestStep) bool {
	for _, steps := range lists {
		for _, do := range steps {
			err := do(x)
			if err == nil {
				continue
			}
			_ = releaseContent(&x.request)
			if err != errAnswered { //nolint:errorlint // never wrapped
				x.w.send(x.refusal(err)) //nolint:bodyclose // send closes it
			}
			return false
		}
	}
	return true
}
