package upstream

import (
	"bytes"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Seen is one request as the upstream received it, credential included. A test compares it with what the sandbox saw.
type Seen struct {
	At time.Time `json:"at"`
	// Trial is the request's t parameter: tests mark their requests with it.
	Trial string `json:"trial"`
	// Name is the server name of the TLS handshake, empty over plain HTTP.
	Name string `json:"name"`
	// Local is the upstream's address that the connection came to.
	Local  string      `json:"local"`
	Host   string      `json:"host"`
	Proto  string      `json:"proto"`
	Method string      `json:"method"`
	Target string      `json:"target"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// Wire is one connection as the upstream received it, decrypted, including bytes that are not an HTTP request.
type Wire struct {
	Name  string `json:"name"`
	Local string `json:"local"`
	TLS   bool   `json:"tls"`
	Error string `json:"error,omitempty"` // why the handshake failed
	Bytes []byte `json:"bytes"`
}

// Bounds of the record, so that a flood does not fill the memory. Beyond MaxSeen requests are not recorded.
const (
	MaxSeen     = 20000
	maxOfTrial  = 400 // so that a flood of one trial does not hide requests of another
	maxWires    = 4000
	maxWireHead = 64 << 10
	maxSeenBody = 1 << 20
)

// record keeps what came in. Its zero value is empty.
type record struct {
	mu      sync.Mutex
	seen    []Seen
	ofTrial map[string]int
	wires   []*wire
}

type wire struct {
	mu sync.Mutex
	w  Wire
}

func (r *record) add(s Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == MaxSeen || s.Trial != "" && r.ofTrial[s.Trial] == maxOfTrial {
		return
	}
	if r.ofTrial == nil {
		r.ofTrial = map[string]int{}
	}
	r.ofTrial[s.Trial]++
	r.seen = append(r.seen, s)
}

func (r *record) connection(c net.Conn, name string, isTLS bool, err error) *wire {
	w := &wire{w: Wire{Name: name, TLS: isTLS, Local: c.LocalAddr().String()}}
	if err != nil {
		w.w.Error = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wires) < maxWires {
		r.wires = append(r.wires, w)
	}
	return w
}

// has reports whether a request belongs to a trial. A hostile request may have its mark anywhere.
func (s Seen) has(trial string) bool {
	if s.Trial == trial || strings.Contains(s.Target, trial) || bytes.Contains(s.Body, []byte(trial)) {
		return true
	}
	for _, values := range s.Header {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, trial) }) {
			return true
		}
	}
	return false
}

// Seen lists the requests of one trial, or all of them when trial is empty.
func (r *record) Seen(trial string) []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Seen{}
	for _, s := range r.seen {
		if trial == "" || s.has(trial) {
			out = append(out, s)
		}
	}
	return out
}

// Wires lists the connections made under a server name (of TLS) or, when name is empty, all.
func (r *record) Wires(name string) []Wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Wire{}
	for _, w := range r.wires {
		w.mu.Lock()
		if name == "" || w.w.Name == name {
			c := w.w
			c.Bytes = append([]byte(nil), w.w.Bytes...)
			out = append(out, c)
		}
		w.mu.Unlock()
	}
	return out
}

// Forget drops the record.
func (r *record) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.ofTrial, r.wires = nil, nil, nil
}

// recordedConn copies what it reads into the record.
type recordedConn struct {
	net.Conn
	wire *wire
}

// Read reads and records.
func (c *recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mu.Lock()
	if room := maxWireHead - len(c.wire.w.Bytes); room > 0 {
		c.wire.w.Bytes = append(c.wire.w.Bytes, p[:min(n, room)]...)
	}
	c.wire.mu.Unlock()
	return n, err
}
