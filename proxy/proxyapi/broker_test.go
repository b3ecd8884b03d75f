package proxyapi

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestBrokerRefused: a client closes its connection if the proxy does not switch protocols.
func TestBrokerRefused(t *testing.T) {
	proxy, client := net.Pipe()
	_ = proxy.SetDeadline(time.Now().Add(10 * time.Second))
	read := make(chan error, 1)
	go func() {
		defer proxy.Close()
		if _, err := proxy.Read(make([]byte, 4096)); err != nil {
			read <- err
			return
		}
		_, _ = io.WriteString(proxy, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		_, err := proxy.Read(make([]byte, 1))
		read <- err
	}()
	c := NewClientOver(func(context.Context) (net.Conn, error) { return client, nil })
	if err := c.ServeBroker(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the connection: %v", err)
	}
}
