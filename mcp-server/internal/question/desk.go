package question

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// rounds is the first protocol version in which a call asks by its result.
	rounds = "2026-07-28"
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
	parked map[string]*parked
}

// parked is a call in progress.
type parked struct {
	owner string
	stop  context.CancelFunc
	asked chan asked
	open  *asked        // the question that the client has got
	done  chan struct{} // closed when res is set
	res   *mcp.CallToolResult
	panic any // a panic of the work, for the waiting caller
	timer *time.Timer
}

// asked is a question on its way to the client.
type asked struct {
	question Question
	answer   chan *mcp.ElicitResult // gets nil if the client cannot be asked
}

// Call carries out one tool call with work, which may ask. Only owner may return with an answer.
func (d *Desk) Call(
	ctx context.Context, req *mcp.CallToolRequest, owner string, work func(context.Context, Asker) *mcp.CallToolResult,
) *mcp.CallToolResult {
	if state := req.Params.RequestState; state != "" {
		p := d.take(state, owner)
		if p == nil {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: Gone}}, IsError: true}
		}
		r, _ := req.Params.InputResponses[key].(*mcp.ElicitResult)
		p.open.answer <- r
		p.open = nil
		return d.wait(ctx, p)
	}
	if !asks(req.ClientCapabilities()) {
		return work(ctx, nobody)
	}
	if req.ProtocolVersion() < rounds {
		return work(ctx, func(asking context.Context, q Question) (Answer, error) {
			// The call's context makes the SDK send the question on the stream of the call. In another context it uses a stream
			// that clients need not open.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(asking, cancel)()
			r, err := req.Session.Elicit(ctx, q.params())
			if err != nil {
				return Answer{}, err
			}
			return answer(r)
		})
	}
	// Without ctx's end: the work goes on while the client has an answer that asks for input.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &parked{owner: owner, stop: stop, asked: make(chan asked), done: make(chan struct{})}
	go func() {
		defer stop()
		defer close(p.done)
		// A panic here would end the process; result repeats it in the caller, whose handler recovers.
		defer func() { p.panic = recover() }()
		p.res = work(working, p.ask)
	}()
	return d.wait(ctx, p)
}

// ask is the Asker of a call that asks by its result.
func (p *parked) ask(ctx context.Context, q Question) (Answer, error) {
	a := asked{question: q, answer: make(chan *mcp.ElicitResult, 1)}
	select {
	case p.asked <- a:
	case <-p.done: // the call has ended
		return Answer{}, context.Canceled
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	select {
	case r := <-a.answer:
		return answer(r)
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// wait waits for the end of a call, or for its next question.
func (d *Desk) wait(ctx context.Context, p *parked) *mcp.CallToolResult {
	select {
	case <-p.done:
		return p.result()
	case a := <-p.asked:
		if state := d.park(p, a); state != "" {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: a.question.params()}, RequestState: state}
		}
		// Too many calls wait, so the question is refused and the work goes on.
		a.answer <- nil
		return d.wait(ctx, p)
	case <-ctx.Done():
		// The caller gave up, so the work is cancelled as well.
		p.stop()
		<-p.done
		return p.result()
	}
}

// result returns the result of a finished call.
func (p *parked) result() *mcp.CallToolResult {
	if p.panic != nil {
		panic(p.panic)
	}
	return p.res
}

// park stores a call until its client returns. It returns the state with which the client returns, or "" if too many
// calls wait.
func (d *Desk) park(p *parked, a asked) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Each parked call keeps a run and a slot.
	if len(d.parked) >= maxParked {
		return ""
	}
	if d.parked == nil {
		d.parked = map[string]*parked{}
	}
	state := rand.Text()
	p.open = &a
	d.parked[state] = p
	// Clients may never return, and the call must not wait forever.
	p.timer = time.AfterFunc(parkTime, func() {
		if d.take(state, p.owner) != nil {
			p.stop()
		}
	})
	return state
}

// take removes and returns the call of a state, if it belongs to owner.
func (d *Desk) take(state, owner string) *parked {
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
