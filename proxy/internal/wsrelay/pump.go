package wsrelay

import (
	"bytes"
	"io"
)

// pumpFrames reads frames from one peer until it has passed on a close frame. It calls pass for each message.
func (r *relay) pumpFrames(from, to *peer, pass func(*message) error) error {
	for {
		h, err := readHead(from.in, !from.server)
		if err != nil {
			return err
		}
		if h.isControl() {
			if err := r.passControl(from, to, h); err != nil || h.op == opClose {
				return err
			}
			continue
		}
		// A message cannot begin with a continuation (RFC 6455, section 5.4).
		if h.op == opContinuation {
			return ErrProtocol
		}
		limit := r.o.MaxUp
		if from.server {
			limit = r.o.MaxDown
		}
		m := &message{r: r, from: from, to: to, head: h, op: h.op, left: limit}
		if err := pass(m); err != nil {
			return err
		}
	}
}

// message reads the payload of one message across its frames. It passes on control frames between them at once.
type message struct {
	r        *relay
	from, to *peer
	head     frameHead
	at       int64 // bytes read of the current frame
	op       byte
	left     int64 // the number of bytes that the message may still have
	err      error
}

// Read returns io.EOF together with the last byte, so that the caller knows the end as soon as it has arrived.
func (m *message) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	for m.at == m.head.length {
		if m.head.fin {
			m.err = io.EOF
			return 0, m.err
		}
		if m.err = m.nextFrame(); m.err != nil {
			return 0, m.err
		}
	}
	// The announced length is enough to refuse: no byte over the limit is read.
	if m.head.length-m.at > m.left {
		m.err = ErrTooBig
		return 0, m.err
	}
	p = p[:min(int64(len(p)), m.head.length-m.at)]
	n, err := m.from.in.Read(p)
	if m.head.masked {
		applyMask(p[:n], m.head.mask, m.at)
	}
	m.at += int64(n)
	m.left -= int64(n)
	switch {
	case err == io.EOF:
		m.err = io.ErrUnexpectedEOF
	case err != nil:
		m.err = err
	case m.at == m.head.length && m.head.fin:
		m.err = io.EOF
	}
	return n, m.err
}

// nextFrame reads the head of the next frame of the message.
func (m *message) nextFrame() error {
	for {
		h, err := readHead(m.from.in, !m.from.server)
		// relayUp and relayDown take io.EOF for the end of a message, but its last frame is missing.
		if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if !h.isControl() {
			// RFC 6455, section 5.4: without an extension, two messages must not be interleaved.
			if h.op != opContinuation {
				return ErrProtocol
			}
			m.head, m.at = h, 0
			return nil
		}
		if err := m.r.passControl(m.from, m.to, h); err != nil {
			return err
		}
		// RFC 6455, section 5.5.1: no data follows a close frame, so this message stays incomplete.
		if h.op == opClose {
			return io.ErrUnexpectedEOF
		}
	}
}

// relayUp passes on a whole message of the client. It redacts the message, refuses it if it contains a credential's
// value, and swaps token names in text.
func (r *relay) relayUp(m *message) error {
	var buf bytes.Buffer
	_, err := io.CopyN(&buf, m, smallUp)
	if err == nil {
		// The final size is unknown, so take the memory for the largest message at once.
		size := bufferCopies * r.o.MaxUp
		// Stop waiting for memory if the other direction has ended. Other messages may wait for this message's memory.
		if err := r.o.Held.WaitAndTake(r.over, size); err != nil {
			return err
		}
		defer r.o.Held.GiveBack(size)
	}
	if err == nil {
		_, err = buf.ReadFrom(m)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		return err
	}
	text, n := r.o.Redact.ReplaceAndCount(buf.String())
	// Names are swapped only in text; binary messages are only searched.
	text, report, err := r.o.Swap.SwapMessage(text, m.op == opText, r.o.SwapOptions)
	r.o.Report.addMessage(report, n, len(text))
	if err != nil {
		return err
	}
	return m.to.writeFrame(true, m.op, []byte(text))
}

// relayDown passes on a message of the upstream as it arrives, scrubbed.
func (r *relay) relayDown(m *message) error {
	scrubbed := r.o.Scrub.NewReader(m, r.o.Sent, r.o.Report.countScrub)
	defer scrubbed.Stop()
	body := r.o.Signature.NewReader(scrubbed, nil, r.o.Report.countScrub)
	defer body.Stop()
	// Two buffers: the relay reads the next piece before it sends this one, to know whether this one is the last.
	var pieces [2][pieceSize]byte
	op := m.op
	n, err := body.Read(pieces[0][:])
	for i := 0; ; i ^= 1 {
		// A failed read ends the message before its last frame, so the client never takes it for complete.
		if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			return err
		}
		next := 0
		// The whole message has arrived, so the next read does not block. It shows whether this piece is the last.
		if m.err == io.EOF && err == nil { //nolint:errorlint // an io.Reader ends with this value itself
			next, err = body.Read(pieces[i^1][:])
			if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
				return err
			}
		}
		r.o.Report.addPiece(n)
		fin := err == io.EOF && next == 0 //nolint:errorlint // an io.Reader ends with this value itself
		if werr := m.to.writeFrame(fin, op, pieces[i][:n]); werr != nil || fin {
			return werr
		}
		op = opContinuation
		if n = next; next == 0 {
			n, err = body.Read(pieces[i^1][:])
		}
	}
}
