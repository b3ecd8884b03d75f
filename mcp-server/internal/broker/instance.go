package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// connectMargin is the time that a start may take beyond the server's time to connect. It covers the slot and the
	// bridge.
	connectMargin = 5 * time.Second
	// settleTime is the time limit for the bridge's answer to a cancelled call. The bridge gives the server 2 s.
	settleTime = 4 * time.Second
	// outQueue is the number of frames that may wait for a bridge.
	outQueue = 16
	// readTime is how long a bridge may leave a request unread before this counts as a failure.
	readTime = 10 * time.Second
	// maxProgress bounds a server's progress message, in characters.
	maxProgress = 200
	// logBurst and logRate bound an instance's log output: bytes at once, and bytes per second. The bridge's own bounds
	// are lower.
	logBurst = 128 << 10
	logRate  = 16 << 10
	// unaskedBurst and unaskedRate bound an instance's frames that answer no request: bytes at once, and bytes per second.
	// frameCost is added for each frame. The burst has room for the longest frame.
	unaskedBurst = 32 << 20
	unaskedRate  = 1 << 20
	frameCost    = 256
)

// Slot is a bridge in a server slot.
type Slot interface {
	// Read and Write are the bridge's output and input. Both fail when the bridge has ended.
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	// Start returns the first frame for the bridge.
	Start() bridgewire.Start
	// SetCalls tells the proxy which calls the server works on.
	SetCalls(ctx context.Context, calls proxyapi.ServerCalls) error
	// Drain returns the proxy's record of the server since the last Drain. The zero Cause means no call.
	Drain(ctx context.Context, cause proxyapi.Cause) (proxyapi.Receipt, error)
	// Stop ends everything in the slot, so that Read fails. It may be called repeatedly.
	Stop()
	// Close is Stop, and frees the slot. It may be called repeatedly.
	Close() error
}

// serverInstance is one process of a local server, or one connection to a remote server, in a separate slot.
type serverInstance struct {
	server *configuredServer
	key    string // its owner: all, a tenant, a session or a run

	ready chan struct{} // closed when the server is connected, or will never be
	gone  chan struct{} // closed when the instance has ended
	left  chan struct{} // closed after gone, when its slot is free
	kill  context.CancelCauseFunc
	out   chan bridgewire.ToBridge
	slot  Slot // set before ready is closed

	output *rate.Limiter // of the log output; only for the reading goroutine

	// Guarded by Broker.mu.
	users   int       // calls that hold the instance
	used    time.Time // when its last call let go
	retired bool      // gets no new calls, and ends with its last one
	tenant  string    // the tenant whose share of the slots it uses; see Broker.takeSlot
	// inFlight is the number of the server's calls. window is that number since the last fetch of its requests.
	inFlight, window int
	unattributed     int // calls whose requests the proxy has not reported yet
	// calls are the calls that the server works on, or may still work on. lastCall is the ID of the newest call. abandoned
	// are the runs whose callers gave up a call that the server may still work on. version counts the lists that the proxy
	// was sent.
	calls             []proxyapi.ServerCall
	lastCall, version uint64
	abandoned         []string

	callsOrder sync.Mutex // held while the proxy is sent a list of calls

	mu      sync.Mutex
	id      uint64
	pending map[uint64]*pendingRequest
	err     *callFailure // why the instance is not ready, or has ended
}

// errStopped is the cause of an instance's end if the broker wanted it.
var errStopped = errors.New("the server was stopped")

// runServer starts the server, passes frames until the server ends, and cleans up.
func (i *serverInstance) runServer(ctx context.Context) {
	err := i.readFrames(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	f := (*callFailure)(nil)
	if !errors.As(err, &f) {
		f = newEnded(cleanText(err.Error()), false)
		f.transport = !errors.Is(err, errStopped)
	}
	i.mu.Lock()
	i.err = f
	i.mu.Unlock()
	// Removed before ready and gone are closed, so that a caller that wakes up cannot get this instance again.
	i.server.broker.removeInstance(i, f)
	if !isClosed(i.ready) {
		close(i.ready)
	}
	close(i.gone)
	// The slot must stay registered until then: after it is free, the proxy no longer knows its requests.
	i.server.broker.awaitAttribution(i) // the proxy knows nothing of a slot that is free
	if i.slot != nil {
		if err := i.slot.Close(); err != nil {
			i.server.logWarning("a slot could not be freed", "error", err)
		}
	}
	close(i.left)
	i.server.broker.recordFreeSlot(i)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readFrames starts the server and reads frames until its bridge ends.
func (i *serverInstance) readFrames(ctx context.Context) error {
	slot, err := i.server.broker.launchBridge(ctx, i)
	if err != nil {
		return err
	}
	i.slot = slot
	// Reading blocks without regard to ctx, so the end of ctx has to end the slot.
	stop := context.AfterFunc(ctx, slot.Stop)
	defer stop()
	go i.writeFrames(ctx)
	start := slot.Start()
	limit := time.Duration(start.ConnectTimeoutMS)*time.Millisecond + connectMargin
	timer := time.AfterFunc(limit, func() {
		i.kill(&callFailure{
			code: serverUnavailable, message: fmt.Sprintf("the server was not connected within %v", limit),
			transport: true, unsent: true, retryable: true,
		})
	})
	defer timer.Stop()
	// This does not block: the queue is empty, and calls wait for ready.
	i.out <- bridgewire.ToBridge{Start: &start}
	return i.followBridge(ctx, slot, timer)
}

// followBridge handles frames until the bridge ends. A server can write frames without end, so those that answer no
// request are read at a bounded rate. Then the pipe is full, and the server waits.
func (i *serverInstance) followBridge(ctx context.Context, slot io.Reader, timer *time.Timer) error {
	r, unasked := bridgewire.NewReader(slot), rate.NewLimiter(unaskedRate, unaskedBurst)
	for {
		var f bridgewire.FromBridge
		if err := r.Read(&f); err != nil {
			return fmt.Errorf("the connection to the server ended: %w", err)
		}
		isAnswer, err := i.handleFrame(f, timer)
		if err != nil {
			return err
		}
		//defence:frame-rate
		if !isAnswer {
			if err := unasked.WaitN(ctx, r.FrameSize()+frameCost); err != nil {
				return err
			}
		}
	}
}

// handleFrame handles a frame from the bridge, and reports whether the frame answers a request. An error ends the
// instance.
func (i *serverInstance) handleFrame(f bridgewire.FromBridge, timer *time.Timer) (isAnswer bool, err error) {
	switch {
	case f.Ready != nil:
		// A second close of ready would panic, and a hostile server can write frames itself.
		if isClosed(i.ready) {
			return false, errors.New("the bridge is ready twice")
		}
		timer.Stop()
		close(i.ready)
	case f.Failed != nil:
		e := newEnded(cleanText(f.Failed.Message), f.Failed.Code != bridgewire.Gone)
		switch f.Failed.Code {
		case bridgewire.Refused:
			e.hint = "Tell the user to check the server's credential and headers in its config.json."
		case bridgewire.NotStarted:
			e.hint = "The server's output is in CodeForge's log, in the lines with server=" + i.server.api.Name + "."
		}
		return false, e
	case f.Log != "":
		i.logOutput(f.Log)
	case f.Question != nil:
		i.passQuestion(*f.Question)
	case f.Progress != nil:
		i.reportProgress(*f.Progress)
	case f.Changed:
		i.server.handleChange(i.key)
	case f.ID != 0:
		i.mu.Lock()
		p := i.pending[f.ID]
		// Deleted with the first answer: a second answer to the same ID would block the reading goroutine.
		delete(i.pending, f.ID)
		i.mu.Unlock()
		if p != nil {
			p.answer <- f
		}
		return p != nil, nil
	}
	return false, nil
}

// reportProgress reports the progress of a call to the client of the run that made the call.
func (i *serverInstance) reportProgress(p bridgewire.Progress) {
	i.mu.Lock()
	of := i.pending[p.Request]
	i.mu.Unlock()
	// The server chooses the ID, so it may name a request of another kind or none at all.
	if of == nil || of.call == nil {
		return
	}
	text := strconv.FormatFloat(p.Done, 'f', -1, 64)
	if p.Total > 0 {
		text += " of " + strconv.FormatFloat(p.Total, 'f', -1, 64)
	}
	if said := toolsignature.CleanLine(p.Message, maxProgress); said != "" {
		text += ": " + said
	}
	i.server.broker.cfg.Progress(of.call.run, i.server.api.Name+"."+of.call.tool+": "+text)
}

// logOutput logs a server's output in short lines, at a bounded rate. The bridge bounds the rate too, but the server
// can write to the bridge's output itself.
func (i *serverInstance) logOutput(text string) {
	if text = text[:min(len(text), bridgewire.MaxLog)]; i.output.AllowN(time.Now(), len(text)) {
		i.server.logInfo(strings.ToValidUTF8(text, ""))
	}
}

// writeFrames writes frames until the instance ends. It blocks while the bridge does not read.
func (i *serverInstance) writeFrames(ctx context.Context) {
	w := bridgewire.NewWriter(i.slot)
	for {
		select {
		case f := <-i.out:
			if err := w.Write(f); err != nil {
				// The bridge has ended. The reading goroutine gets the reason, which is better than this error.
				select {
				case <-i.gone:
				case <-ctx.Done():
				case <-time.After(settleTime):
					i.kill(fmt.Errorf("writing to the server: %w", err))
				}
				return
			}
		case <-ctx.Done():
			return
		case <-i.gone:
			return
		}
	}
}

// failureReason returns the reason why the instance is not ready or has ended, for a call that was or was not sent.
func (i *serverInstance) failureReason(unsent bool) *callFailure {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil {
		return nil
	}
	f := *i.err
	if unsent && !f.unsent {
		f.unsent, f.retryable, f.hint = true, true, ""
	}
	return &f
}

func (i *serverInstance) waitForConnection(ctx context.Context) *callFailure {
	select {
	case <-i.ready:
		return i.failureReason(true)
	case <-ctx.Done():
		return &callFailure{code: timedOut, message: "the server was still starting", retryable: true, unsent: true}
	}
}

// sendAndWait sends a request and waits for its answer. If ctx ends, the request is cancelled, and settled gets the
// server's state later in the background. Otherwise settled is called before sendAndWait returns.
func (i *serverInstance) sendAndWait(ctx context.Context, method string, params any,
	settled func(callState)) (json.RawMessage, *callFailure) {
	if ctx.Err() != nil {
		settled(atRest)
		return nil, &callFailure{code: timedOut, message: "the call was given up before it was sent", unsent: true}
	}
	raw, err := convert.ToJSON(params)
	if err != nil {
		settled(atRest)
		return nil, &callFailure{code: badRequest, message: err.Error()}
	}
	if isClosed(i.gone) { // i.out may have room even then
		settled(atRest)
		return nil, i.failureReason(true)
	}
	i.mu.Lock()
	i.id++
	// The answer's channel has room for one frame, so that the reading goroutine never waits for this one.
	id, answer := i.id, make(chan bridgewire.FromBridge, 1)
	i.pending[id] = &pendingRequest{answer: answer, call: callOf(ctx), ctx: ctx}
	i.mu.Unlock()
	began := time.Now()
	select {
	case i.out <- bridgewire.ToBridge{ID: id, Method: method, Params: raw}:
	case <-i.gone:
		settled(atRest)
		return nil, i.failureReason(true)
	case <-ctx.Done():
		i.forgetRequest(id)
		settled(atRest)
		// Code chooses its timeout: calls that it gives up at once must not count as failures of the server.
		return nil, &callFailure{
			code: timedOut, message: "the server does not read", unsent: true, transport: time.Since(began) >= readTime,
		}
	}
	select {
	case f := <-answer:
		i.awaitEnd(f)
		settled(atRest)
		return i.toResult(f)
	case <-i.gone:
		settled(atRest)
		select {
		case f := <-answer: // arrived before the end
			return i.toResult(f)
		default:
		}
		return nil, i.failureReason(false)
	case <-ctx.Done():
	}
	// In the background, because code has waited long enough; the call's turn stays taken until the server is at rest.
	go i.cancelRequest(id, answer, settled)
	return nil, &callFailure{code: timedOut, message: "cancelled"}
}

// awaitEnd handles an answer that reports the end of the server's process. It waits until the instance is removed, so
// that the next call cannot get this instance.
func (i *serverInstance) awaitEnd(f bridgewire.FromBridge) {
	if i.server.spec.URL != "" || f.Error == nil || (f.Error.Code != bridgewire.Gone &&
		f.Error.Code != bridgewire.NotSent) {
		return
	}
	select {
	case <-i.gone:
	case <-time.After(settleTime):
		i.kill(errors.New("the server ended, but its bridge did not"))
	}
}

// toResult converts a frame to a call's result.
func (i *serverInstance) toResult(f bridgewire.FromBridge) (json.RawMessage, *callFailure) {
	if f.Error == nil {
		return f.Result, nil
	}
	e := fromBridge(f.Error)
	// The instance's own failure is more precise than the bridge's answer to one request.
	if why := i.failureReason(e.unsent); e.transport && why != nil {
		return nil, why
	}
	return nil, e
}

// callState is the state of a server after a call.
type callState int

const (
	atRest    callState = iota // it has finished with the call
	abandoned                  // it lives, but does not report whether it stopped
	hung                       // it does not answer
)

// cancelRequest cancels a request and waits until the server has stopped working on it.
func (i *serverInstance) cancelRequest(id uint64, answer <-chan bridgewire.FromBridge, settled func(callState)) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case i.out <- bridgewire.ToBridge{Cancel: id}:
	case <-i.gone:
		settled(atRest)
		return
	case <-timer.C:
		// The answer may never come, and the entry would otherwise stay as long as the instance.
		i.forgetRequest(id)
		settled(hung)
		return
	}
	select {
	case f := <-answer:
		switch {
		case f.Error != nil && f.Error.Code == bridgewire.Abandoned:
			settled(abandoned)
		case f.Error != nil && f.Error.Code == bridgewire.Hung:
			settled(hung)
		default:
			settled(atRest)
		}
	case <-i.gone:
		settled(atRest)
	case <-timer.C:
		i.forgetRequest(id)
		settled(hung)
	}
}

// forgetRequest drops a request whose answer is no longer wanted.
func (i *serverInstance) forgetRequest(id uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.pending, id)
}
