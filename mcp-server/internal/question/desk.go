package question

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// rounds is the first revision in which a call asks by its result.
	rounds = "2026-07-28"
	// parkTime is how long a call waits for its client to come back. A run may end before.
	parkTime = 10 * time.Minute
	// maxParked is how many calls may wait for their clients.
	maxParked = 64
	// key names the question in a result that asks for input. A result has one.
	key = "question"
)

// Gone is the reply to a client that comes back too late, or with another client's question.
const Gone = "This call is over: its question was answered already, or not in time. Call the tool again."

// Desk keeps calls that wait for their clients to come back with an answer. The zero Desk is empty. It is safe for
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
	open  *asked        // the question that the client has been given
	done  chan struct{} // closed when res is set
	res   *mcp.CallToolResult
	panic any // of the work, for the waiting caller
	timer *time.Timer
}

// asked is a question on its way to the client.
type asked struct {
	question Question
	answer   chan *mcp.ElicitResult // closed without an answer when nobody will come
}

// Call carries out one call of a tool with work, which may ask. The owner is who may come back with an answer.
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
			// In the call's context the SDK sends the question on the stream of the call. In another context it uses a stream
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
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &parked{owner: owner, stop: stop, asked: make(chan asked), done: make(chan struct{})}
	go func() {
		defer stop()
		defer close(p.done)
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
	case <-p.done: // nobody waits for the call any more
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

// wait waits for the end of a call, or its next question.
func (d *Desk) wait(ctx context.Context, p *parked) *mcp.CallToolResult {
	select {
	case <-p.done:
		return p.result()
	case a := <-p.asked:
		if state := d.park(p, a); state != "" {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: a.question.params()}, RequestState: state}
		}
		a.answer <- nil
		return d.wait(ctx, p)
	case <-ctx.Done():
		p.stop()
		<-p.done
		return p.result()
	}
}

// result is that of a call whose work is done.
func (p *parked) result() *mcp.CallToolResult {
	if p.panic != nil {
		panic(p.panic)
	}
	return p.res
}

// park keeps a call until its client comes back. It gives the state that the client comes back with, or nothing if
// there is no room.
func (d *Desk) park(p *parked, a asked) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) >= maxParked {
		return ""
	}
	if d.parked == nil {
		d.parked = map[string]*parked{}
	}
	state := rand.Text()
	p.open = &a
	d.parked[state] = p
	p.timer = time.AfterFunc(parkTime, func() {
		if d.take(state, p.owner) != nil {
			p.stop()
		}
	})
	return state
}

// take takes out the call of a state, if it is the owner's.
func (d *Desk) take(state, owner string) *parked {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parked[state]
	if p == nil || p.owner != owner {
		return nil
	}
	delete(d.parked, state)
	p.timer.Stop()
	return p
}
