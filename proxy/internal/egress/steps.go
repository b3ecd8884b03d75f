package egress

import (
	"errors"
	"net/http"
)

// The steps of an exchange, in the order in which they run. The order is the security: each step relies on the steps
// before it. To add a check, write a method and add its line here.
var (
	// headSteps read a request of the sandbox.
	headSteps = []requestStep{
		(*exchange).readHead, // one host, one target, no header of the client's connection
	}

	// storedSteps load the request of a plan's step.
	storedSteps = []requestStep{
		(*exchange).loadStep,
	}

	// draftSteps make the request that leaves. They follow headSteps, unless the request is a call.
	draftSteps = []requestStep{
		(*exchange).judgeHead, // a request that only its head condemns needs no body and no decoder memory
		(*exchange).prepareRequest,
		(*exchange).redactRequest, // may change names and values, so the verdict comes afterwards
	}

	// judgeSteps decide about the request as it will leave, except for credentials. Steps of plans begin here.
	judgeSteps = []requestStep{
		(*exchange).readOverrides, // each method that a server may read
		(*exchange).restoreStep,   // exactly the approved bytes of a plan's step leave
		(*exchange).judgeRequest,
		(*exchange).recordWrite,   // a dry run's write ends here
		(*exchange).reserveLimits, // first, so that a person never approves a request that a limit refuses
		(*exchange).askForRules,
		(*exchange).askForLimits,
		(*exchange).releaseContent,
		(*exchange).describeRequest,
	}

	// sendSteps put the credentials in, and send the request.
	sendSteps = []requestStep{
		(*exchange).endIfReloaded,
		(*exchange).announceWrite, // first of all: a crash after sending would leave a write without a ledger entry
		(*exchange).debugRequest,  // shows token names, so it comes before the swap
		(*exchange).keepRead,
		(*exchange).setKey,
		(*exchange).keepForRetry, // a retry swaps again, with the renewed value
		(*exchange).putCredentials,
		(*exchange).watchRequest,
		(*exchange).checkAddress, // an upstream proxy would resolve the name itself
		(*exchange).forwardRequest,
	}

	// callSteps pass a call of an MCP server's tool to the broker. They follow headSteps. The proxy swaps token names
	// only when the server sends them in a request.
	callSteps = []requestStep{
		(*exchange).prepareCall,
		(*exchange).judgeCall,
		(*exchange).releaseContent,
		(*exchange).describeRequest,
		(*exchange).endIfReloaded,
		(*exchange).checkArguments,
		(*exchange).debugRequest,
		(*exchange).searchCall, // stops a credential that code has got hold of
		(*exchange).keepCall,
		(*exchange).addressBroker,
		(*exchange).forwardRequest,
	}

	// responseSteps turn the answer into one that the sandbox may read.
	responseSteps = []responseStep{
		(*exchange).removeHopHeaders,
		(*exchange).checkCompression,
		(*exchange).reserveWindows,
		(*exchange).watchAnswer, // before the scrubber, which holds bytes back
		(*exchange).scrubAnswer,
		(*exchange).scrubSignature, // relies on an already decoded body
		(*exchange).setDelivery,
		(*exchange).debugResponse,
		(*exchange).watchEnd,
	}

	// endSteps run once for each exchange, also after a refusal.
	endSteps = []endStep{
		(*exchange).returnUnused, // limits and approvals, if no byte left
		(*exchange).endAttempt,
		(*exchange).recordExchange,
		(*exchange).rememberRead,
		(*exchange).logPayloads,
	}
)

type (
	// requestStep returns nil if the exchange goes on, and errAnswered if the client has its answer. After any other error
	// the request must not leave: see exchange.answerRefusal.
	requestStep func(*exchange) error
	// responseStep returns an error if the answer must not reach the client.
	responseStep func(*exchange, *http.Response) error
	endStep      func(*exchange)
)

// errAnswered ends an exchange whose client has its answer.
var errAnswered = errors.New("the client has its answer")

// serveRequest takes a request of the sandbox through its steps.
func (x *exchange) serveRequest() {
	switch {
	case !x.runSteps(headSteps):
	case x.request.IsCall():
		x.runSteps(callSteps)
	default:
		_ = x.runSteps(draftSteps) && x.runSteps(judgeSteps) && x.runSteps(sendSteps)
	}
}

// serveStep takes a plan's step through the same checks.
func (x *exchange) serveStep() {
	switch {
	case !x.runSteps(storedSteps):
	case x.replay.step.Shown.Server != "":
		x.runSteps(callSteps)
	default:
		_ = x.runSteps(judgeSteps) && x.runSteps(sendSteps)
	}
}

// runSteps runs steps until one ends the exchange. It reports whether the exchange goes on.
func (x *exchange) runSteps(steps []requestStep) bool {
	for _, do := range steps {
		if err := do(x); err != nil {
			_ = x.releaseContent()
			x.answerRefusal(err)
			return false
		}
	}
	return true
}
