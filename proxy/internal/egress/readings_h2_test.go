package egress_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// sendHTTP2 is send over HTTP/2, frame by frame, so that no client library normalises a request.
func (w *wire) sendHTTP2(host string, request []byte) (Outcome, error) {
	w.hangUp()
	c, err := tls.Dial("tcp", w.r.https[0], &tls.Config{RootCAs: w.r.roots(), ServerName: host, NextProtos: []string{"h2"}})
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	head, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return Outcome{}, err
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: fields(host, string(head)), EndHeaders: true, EndStream: len(body) == 0,
	})
	for len(body) > 0 { // at most the initial window of every server
		n := min(len(body), 16<<10)
		_ = f.WriteData(1, n == len(body), body[:n])
		body = body[n:]
	}
	var o Outcome
	text, err := answerHTTP2(f, &o)
	if o.Status == 0 {
		o.Code = "stream closed"
	} else if o.Status != 200 {
		var r proxyapi.Refusal
		_ = json.Unmarshal(text, &r)
		o.Code = r.Code
	}
	w.take(&o)
	return o, err
}

// fields returns a request's head as a header block, without the headers of the connection.
func fields(host, head string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	line, rest, _ := strings.Cut(head, "\r\n")
	method, target, _ := strings.Cut(line, " ")
	for _, p := range [][2]string{
		{":method", method}, {":scheme", "https"}, {":authority", host}, {":path", strings.TrimSuffix(target, " HTTP/1.1")},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
	}
	for _, l := range strings.Split(rest, "\r\n") {
		name, value, ok := strings.Cut(l, ":")
		switch name = strings.ToLower(name); name {
		case "host", "connection", "transfer-encoding", "trailer":
			continue
		}
		if ok {
			_ = e.WriteField(hpack.HeaderField{Name: name, Value: strings.Trim(value, " \t")})
		}
	}
	return block.Bytes()
}

// answerHTTP2 reads the answer on stream 1.
func answerHTTP2(f *http2.Framer, o *Outcome) ([]byte, error) {
	var body []byte
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if isReset(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return body, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); !strings.HasPrefix(status, "1") {
				o.Status, _ = strconv.Atoi(status)
			}
			if frame.StreamEnded() {
				return body, nil
			}
		case *http2.DataFrame:
			body = append(body, frame.Data()...)
			if frame.StreamEnded() {
				return body, nil
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return body, nil
		}
	}
}

// TestReadingsHTTP2 is TestReadings over HTTP/2, where no HTTP/1 parser has checked the request before.
// Promise: read-as-real-servers-read
func TestReadingsHTTP2(t *testing.T) {
	cases, err := Corpus()
	check(t, err)
	a := newArena(t)
	a.send = (*wire).sendHTTP2
	for i, c := range cases {
		if c.Size() > 60<<10 {
			continue // more than the first window
		}
		api := a.of(c, i)
		t.Run(c.Group+"/"+c.Name, func(t *testing.T) {
			t.Parallel()
			f, err := a.compare(c, api)
			check(t, err)
			t.Log(f)
			if why := f.unwanted(c.Want, api); why != "" {
				t.Error(why)
			}
			for _, d := range f.differ {
				t.Error(d)
			}
		})
	}
}
