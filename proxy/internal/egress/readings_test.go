package egress_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/readings"
)

// wire is a proxy whose upstream keeps every request as it came, byte by byte. It takes one request at a time.
type wire struct {
	r    *rig
	left chan captured
	conn net.Conn // towards the proxy, as code holds it
	in   *bufio.Reader
	host string
}

// captured is what reached the upstream, whole or broken off.
type captured struct {
	bytes    []byte
	complete bool
}

func newWire(t testing.TB) *wire {
	apis := map[string]string{}
	for _, a := range readings.APIs() {
		apis[strings.ReplaceAll(a.Host, ".", "-")] = a.Config()
	}
	w := &wire{r: newRig(t, setup{apis: apis}), left: make(chan captured, 1)}
	w.r.upstreams.raw(func(c net.Conn) {
		for {
			var all bytes.Buffer
			in := bufio.NewReader(io.TeeReader(oneRequest{c}, &all))
			req, err := http.ReadRequest(in)
			if all.Len() == 0 {
				return
			}
			if err == nil {
				_, err = io.Copy(io.Discard, req.Body)
			}
			w.left <- captured{all.Bytes(), err == nil}
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				return
			}
		}
	})
	_, err := w.r.book.Begin(0, controlapi.Registration{Generation: 1, Run: "readings", Deadline: time.Now().Add(time.Hour)})
	check(t, err)
	t.Cleanup(func() {
		if w.conn != nil {
			w.conn.Close()
		}
	})
	return w
}

// oneRequest reads as much as there is. Since the proxy waits for the answer, that is never of the next request.
type oneRequest struct{ net.Conn }

// send has the proxy take one request to a host, and says what became of it.
func (w *wire) send(host string, request []byte) (readings.Outcome, error) {
	if w.conn == nil || w.host != host {
		w.hangUp()
		c, err := tls.Dial("tcp", w.r.https[0], &tls.Config{RootCAs: w.r.roots(), ServerName: host})
		if err != nil {
			return readings.Outcome{}, err
		}
		w.conn, w.in, w.host = c, bufio.NewReader(c), host
	}
	_ = w.conn.SetDeadline(time.Now().Add(20 * time.Second))
	written := make(chan struct{})
	go func() { defer close(written); _, _ = w.conn.Write(request) }()
	o, reuse, err := w.answer(request)
	if err != nil || !reuse {
		w.hangUp()
	}
	<-written
	return o, err
}

// answer reads the proxy's answer and takes what reached the upstream.
func (w *wire) answer(request []byte) (readings.Outcome, bool, error) {
	var o readings.Outcome
	method, _, _ := strings.Cut(string(request), " ")
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
			err = nil // it was broken off
		}
		o.Code = "connection closed"
		w.take(&o)
		return o, false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	o.Status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		var r controlapi.Refusal
		_ = json.Unmarshal(body, &r)
		o.Code = r.Code
	}
	w.take(&o)
	return o, err == nil && !resp.Close && resp.StatusCode == http.StatusOK, nil
}

// take gets what reached the upstream. A request that the proxy answered itself may have left in part.
func (w *wire) take(o *readings.Outcome) {
	wait := 10 * time.Second
	if o.Status != http.StatusOK {
		wait = time.Millisecond
		if o.Code == "connection closed" || o.Status >= 500 {
			wait = 100 * time.Millisecond
		}
	}
	select {
	case c := <-w.left:
		o.Left, o.Complete = c.bytes, c.complete
	case <-time.After(wait):
	}
}

func (w *wire) hangUp() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
	for {
		select {
		case <-w.left:
		default:
			return
		}
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// TestReadings has every peer read what is left of each case of the corpus.
func TestReadings(t *testing.T) {
	cases, err := readings.Corpus()
	check(t, err)
	peers := readings.StartPeers(t, "/tmp/np/node_modules")
	if len(peers.Missing) > 0 {
		t.Logf("missing: %v", peers.Missing)
	}
	w := newWire(t)
	for _, c := range cases {
		for _, a := range readings.APIs() {
			if a.Name == c.API {
				t.Run(c.Group+"/"+c.Name+"/"+a.Token, func(t *testing.T) { w.try(t, peers, c, a) })
			}
		}
	}
}

// try compares what all read of one case.
func (w *wire) try(t *testing.T, peers *readings.Peers, c readings.Case, a readings.API) {
	request := c.Request(a, a.Token)
	o, err := w.send(a.Host, request)
	check(t, err)
	t.Logf("%.600q\n-> %d %s, whole: %v, left: %.600q", request, o.Status, o.Code, o.Complete, o.Left)
	swapped := bytes.Contains(o.Left, []byte(readings.Mark))
	switch {
	case c.Want == "swap" && (!o.Complete || !swapped && a.Name != "header"):
		t.Error("WANT it was not swapped")
	case c.Want == "refuse" && o.Complete:
		t.Error("WANT it was not refused")
	}
	if o.Left == nil {
		return
	}
	read, err := peers.Ask(o.Left)
	check(t, err)
	for _, d := range readings.Judge(a, read) {
		t.Errorf("DIFF %v", d)
	}
}
