// Package wsrelay relays WebSocket messages between a client and an upstream. It swaps token names in the client's text
// messages if a credential declares the body. It scrubs credentials from the upstream's messages.
//
// Threat: a credential that is split over frames, put into a control frame, or compressed.
//
// Contract: messages are searched across their frames. The relay never negotiates an extension (see DropExtensions and
// HasNoExtensions), and a frame that uses an extension ends the connection. A credential that an upstream splits over
// two messages is not found.
package wsrelay

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// Options describe the treatment of messages. A nil field disables its step.
type Options struct {
	Scrub *scrub.Scrubber
	// Signature finds the signature of the handshake in the upstream's messages.
	Signature *scrub.Scrubber
	// Sent are the token names that this run sent, as in scrub.Options.
	Sent        []string
	Swap        *swap.Swapper
	SwapOptions swap.Options
	Redact      *redact.Redactor
	// MaxUp is the largest client message in bytes, which is held in memory. 0 means 1 MiB.
	MaxUp int64
	// MaxDown is the largest upstream message in bytes, which streams. 0 means 64 MiB.
	MaxDown int64
	// Held is the memory account for client messages of more than 64 KiB. Nil means no bound.
	Held *membudget.Account
	// Report, if not nil, counts swaps, replacements and bytes.
	Report *Report
}

const (
	defaultUp   = 1 << 20
	defaultDown = 64 << 20
	// smallUp is the number of bytes of a client message that the relay holds before it takes memory from Options.Held.
	smallUp = 64 << 10
	// bufferCopies is the number of buffers of a client message: received, as text, swapped, and as a frame. Each may have
	// twice the message's size, because buffers grow by doubling.
	bufferCopies = 8
	// pieceSize is the largest payload of a frame to the client, in bytes.
	pieceSize = 16 << 10
	// closeTime is the time that a peer has to answer a close frame.
	closeTime = 5 * time.Second
)

var (
	// ErrTooBig ends a connection with a message over the limit.
	ErrTooBig = errors.New("websocket message is too big")
	// ErrProtocol ends a connection whose peer breaks RFC 6455 or uses an extension.
	ErrProtocol = errors.New("websocket peer broke the protocol")
)

// DropExtensions removes all extensions from a client's handshake.
func DropExtensions(h http.Header) { h.Del("Sec-Websocket-Extensions") }

// HasNoExtensions reports whether an upstream's 101 response uses no extension, as required after DropExtensions.
func HasNoExtensions(h http.Header) bool { return len(h.Values("Sec-Websocket-Extensions")) == 0 }

// Report counts the changes to messages. Its swap.Report has the swaps and the seen names of all messages. It may be
// read at any time.
type Report struct {
	swap.Report

	mu                 sync.Mutex
	scrubbed, redacted int
	up, down           int64
}

// Counts returns the number of scrubbed credentials and of redacted strings, and the message bytes in each direction.
func (r *Report) Counts() (scrubbed, redacted int, up, down int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scrubbed, r.redacted, r.up, r.down
}

// addMessage records the changes to one client message.
func (r *Report) addMessage(s *swap.Report, redacted, size int) {
	r.AddReport(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.redacted += redacted
	r.up += int64(size)
}

func (r *Report) addPiece(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down += int64(n)
}

func (r *Report) countScrub() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scrubbed++
}

// RelayMessages passes messages until both peers have closed, one fails, or ctx is done. It closes both connections.
// Nil means a regular close by the protocol. Both peers must be past a valid 101 response without extensions.
func RelayMessages(ctx context.Context, client, upstream io.ReadWriteCloser, o Options) error {
	o.MaxUp = cmp.Or(o.MaxUp, defaultUp)
	o.MaxDown = cmp.Or(o.MaxDown, defaultDown)
	if o.Report == nil {
		o.Report = &Report{}
	}
	// over must outlive ctx: waitForPumps sends the close frames after ctx has ended.
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	r := &relay{o: o, end: end, client: newPeer(client, false), upstream: newPeer(upstream, true), over: over}
	ends := make(chan error, 2)
	go func() { ends <- runRecovered(func() error { return r.pumpFrames(r.client, r.upstream, r.relayUp) }) }()
	go func() { ends <- runRecovered(func() error { return r.pumpFrames(r.upstream, r.client, r.relayDown) }) }()
	err := r.waitForPumps(ctx, ends)
	_, _ = client.Close(), upstream.Close()
	return err
}

// runRecovered turns a panic into an error of this connection. An unrecovered panic in this goroutine would end the
// process.
func runRecovered(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = ErrProtocol
		}
	}()
	return f()
}

type relay struct {
	o                Options
	client, upstream *peer
	over             context.Context // ends when one direction has ended
	end              context.CancelFunc
}

// waitForPumps waits for both pumps. After the first pump ends regularly, the second has the time goodbye. If the first
// pump failed, it has none. The exception is an upstream that has gone: the client still gets the upstream's last
// messages.
func (r *relay) waitForPumps(ctx context.Context, ends <-chan error) error {
	var first error
	select {
	case first = <-ends:
		r.end()
	case <-ctx.Done():
		r.end()
		first = ctx.Err()
		r.closePeers(closeGoingAway)
		<-ends //nolint:errcheck // the first error counts
	}
	ended := false // whether the second pump has ended too
	// A failed write to the upstream does not end the upstream's own messages.
	if first == nil || r.upstream.gone.Load() {
		timer := time.NewTimer(closeTime)
		defer timer.Stop()
		select {
		case err := <-ends:
			if first == nil {
				return err
			}
			ended = true
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if first != nil {
		r.closePeers(closeCode(first))
	}
	// Closing both connections ends a read that the second pump waits in.
	_, _ = r.client.rw.Close(), r.upstream.rw.Close()
	if !ended {
		<-ends //nolint:errcheck // the first error counts
	}
	return first
}

// closePeers sends a close frame to both peers. It does not wait long for a peer that does not read.
func (r *relay) closePeers(code uint16) {
	// Writing blocks if a peer does not read. Closing ends the write.
	timer := time.AfterFunc(closeTime/5, func() { _, _ = r.client.rw.Close(), r.upstream.rw.Close() })
	defer timer.Stop()
	r.client.sendClose(code)
	r.upstream.sendClose(code)
	_, _ = r.client.rw.Close(), r.upstream.rw.Close()
}

func closeCode(err error) uint16 {
	var ambiguity *swap.Ambiguity
	switch {
	case errors.Is(err, ErrProtocol):
		return closeProtocol
	case errors.Is(err, ErrTooBig):
		return closeTooBig
	case errors.Is(err, membudget.ErrFull):
		return closeTryLater
	case errors.Is(err, swap.ErrCarriesValue), errors.As(err, &ambiguity):
		return closePolicy
	}
	return closeGoingAway
}

// passControl passes on a control frame. It keeps the close code and cleans the text like a message.
func (r *relay) passControl(from, to *peer, h frameHead) error {
	payload := make([]byte, h.length)
	if err := from.readPayload(payload, h, 0); err != nil {
		return err
	}
	code := 0
	// RFC 6455, section 5.5.1: the body of a close frame, if there is one, begins with a code of two bytes.
	if h.op == opClose && len(payload) > 0 {
		if code = 2; len(payload) < 2 || !isValidClose(binary.BigEndian.Uint16(payload)) {
			return ErrProtocol
		}
	}
	text, err := r.cleanText(from, string(payload[code:]))
	if err != nil {
		return err
	}
	if most := maxControl - code; len(text) > most {
		// Clients end a connection if the text ends within a character. A replacement may be longer than the credential.
		text = strings.ToValidUTF8(text[:most], "")
	}
	return to.writeFrame(true, h.op, append(payload[:code], text...))
}

// isValidClose reports whether a close code may be sent (RFC 6455, section 7.4).
func isValidClose(code uint16) bool {
	return code >= 1000 && code < 5000 && code != 1004 && code != 1005 && code != 1006 && code != 1015
}

// cleanText returns the text of a control frame after scrubbing or redaction. It returns an error if a client's text
// contains a credential's value.
func (r *relay) cleanText(from *peer, text string) (string, error) {
	if from == r.upstream {
		return r.o.Signature.String(r.o.Scrub.String(text)), nil
	}
	text, n := r.o.Redact.ReplaceAndCount(text)
	clean, report, err := r.o.Swap.SwapMessage(text, false, r.o.SwapOptions)
	r.o.Report.addMessage(report, n, 0)
	return clean, err
}
