package shim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/moby/moby/client"
)

// lingerTime is how long an exec may still write after the end of its stdin.
const lingerTime = 5 * time.Second

// upgraded is the response to a start, before the stream.
const upgraded = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n" +
	"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

// startExec starts an exec of this shim, and joins the caller's connection with its streams until one side ends.
func (s *Server) startExec(ctx context.Context, w http.ResponseWriter, r *http.Request, id string, body []byte) error {
	if err := checkStart(body); err != nil {
		return answerError(w, newRefusal("%v", err))
	}
	// The stream needs the raw connection, which only an upgrade gives.
	if r.Header.Get("Upgrade") != "tcp" || r.Header.Get("Connection") != "Upgrade" {
		return answerError(w, newRefusal("an exec must be started with Upgrade: tcp"))
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return answerError(w, newRefusal("%d streams are open already", maxStreams))
	}
	// Each exec starts once, so a second caller cannot join its streams.
	if !s.ids.takeID(id) {
		return answerError(w, newRefusal("the exec was not created here, or was already started"))
	}
	s.relays.Add(1)
	defer s.relays.Done()
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return answerError(w, fmt.Errorf("taking over the connection: %w", err))
	}
	defer conn.Close()
	// The attach must not hold the connection forever.
	if err := conn.SetDeadline(time.Now().Add(2 * askTimeout)); err != nil {
		return err
	}
	// Such bytes came before the engine had accepted the start; they could be a hidden second request.
	if buf.Reader.Buffered() > 0 {
		return writeError(conn, newRefusal("the request must not be followed by anything before its response"))
	}
	stream, err := s.engine.ExecAttach(ctx, id, client.ExecAttachOptions{})
	if err != nil {
		return writeError(conn, err)
	}
	defer stream.Close()
	if _, err := io.WriteString(conn, upgraded); err != nil {
		return fmt.Errorf("answering the start: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	joinStreams(r.Context(), conn, stream.HijackedResponse)
	return nil
}

// writeError answers on a connection that was already taken over, and returns err.
func writeError(conn net.Conn, err error) error {
	text := messageOf(err)
	resp := http.Response{
		StatusCode: statusOf(err), ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header:        http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(bytes.NewReader(text)),
	}
	w := bufio.NewWriter(conn)
	return errors.Join(err, resp.Write(w), w.Flush())
}

// joinStreams copies in both directions until the exec's output ends, the caller disconnects, or ctx ends. If the
// caller closes the connection, even only for writing, the exec's stdin ends, and sandboxd kills the runs of the
// stream.
func joinStreams(ctx context.Context, conn net.Conn, stream client.HijackedResponse) {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		stream.Close()
	})
	defer stop()
	inputDone := make(chan struct{})
	go func() {
		defer close(inputDone)
		_, _ = io.Copy(stream.Conn, conn)
		_ = stream.CloseWrite()
		// An exec that ignores the end of its stdin must not hold the stream.
		_ = stream.Conn.SetReadDeadline(time.Now().Add(lingerTime))
	}()
	_, _ = io.Copy(conn, stream.Reader)
	_ = conn.Close()
	stream.Close()
	<-inputDone
}
