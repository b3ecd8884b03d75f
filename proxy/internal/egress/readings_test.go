package egress_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// wire is a proxy whose upstream records the bytes of every request. It takes one request at a time.
type wire struct {
	r    *rig
	left chan captured
	conn net.Conn // to the proxy, as sandboxed code has it
	in   *bufio.Reader
	host string
}

// captured is what reached the upstream, complete or not.
type captured struct {
	bytes    []byte
	complete bool
}

func newWire(t testing.TB) *wire {
	apis := map[string]string{}
	for _, a := range APIs() {
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
	_, err := w.r.book.BeginLease(0, proxyapi.Registration{Generation: 1, Run: "readings", Deadline: time.Now().Add(time.Hour)})
	check(t, err)
	t.Cleanup(func() {
		if w.conn != nil {
			w.conn.Close()
		}
	})
	return w
}

// oneRequest reads as much as has arrived. Because the proxy waits for the answer, that never includes the next
// request.
type oneRequest struct{ net.Conn }

// send sends one request to a host through the proxy, and returns the outcome.
func (w *wire) send(host string, request []byte) (Outcome, error) {
	if w.conn == nil || w.host != host {
		w.hangUp()
		c, err := tls.Dial("tcp", w.r.https[0], &tls.Config{RootCAs: w.r.roots(), ServerName: host})
		if err != nil {
			return Outcome{}, err
		}
		w.conn, w.in, w.host = c, bufio.NewReader(c), host
	}
	_ = w.conn.SetDeadline(time.Now().Add(testkit.Patience))
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
func (w *wire) answer(request []byte) (Outcome, bool, error) {
	var o Outcome
	method, _, _ := strings.Cut(string(request), " ")
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
			err = nil // it was aborted
		}
		o.Code = "connection closed"
		w.take(&o)
		return o, false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	o.Status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		var r proxyapi.Refusal
		_ = json.Unmarshal(body, &r)
		o.Code = r.Code
	}
	w.take(&o)
	return o, err == nil && !resp.Close && resp.StatusCode == http.StatusOK, nil
}

// take gets what reached the upstream. A request that the proxy answered itself may have left in part.
func (w *wire) take(o *Outcome) {
	wait := testkit.Patience
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

// arena holds what a comparison needs: the peers, and proxies that each take one request at a time.
type arena struct {
	peers *Peers
	wires chan *wire
	apis  []API
	send  func(w *wire, host string, request []byte) (Outcome, error)
}

func newArena(t *testing.T) *arena {
	t.Helper()
	a := &arena{peers: StartPeers(t, Modules(t)), wires: make(chan *wire, 4), apis: APIs(), send: (*wire).send}
	if missing := a.peers.Missing; len(missing) > 0 {
		why := "no readings by " + strings.Join(missing, ", ")
		if testkit.NoSkip() {
			t.Fatal(why)
		}
		t.Log("SKIPPED: ", why)
	}
	for range cap(a.wires) {
		a.wires <- newWire(t)
	}
	return a
}

// finding is the outcome of a case.
type finding struct {
	outcome Outcome
	request []byte
	differ  []Disagreement
}

// compare sends a case through the proxy and lets the peers read what leaves.
func (a *arena) compare(c Case, api API) (finding, error) {
	w := <-a.wires
	defer func() { a.wires <- w }()
	f := finding{request: c.Request(api, api.Token)}
	var err error
	if f.outcome, err = a.send(w, api.Host, f.request); err != nil || f.outcome.Left == nil {
		return f, err
	}
	read, err := a.peers.Ask(f.outcome.Left)
	f.differ = slices.DeleteFunc(Judge(api, read), func(d Disagreement) bool {
		return slices.Contains(c.Differs, d.Reader)
	})
	return f, err
}

func (f finding) String() string {
	return fmt.Sprintf("request %.900q\nproxy: %d %s, whole: %v, left %.900q", f.request, f.outcome.Status, f.outcome.Code, f.outcome.Complete, f.outcome.Left)
}

// TestReadings lets every peer read what leaves of each case of the corpus: none finds a credential outside its field,
// nor a restricted method.
// Promise: read-as-real-servers-read
func TestReadings(t *testing.T) {
	cases, err := Corpus()
	check(t, err)
	a := newArena(t)
	for _, c := range cases {
		for _, api := range a.apis {
			if api.Name != c.API {
				continue
			}
			t.Run(c.Group+"/"+c.Name+"/"+api.Token, func(t *testing.T) {
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
}

// unwanted returns what is wrong with the outcome itself.
func (f finding) unwanted(want string, api API) string {
	o := f.outcome
	switch {
	case (want == "swap" || want == "pass") && !o.Complete:
		return "a request in order was refused"
	case want == "swap" && bytes.Contains(o.Left, []byte(api.Token)):
		return "the token name was not swapped"
	case want == "refuse" && o.Complete && !api.Free: // it may be for its method
		return "it was not refused"
	}
	return ""
}

// TestReadingsMutated does the same with mutated cases of the corpus. For other mutations than the default ones:
// -readings.seed=N -readings.mutations=N.
// Promise: read-as-real-servers-read
func TestReadingsMutated(t *testing.T) {
	cases, err := Corpus()
	check(t, err)
	cases = slices.DeleteFunc(cases, func(c Case) bool { return c.Size() > 1000 })
	a := newArena(t)
	rng := rand.New(rand.NewPCG(*seed, 0))
	var mu sync.Mutex
	left, seen := 0, map[string]int{}
	t.Run("all", func(t *testing.T) {
		for n := range *mutations {
			c := Mutate(rng, cases)
			api := a.of(c, n)
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				f, err := a.compare(c, api)
				if err != nil {
					t.Fatalf("%v in %v", err, f)
				}
				if len(f.differ) > 0 {
					t.Fail()
				}
				mu.Lock()
				defer mu.Unlock()
				if f.outcome.Complete {
					left++
				}
				for _, d := range f.differ {
					if key := d.Class + " " + d.Kind; seen[key] < 3 { // one mistake has many cases
						seen[key]++
						t.Errorf("%v\nfrom %s: %v", d, c.Name, a.smallest(c, api, d))
					}
				}
			})
		}
	})
	if left < *mutations/20 {
		t.Errorf("only %d of %d mutations left the proxy: they try nothing", left, *mutations)
	}
	t.Logf("%d of %d left the proxy", left, *mutations)
}

var (
	mutations = flag.Int("readings.mutations", testkit.ChooseRepeats(500, 2000), "how many mutations TestReadingsMutated tries")
	seed      = flag.Uint64("readings.seed", 1, "what TestReadingsMutated begins with")
)

// of returns the API that a case is for, with either value in turn.
func (a *arena) of(c Case, n int) API {
	var mine []API
	for _, api := range a.apis {
		if api.Name == c.API {
			mine = append(mine, api)
		}
	}
	return mine[n%len(mine)]
}

// smallest reduces a case to the least that has the same disagreement.
func (a *arena) smallest(c Case, api API, d Disagreement) finding {
	var last finding
	Minimise(c, 300, func(c Case) bool {
		f, err := a.compare(c, api)
		bad := err == nil && slices.ContainsFunc(f.differ, func(e Disagreement) bool {
			return e.Class == d.Class && e.Kind == d.Kind && e.Reader == d.Reader
		})
		if bad {
			last = f
		}
		return bad
	})
	if last.request == nil {
		last, _ = a.compare(c, api)
	}
	return last
}

// TestReadingsBite proves that the comparison can fail. The peers get the corpus as if a proxy had replaced every token
// name by the credential: each reader finds credentials where they belong, and each group has requests that mislead
// servers.
// Promise: read-as-real-servers-read
func TestReadingsBite(t *testing.T) {
	cases, err := Corpus()
	check(t, err)
	a := newArena(t)
	if len(a.peers.Missing) > 0 {
		testkit.SkipBecause(t, "every peer must be there")
	}
	found, fooled := map[[2]string]bool{}, map[[2]string]bool{}
	ask := func(c Case) {
		api := a.of(c, 0)
		got, err := a.peers.Ask(c.Request(api, api.Value))
		check(t, err)
		for _, r := range got {
			if r.Finds(api) {
				found[[2]string{r.Kind, r.Reader}] = true
			}
		}
		for _, d := range Judge(api, got) {
			fooled[[2]string{c.Group, d.Reader}] = true
		}
	}
	// Once a group has misled its readers, its other requests can only let a reader find a credential.
	var others []Case
	for _, c := range cases {
		switch {
		case c.Size() > 1000:
		case !slices.ContainsFunc(misled[c.Group], func(name string) bool { return !fooled[[2]string{c.Group, name}] }):
			others = append(others, c)
		default:
			ask(c)
		}
	}
	for _, c := range others {
		if len(Blind(found, fooled)) == 0 {
			break
		}
		ask(c)
	}
	for _, why := range Blind(found, fooled) {
		t.Error(why)
	}
}
