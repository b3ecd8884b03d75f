// Package wsrelay relays WebSocket messages between a client and an upstream: token names in the client's text messages
// are swapped where a credential declares the body, and credentials in the upstream's messages are scrubbed.
//
// Threat: a credential that is split over frames, put into a control frame, or compressed. Messages are searched across
// their frames; no extension is ever negotiated (see Offer and Agreed), and a frame that uses one ends the connection.
// A credential that an upstream splits over two messages is not found.
package wsrelay

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// Options hold what is done to messages. A nil field does nothing.
type Options struct {
	Scrub *scrub.Scrubber
	// Signature finds what the handshake was signed with, in what the upstream sends.
	Signature *scrub.Scrubber
	// Sent are the token names that this run sent, as in scrub.Options.
	Sent        []string
	Swap        *swap.Swapper
	SwapOptions swap.Options
	Redact      *redact.Redactor
	// MaxUp is the largest client message in bytes; it is held in memory. 0: 1 MiB.
	MaxUp int64
	// MaxDown is the largest upstream message in bytes; it streams. 0: 64 MiB.
	MaxDown int64
	// Held is the memory that a client's message of more than 64 KiB waits for. Nil means no bound.
	Held *membudget.Account
	// Report, if not nil, records what was done.
	Report *Report
}

const (
	defaultUp   = 1 << 20
	defaultDown = 64 << 20
	// smallUp is how many bytes of a client's message the relay holds before it takes memory from Options.Held.
	smallUp = 64 << 10
	// copies is how often a client's message is in memory at most: received, as text, swapped, and as a frame. Each is in
	// a buffer that may have grown by doubling.
	copies = 8
	// pieceSize is the largest payload in bytes of one frame to a client.
	pieceSize = 16 << 10
	// goodbye is how long a peer has to answer a close frame.
	goodbye = 5 * time.Second
)

var (
	// ErrTooBig ends a connection with a message over the bound.
	ErrTooBig = errors.New("websocket message is too big")
	// ErrProtocol ends a connection whose peer breaks RFC 6455 or uses an extension.
	ErrProtocol = errors.New("websocket peer broke the protocol")
)

// Offer removes all extensions from a client's handshake.
func Offer(h http.Header) { h.Del("Sec-Websocket-Extensions") }

// Agreed reports whether an upstream's 101 uses no extension, as it must after Offer.
func Agreed(h http.Header) bool { return len(h.Values("Sec-Websocket-Extensions")) == 0 }

// Report holds what was done. It may be read at any time.
type Report struct {
	mu                 sync.Mutex
	swapped            []swap.Swap
	seen               []swap.Seen
	scrubbed, redacted int
	up, down           int64
}

// Counts returns how many credentials were scrubbed and strings redacted, and the bytes of messages in each direction.
func (r *Report) Counts() (scrubbed, redacted int, up, down int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scrubbed, r.redacted, r.up, r.down
}

// Swapped lists each name that was swapped, once.
func (r *Report) Swapped() []swap.Swap {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.swapped)
}

// Seen lists each name that was seen and not swapped, once.
func (r *Report) Seen() []swap.Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// message records what was done to one message of the client.
func (r *Report) message(s *swap.Report, redacted, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.redacted += redacted
	r.up += int64(size)
	for _, x := range s.Swapped() {
		if !slices.Contains(r.swapped, x) {
			r.swapped = append(r.swapped, x)
		}
	}
	for _, x := range s.Seen() {
		if !slices.Contains(r.seen, x) && len(r.seen) < 64 {
			r.seen = append(r.seen, x)
		}
	}
}

func (r *Report) piece(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down += int64(n)
}

func (r *Report) scrub() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scrubbed++
}

// Relay passes messages until both ends have closed, one breaks off, or ctx is done, and closes both. Nil means that
// the connection was closed by the protocol. Both ends must be past a valid 101 without extensions.
func Relay(ctx context.Context, client, upstream io.ReadWriteCloser, o Options) error {
	if o.MaxUp == 0 {
		o.MaxUp = defaultUp
	}
	if o.MaxDown == 0 {
		o.MaxDown = defaultDown
	}
	if o.Report == nil {
		o.Report = &Report{}
	}
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	r := &relay{o: o, end: end, client: newPeer(client, false), upstream: newPeer(upstream, true), over: over}
	ends := make(chan error, 2)
	go func() { ends <- safely(func() error { return r.pump(r.client, r.upstream, r.up) }) }()
	go func() { ends <- safely(func() error { return r.pump(r.upstream, r.client, r.down) }) }()
	err := r.wait(ctx, ends)
	_, _ = client.Close(), upstream.Close()
	return err
}

// safely turns a panic into an error of this connection. It would otherwise end the process, because no handler
// recovers in this goroutine.
func safely(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = ErrProtocol
		}
	}()
	return f()
}

// relay is one connection.
type relay struct {
	o                Options
	client, upstream *peer
	over             context.Context // ends when one direction has
	end              context.CancelFunc
}

// wait waits for both pumps. After the first has ended it gives the second a moment, or none if the first failed. But
// what an upstream sent before it was gone is still passed on.
func (r *relay) wait(ctx context.Context, ends <-chan error) error {
	var first error
	select {
	case first = <-ends:
		r.end()
	case <-ctx.Done():
		r.end()
		first = ctx.Err()
		r.stop(closeGoingAway)
		<-ends //nolint:errcheck // the first error counts
	}
	ended := false // the second, too
	if first == nil || r.upstream.gone.Load() {
		timer := time.NewTimer(goodbye)
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
		r.stop(closeCode(first))
	}
	_, _ = r.client.rw.Close(), r.upstream.rw.Close()
	if !ended {
		<-ends //nolint:errcheck // the first error counts
	}
	return first
}

// stop sends both ends a close frame, without waiting for one that does not read.
func (r *relay) stop(code uint16) {
	timer := time.AfterFunc(goodbye/5, func() { _, _ = r.client.rw.Close(), r.upstream.rw.Close() })
	defer timer.Stop()
	r.client.bye(code)
	r.upstream.bye(code)
	_, _ = r.client.rw.Close(), r.upstream.rw.Close()
}

// closeCode returns the close code for an error.
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

// control passes on a control frame: its close code is kept, its text is cleaned like a message.
func (r *relay) control(from, to *peer, h head) error {
	payload := make([]byte, h.length)
	if err := from.read(payload, h, 0); err != nil {
		return err
	}
	code := 0
	if h.op == opClose && len(payload) > 0 {
		if code = 2; len(payload) < 2 || !validClose(binary.BigEndian.Uint16(payload)) {
			return ErrProtocol
		}
	}
	text, err := r.clean(from, string(payload[code:]))
	if err != nil {
		return err
	}
	if most := maxControl - code; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") // clients end a connection for half a character
	}
	return to.write(true, h.op, append(payload[:code], text...))
}

// validClose reports whether a close code may be on the wire (RFC 6455, 7.4).
func validClose(code uint16) bool {
	return code >= 1000 && code < 5000 && code != 1004 && code != 1005 && code != 1006 && code != 1015
}

// clean returns the text of a control frame without what must not pass.
func (r *relay) clean(from *peer, text string) (string, error) {
	if from == r.upstream {
		return r.o.Signature.String(r.o.Scrub.String(text)), nil
	}
	text, n := r.o.Redact.Replace(text)
	clean, report, err := r.o.Swap.Message(text, false, r.o.SwapOptions)
	r.o.Report.message(report, n, 0)
	return clean, err
}
