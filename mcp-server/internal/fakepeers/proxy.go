package fakepeers

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// FakeProxy is a substitute for egress-proxy, with its control API only.
type FakeProxy struct {
	// Socket is the path on which it listens.
	Socket string
	// Receipt returns the receipt of a run. Nil means an empty one.
	Receipt func(proxyapi.Registration) proxyapi.Receipt
	// Subscribing is called before a subscription to the events begins, if set.
	Subscribing func()
	// Registering, if set, is called before the proxy reads a registration.
	Registering func()
	// Types and Operations are the texts of types.d.ts and operations.jsonl, by API.
	Types, Operations map[string]string

	tb     testing.TB
	server *http.Server

	mu          sync.Mutex
	catalog     proxyapi.Catalog
	version     int
	registered  map[slot.ID]proxyapi.Registration
	newest      map[slot.ID]uint64
	subscribers map[chan proxyapi.Event]bool
	journal     []string
	seen        []proxyapi.Registration
}

// NewProxy starts a Proxy that publishes the APIs. It ends with the test.
func NewProxy(tb testing.TB, apis ...proxyapi.API) *FakeProxy {
	tb.Helper()
	dir, err := os.MkdirTemp("", "prx")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &FakeProxy{
		tb: tb, Socket: filepath.Join(dir, "s"), Types: map[string]string{}, Operations: map[string]string{},
		registered: map[slot.ID]proxyapi.Registration{}, newest: map[slot.ID]uint64{},
		subscribers: map[chan proxyapi.Event]bool{},
	}
	p.SetCatalog(proxyapi.Catalog{APIs: apis})
	p.Start()
	tb.Cleanup(p.Stop)
	return p
}

// Start listens, even after Stop.
func (p *FakeProxy) Start() {
	p.tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", p.Socket)
	if err != nil {
		p.tb.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/catalog", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		rpc.WriteAnswer(w, http.StatusOK, p.catalog)
	})
	for name, texts := range map[string]map[string]string{"types": p.Types, "operations": p.Operations} {
		mux.HandleFunc("GET /v1/catalog/{api}/"+name, func(w http.ResponseWriter, r *http.Request) {
			text, ok := texts[r.PathValue("api")]
			if !ok {
				rpc.WriteRefusal(w, proxyapi.ErrNotFound)
				return
			}
			_, _ = w.Write([]byte(text))
		})
	}
	mux.HandleFunc("PUT /v1/slots/{n}", p.handleRegister)
	mux.HandleFunc("DELETE /v1/slots/{n}", p.handleUnregister)
	mux.HandleFunc("PUT /v1/slots/{n}/calls", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	for _, path := range []string{"/v1/scrub", "/v1/scrub/file"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			texts, _ := io.ReadAll(r.Body) // this proxy has no credential to replace
			_, _ = w.Write(texts)
		})
	}
	mux.HandleFunc("GET /v1/events", p.handleEvents)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("codeforge_proxy_up 1\n"))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	p.server = server
	go func() { _ = server.Serve(l) }()
}

// Stop closes it at once.
func (p *FakeProxy) Stop() { _ = p.server.Close() }

// SetCatalog publishes another catalog.
func (p *FakeProxy) SetCatalog(c proxyapi.Catalog) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	c.Version = "v" + strconv.Itoa(p.version)
	p.catalog = c
	p.sendEvent(proxyapi.Event{Catalog: c.Version})
}

// PublishEvent sends an event to every present subscriber.
func (p *FakeProxy) PublishEvent(e proxyapi.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendEvent(e)
}

func (p *FakeProxy) sendEvent(e proxyapi.Event) {
	for s := range p.subscribers {
		s <- e
	}
}

// CountRegistered returns the number of registered runs.
func (p *FakeProxy) CountRegistered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.registered)
}

// ListRegistrations lists all registrations so far.
func (p *FakeProxy) ListRegistrations() []proxyapi.Registration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]proxyapi.Registration(nil), p.seen...)
}

// Journal lists the requests so far: "register 1", "unregister 1".
func (p *FakeProxy) Journal() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.journal...)
}

// ForgetAll empties the journal and the list of registrations.
func (p *FakeProxy) ForgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal, p.seen = nil, nil
}

func (p *FakeProxy) handleRegister(w http.ResponseWriter, r *http.Request) {
	if p.Registering != nil {
		p.Registering()
	}
	n, _ := strconv.Atoi(r.PathValue("n"))
	var reg proxyapi.Registration
	if err := json.NewDecoder(r.Body).Decode(&reg); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if reg.Generation <= p.newest[slot.ID(n)] {
		rpc.WriteRefusal(w, proxyapi.ErrFenced)
		return
	}
	p.newest[slot.ID(n)] = reg.Generation
	p.registered[slot.ID(n)] = reg
	p.seen = append(p.seen, reg)
	p.journal = append(p.journal, "register "+strconv.FormatUint(reg.Generation, 10))
	w.WriteHeader(http.StatusNoContent)
}

func (p *FakeProxy) handleUnregister(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.PathValue("n"))
	g, _ := strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	reg, ok := p.registered[slot.ID(n)]
	if !ok || reg.Generation != g {
		rpc.WriteRefusal(w, proxyapi.ErrFenced)
		return
	}
	delete(p.registered, slot.ID(n))
	p.journal = append(p.journal, "unregister "+strconv.FormatUint(g, 10))
	receipt := proxyapi.Receipt{}
	if p.Receipt != nil {
		receipt = p.Receipt(reg)
	}
	receipt.Run, receipt.Generation = reg.Run, reg.Generation
	rpc.WriteAnswer(w, http.StatusOK, receipt)
}

func (p *FakeProxy) handleEvents(w http.ResponseWriter, r *http.Request) {
	if p.Subscribing != nil {
		p.Subscribing()
	}
	s := make(chan proxyapi.Event, 100)
	p.mu.Lock()
	p.subscribers[s] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.subscribers, s)
		p.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-s:
			_ = json.NewEncoder(w).Encode(e)
			_ = http.NewResponseController(w).Flush()
		}
	}
}
