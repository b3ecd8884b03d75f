package userform

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// Rounds is the first protocol version in which a call asks by its result. The user's answer comes with a new call.
	Rounds = "2026-07-28"
	// parkTime is how long a call waits for its client to return. A run may end earlier.
	parkTime = 10 * time.Minute
	// maxParked bounds the calls that wait for their clients.
	maxParked = 64
	// key names the question in a result that asks for input. A result has one question.
	key = "question"
)

// Gone is the answer to a client that returns too late, or with another client's question.
const Gone = "This call has ended: its question was answered already, or not in time. Call the tool again."

// Desk holds calls that wait for their clients to return with an answer. The zero Desk is empty. It is safe for
// concurrent use.
type Desk struct {
	mu     sync.Mutex
	parked map[string]*parkedCall
}

type parkedCall struct {
	owner string
	stop  context.CancelFunc
	asked chan sentQuestion
	open  *sentQuestion // the question that the client has got
	done  chan struct{} // closed when res is set
	res   *mcp.CallToolResult
	panic any // a panic of the work, for the waiting caller
	timer *time.Timer
}

// sentQuestion is a question on its way to the client.
type sentQuestion struct {
	question Question
	answer   chan *mcp.ElicitResult // gets nil if the client cannot be asked
}

// RunCall carries out one tool call with work, which may ask. Only owner may return with an answer.
func (d *Desk) RunCall(
	ctx context.Context, req *mcp.CallToolRequest, owner string, work func(context.Context, Asker) *mcp.CallToolResult,
) *mcp.CallToolResult {
	if state := req.Params.RequestState; state != "" {
		p := d.takeCall(state, owner)
		if p == nil {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: Gone}}, IsError: true}
		}
		r, _ := req.Params.InputResponses[key].(*mcp.ElicitResult)
		p.open.answer <- r
		p.open = nil
		return d.waitForCall(ctx, p)
	}
	if !canAsk(req.ClientCapabilities()) {
		return work(ctx, askNobody)
	}
	if req.ProtocolVersion() < Rounds {
		return work(ctx, func(asking context.Context, q Question) (Answer, error) {
			// The call's context makes the SDK send the question on the stream of the call. In another context it uses a stream
			// that clients need not open.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(asking, cancel)()
			r, err := req.Session.Elicit(ctx, q.elicitParams())
			if err != nil {
				return Answer{}, err
			}
			return readAnswer(r)
		})
	}
	// Without ctx's end: the work goes on while the client has an answer that asks for input.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &parkedCall{owner: owner, stop: stop, asked: make(chan sentQuestion), done: make(chan struct{})}
	go func() {
		defer stop()
		defer close(p.done)
		// A panic here would end the process; result repeats it in the caller, whose handler recovers.
		defer func() { p.panic = recover() }()
		p.res = work(working, p.askByResult)
	}()
	return d.waitForCall(ctx, p)
}

func (p *parkedCall) askByResult(ctx context.Context, q Question) (Answer, error) {
	a := sentQuestion{question: q, answer: make(chan *mcp.ElicitResult, 1)}
	select {
	case p.asked <- a:
	case <-p.done: // the call has ended
		return Answer{}, context.Canceled
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	select {
	case r := <-a.answer:
		return readAnswer(r)
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// waitForCall waits for the end of a call, or for its next question.
func (d *Desk) waitForCall(ctx context.Context, p *parkedCall) *mcp.CallToolResult {
	select {
	case <-p.done:
		return p.callResult()
	case a := <-p.asked:
		if state := d.parkCall(p, a); state != "" {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: a.question.elicitParams()}, RequestState: state}
		}
		// Too many calls wait, so the question is refused and the work goes on.
		a.answer <- nil
		return d.waitForCall(ctx, p)
	case <-ctx.Done():
		// The caller gave up, so the work is cancelled as well.
		p.stop()
		<-p.done
		return p.callResult()
	}
}

func (p *parkedCall) callResult() *mcp.CallToolResult {
	if p.panic != nil {
		panic(p.panic)
	}
	return p.res
}

// parkCall stores a call until its client returns. It returns the state with which the client returns, or "" if too
// many calls wait.
func (d *Desk) parkCall(p *parkedCall, a sentQuestion) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Each parked call keeps a run and a slot.
	if len(d.parked) >= maxParked {
		return ""
	}
	if d.parked == nil {
		d.parked = map[string]*parkedCall{}
	}
	state := rand.Text()
	p.open = &a
	d.parked[state] = p
	// Clients may never return, and the call must not wait forever.
	p.timer = time.AfterFunc(parkTime, func() {
		if d.takeCall(state, p.owner) != nil {
			p.stop()
		}
	})
	return state
}

// takeCall removes and returns the call of a state, if it belongs to owner.
func (d *Desk) takeCall(state, owner string) *parkedCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parked[state]
	// A state alone is not enough: another client must not answer this one's question.
	if p == nil || p.owner != owner {
		return nil
	}
	delete(d.parked, state)
	p.timer.Stop()
	return p
}
