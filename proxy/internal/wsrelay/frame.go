package wsrelay

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
)

// The opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// The close codes that this package sends (RFC 6455, section 7.4.1, and IANA's registry).
const (
	closeGoingAway = 1001
	closeProtocol  = 1002
	closePolicy    = 1008
	closeTooBig    = 1009
	closeTryLater  = 1013
)

// maxControl is the largest payload of a control frame, in bytes (RFC 6455, section 5.5).
const maxControl = 125

type frameHead struct {
	fin    bool
	op     byte
	length int64
	masked bool
	mask   [4]byte
}

func (h frameHead) isControl() bool { return h.op >= opClose }

// readHead reads the head of a frame. It rejects frames that RFC 6455 forbids without extensions.
func readHead(r *bufio.Reader, wantMask bool) (frameHead, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return frameHead{}, err
	}
	h := frameHead{fin: b[0]&0x80 != 0, op: b[0] & 15, masked: b[1]&0x80 != 0, length: int64(b[1] & 0x7F)}
	// A reserved bit belongs to an extension, such as compression, and the relay never agrees to one.
	reserved := b[0]&0x70 != 0 || h.op > opPong || h.op > opBinary && h.op < opClose
	if reserved || h.masked != wantMask || h.isControl() && (!h.fin || h.length > maxControl) {
		return frameHead{}, ErrProtocol
	}
	size := 0
	switch h.length {
	case 126:
		size = 2
	case 127:
		size = 8
	}
	if size > 0 {
		if err := readFull(r, b[8-size:]); err != nil {
			return frameHead{}, err
		}
		clear(b[:8-size])
		h.length = int64(binary.BigEndian.Uint64(b[:]))
		// RFC 6455, section 5.2: a length uses the fewest bytes. Another form could be read differently by the peer.
		if h.length < 0 || h.length < 126 || size == 8 && h.length < 1<<16 {
			return frameHead{}, ErrProtocol
		}
	}
	if h.masked {
		return h, readFull(r, h.mask[:])
	}
	return h, nil
}

// readFull reads all of p. An earlier end is io.ErrUnexpectedEOF.
func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// applyMask applies a mask. at is the position of p in the payload.
func applyMask(p []byte, mask [4]byte, at int64) {
	for i := range p {
		p[i] ^= mask[(at+int64(i))&3]
	}
}

// peer is one end of the relay.
type peer struct {
	rw     io.ReadWriteCloser
	in     *bufio.Reader
	server bool        // it receives masked frames and sends unmasked ones
	gone   atomic.Bool // writing failed

	mu     sync.Mutex
	out    []byte
	closed bool // a close frame was written, so no frame may follow
}

func newPeer(rw io.ReadWriteCloser, server bool) *peer {
	return &peer{rw: rw, in: bufio.NewReaderSize(rw, 8<<10), server: server}
}

// writeFrame sends one frame. After a close frame it sends no further frame.
func (p *peer) writeFrame(fin bool, op byte, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	// RFC 6455, section 5.5.1: no frame follows a close frame.
	p.closed = op == opClose
	b := append(p.out[:0], op)
	if fin {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	if !p.server {
		b = append(b, payload...)
	} else {
		b[1] |= 0x80
		var mask [4]byte
		// RFC 6455, section 5.3: each frame needs a fresh, unpredictable mask.
		_, _ = rand.Read(mask[:]) // never fails
		b = append(append(b, mask[:]...), payload...)
		applyMask(b[len(b)-len(payload):], mask, 0)
	}
	// Keep the buffer for the next frame, but not one of a large message.
	if cap(b) <= 2*pieceSize {
		p.out = b
	}
	_, err := p.rw.Write(b)
	if err != nil {
		p.gone.Store(true)
	}
	return err
}

// sendClose sends a close frame with a code of this package.
func (p *peer) sendClose(code uint16) {
	_ = p.writeFrame(true, opClose, binary.BigEndian.AppendUint16(nil, code))
}

// readPayload reads payload bytes of a frame. at is the position of b in the payload.
func (p *peer) readPayload(b []byte, h frameHead, at int64) error {
	if err := readFull(p.in, b); err != nil {
		return err
	}
	if h.masked {
		applyMask(b, h.mask, at)
	}
	return nil
}
