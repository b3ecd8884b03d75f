package egress_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// message is a gRPC message as in a body: not compressed, with its length.
func message(text string) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	return append(out, text...)
}

// nextMessage reads one message.
func nextMessage(r io.Reader) (string, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// grpcServer has one method of each kind, with a gRPC server's wire format (PROTOCOL-HTTP2.md of grpc).
func grpcServer(t *testing.T) http.Handler {
	begin := func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor != 2 || req.Header.Get("Te") != "trailers" || req.Header.Get("Content-Type") != "application/grpc" ||
			req.Header.Get("Authorization") != "Bearer "+secretValue || req.Header.Get("Grpc-Timeout") != "20S" {
			t.Errorf("the server saw %s %v", req.Proto, req.Header)
		}
		w.Header().Set("Content-Type", "application/grpc")
	}
	end := func(w http.ResponseWriter, status, text string) {
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /demo.Demo/Unary", func(w http.ResponseWriter, req *http.Request) {
		begin(w, req)
		text, err := nextMessage(req.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(message("got " + text))
		end(w, "0", "said by "+secretValue)
	})
	mux.HandleFunc("POST /demo.Demo/Stream", func(w http.ResponseWriter, req *http.Request) {
		begin(w, req)
		w.WriteHeader(http.StatusOK)
		for { // each answer waits for its question: a message that ends in a line feed is not held back
			_ = http.NewResponseController(w).Flush()
			text, err := nextMessage(req.Body)
			if err != nil {
				break
			}
			_, _ = w.Write(message("answer to " + text))
		}
		end(w, "0", "")
	})
	mux.HandleFunc("POST /demo.Demo/Echo", func(w http.ResponseWriter, req *http.Request) {
		begin(w, req)
		_, _ = w.Write(message(req.Header.Get("Authorization")))
		end(w, "0", "")
	})
	mux.HandleFunc("POST /demo.Demo/Refused", func(w http.ResponseWriter, req *http.Request) {
		begin(w, req)
		w.Header().Set("Grpc-Status", "7")
		w.Header().Set("Grpc-Message", "not with "+secretValue)
	})
	mux.HandleFunc("POST /demo.Demo/Broken", func(w http.ResponseWriter, req *http.Request) {
		begin(w, req)
		_, _ = w.Write(message("half of it"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	return mux
}

// grpcCall begins a call.
func (r *rig) grpcCall(method string, body io.Reader) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/demo.Demo/"+method, body)
	check(r.t, err)
	req.Header = http.Header{
		"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"20S"}, "Authorization": {"Bearer " + tokenName},
	}
	resp, err := r.client(true).Do(req)
	check(r.t, err)
	r.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || resp.Header.Get("Content-Type") != "application/grpc" {
		r.t.Fatalf("%s: %s %v", method, resp.Status, resp.Header)
	}
	return resp
}

// TestGRPC: calls pass over HTTP/2 on both sides with their trailers, and the credential is swapped in their metadata.
func TestGRPC(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, r *rig){
		"unary": func(t *testing.T, r *rig) {
			resp := r.grpcCall("Unary", bytes.NewReader(message("question")))
			text, err := nextMessage(resp.Body)
			if err != nil || text != "got question" {
				t.Errorf("got %q, %v", text, err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "said by "+tokenName {
				t.Errorf("trailers %v", resp.Trailer)
			}
		},
		"both ways at once": func(t *testing.T, r *rig) {
			out, in := io.Pipe()
			resp := r.grpcCall("Stream", out)
			for _, text := range []string{"one", "two", "three"} {
				_, err := in.Write(message(text + "\n"))
				check(t, err)
				if got, err := nextMessage(resp.Body); err != nil || got != "answer to "+text+"\n" {
					t.Errorf("got %q, %v", got, err)
				}
			}
			in.Close()
			if _, err := nextMessage(resp.Body); !errors.Is(err, io.EOF) || resp.Trailer.Get("Grpc-Status") != "0" {
				t.Errorf("the end: %v, trailers %v", err, resp.Trailer)
			}
		},
		"an echo in a message": func(t *testing.T, r *rig) {
			resp := r.grpcCall("Echo", http.NoBody)
			// The message is not as long as it says: broken, and nothing left.
			if text, _ := io.ReadAll(resp.Body); bytes.Contains(text, []byte(secretValue)) || !bytes.Contains(text, []byte(tokenName)) {
				t.Errorf("got %q", text)
			}
		},
		"an error without a body": func(t *testing.T, r *rig) {
			resp := r.grpcCall("Refused", http.NoBody)
			text := body(t, resp)
			if text != "" || resp.Header.Get("Grpc-Status") != "7" || resp.Header.Get("Grpc-Message") != "not with "+tokenName {
				t.Errorf("got %q, %v", text, resp.Header)
			}
		},
		"broken off": func(t *testing.T, r *rig) {
			resp := r.grpcCall("Broken", http.NoBody)
			if _, err := io.ReadAll(resp.Body); err == nil || resp.Trailer.Get("Grpc-Status") != "" {
				t.Errorf("a call that broke off looks whole: %v", resp.Trailer)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.upstreams.http2(grpcServer(t))
			end := r.begin()
			call(t, r)
			eventually(t, func() bool { return r.handler.InFlight() == 0 })
			rec := end()
			if rec.Count.Exchanges != 1 || rec.Count.Swapped != 1 || (rec.Exchanges[0].Outcome == proxyapi.OutcomeServed) != (name != "broken off") {
				t.Errorf("the receipt says %+v", rec)
			}
			if strings.Contains(r.logs.String(), secretValue) {
				t.Error("the log has the credential")
			}
		})
	}
}

// TestGRPCWithoutHTTP2: a server with HTTP/1 only cannot be called, and the refusal says so; nothing is sent.
func TestGRPCWithoutHTTP2(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	req, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/demo.Demo/Unary", bytes.NewReader(message("x")))
	check(t, err)
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Authorization": {"Bearer " + tokenName}}
	resp, err := r.client(true).Do(req)
	check(t, err)
	if got := refusal(t, resp); resp.StatusCode != http.StatusBadGateway || !strings.HasPrefix(got.Code, "upstream_") {
		t.Errorf("got %d %+v", resp.StatusCode, got)
	}
	if up.count() != 0 {
		t.Error("the request was sent")
	}
}

// TestGRPCKinds: only gRPC's own content types require HTTP/2. The server has HTTP/1 only.
func TestGRPCKinds(t *testing.T) {
	for kind, needs := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc+json": true, "application/grpc; charset=utf-8": true, "Application/gRPC": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/grpc-web-text": false, "application/proto": false, "": false,
	} {
		r := newRig(t, setup{})
		var up seen
		r.upstreams.https(up.echo())
		r.begin()
		req, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/demo.Demo/Unary", bytes.NewReader(message("x")))
		check(t, err)
		req.Header = http.Header{"Content-Type": {kind}}
		resp, err := r.client(true).Do(req)
		check(t, err)
		body(t, resp)
		if (resp.StatusCode == http.StatusBadGateway) != needs || (up.count() == 0) != needs {
			t.Errorf("%q: %d, %d requests arrived", kind, resp.StatusCode, up.count())
		}
	}
}

// pingPong exchanges small messages over one stream and returns how long the slowest answer took. It gives up after a
// while.
func pingPong(t *testing.T, r *rig, patience time.Duration) (slowest time.Duration, ok bool) {
	out, in := io.Pipe()
	defer in.Close()
	resp := r.grpcCall("Stream", out)
	for _, text := range []string{"ping", "a", "b"} {
		began := time.Now()
		go func() { _, _ = in.Write(message(text)) }()
		answer := make(chan string, 1)
		go func() {
			got, _ := nextMessage(resp.Body)
			answer <- got
		}()
		select {
		case got := <-answer:
			if got != "answer to "+text {
				t.Errorf("got %q", got)
			}
		case <-time.After(patience):
			return 0, false
		}
		slowest = max(slowest, time.Since(began))
	}
	return slowest, true
}

// TestMessageFraming: with "framing": "message", small messages go both ways at once. Without it they wait, and after
// two seconds the receipt names the setting.
// Promise: no-oracle
func TestMessageFraming(t *testing.T) {
	t.Run("with", func(t *testing.T) {
		r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "framing": "message"`)}, redact: []string{"a word that is redacted"}})
		r.upstreams.http2(grpcServer(t))
		end := r.begin()
		took, ok := pingPong(t, r, testkit.Patience)
		t.Logf("the slowest answer took %v", took)
		eventually(t, func() bool { return r.handler.InFlight() == 0 })
		if rec := end(); !ok || len(rec.Exchanges) != 1 || len(rec.Hints) > 0 {
			t.Errorf("%v, the receipt says %+v", ok, rec.Exchanges)
		}
	})
	t.Run("without", func(t *testing.T) {
		r := newRig(t, setup{})
		r.upstreams.http2(grpcServer(t))
		end := r.begin()
		if _, ok := pingPong(t, r, 3*time.Second); ok {
			t.Error("small messages were not held back")
		}
		rec := end()
		if len(rec.Exchanges) != 1 || !strings.Contains(fmt.Sprint(rec.Hints), `"framing": "message" in apis/demo/config.json`) {
			t.Errorf("the receipt says %+v", rec.Exchanges)
		}
	})
	t.Run("an answer that is held back", func(t *testing.T) {
		r := newRig(t, setup{})
		r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `[{"n":1}`)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(2200 * time.Millisecond)
			_, _ = io.WriteString(w, `]`)
		}))
		end := r.begin()
		_ = body(t, post(t, r.client(true), "https://"+demoHost+"/", "{}"))
		if rec := end(); len(rec.Exchanges) != 1 || !strings.Contains(fmt.Sprint(rec.Hints), `"framing"`) {
			t.Errorf("the receipt says %+v", rec.Exchanges)
		}
	})
	t.Run("an upstream that is slow", func(t *testing.T) {
		r := newRig(t, setup{})
		r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"list":[{"n":1}`)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(2200 * time.Millisecond)
			_, _ = io.WriteString(w, `]}`)
		}))
		end := r.begin()
		_ = body(t, post(t, r.client(true), "https://"+demoHost+"/", "{}"))
		if rec := end(); len(rec.Exchanges) != 1 || len(rec.Hints) > 0 {
			t.Errorf("the receipt says %+v", rec.Exchanges)
		}
	})
}

// splitKey answers with a credential in which one message ends and another one begins, and returns what code sees.
func splitKey(t *testing.T, r *rig, host string) string {
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+json")
		first := message("it begins: " + secretValue[:9])
		_, _ = w.Write(append(first, secretValue[9:]...))
	}))
	return body(t, post(t, r.client(true), "https://"+host+"/", "{}"))
}

// TestSplitOverMessages: by default a credential that continues in the next message is found. With "framing": "message"
// it is not, on a host all of whose APIs have that setting.
// Promise: no-oracle
func TestSplitOverMessages(t *testing.T) {
	with, without := demoAPI(`, "framing": "message"`), strings.ReplaceAll(demoAPI(""), tokenName, "ANOTHER_TOKEN")
	for name, c := range map[string]struct {
		apis  map[string]string
		found bool
	}{
		"default":           {map[string]string{"demo": demoAPI("")}, true},
		"set":               {map[string]string{"demo": with}, false},
		"set in one of two": {map[string]string{"demo": with, "more": without}, true},
	} {
		r := newRig(t, setup{apis: c.apis})
		end := r.begin()
		got := splitKey(t, r, demoHost)
		end()
		if strings.Contains(got, secretValue) == c.found {
			t.Errorf("%s: %q", name, got)
		}
	}
}
