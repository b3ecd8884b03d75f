// Package control serves the control API of proxy/proxyapi on a unix socket.
//
// Threat: any process that reaches the socket can register runs. Contract: the socket is in a directory that only
// mcp-server shares, and no answer of this API contains a credential.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/podslots"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	maxBody  = 64 << 10
	keepTime = 10 * time.Second // between empty lines of the event stream
)

// Config holds the parts that a Control needs.
type Config struct {
	Leases  *lease.Table
	Journal *receipt.Journal
	Current func() *reload.Snapshot
	// Broker gets the connections of mcp-server's broker.
	Broker *brokerlink.Broker
	// Database is shared by several proxies, or nil. Code must not reach its address.
	Database *database.DB
	// Approvals holds the requests and the plans that wait for a person. Nil means that rules hold no requests, and that
	// there are no dry runs.
	Approvals *approval.Store
	// Hosts checks whether the proxy reaches the hosts of the catalog. CA is the certificate that the sandbox trusts, in
	// PEM.
	Hosts func(context.Context) []proxyapi.HostCheck
	CA    string
	// Ready returns nil while the proxy serves, else the reason why it does not.
	Ready func() error
	// Pods are the pods that share the proxy. Each has one slot, which it calls 0. With nil, slot numbers are the proxy's.
	Pods *podslots.PodSlots
	// Ledger may be nil.
	Ledger *ledger.Log
	// Profile adds /debug/pprof.
	Profile bool
}

// Control is the control API. Make one with New.
type Control struct {
	conf    Config
	mux     *http.ServeMux
	checked ledgerCheck
}

// New makes the API's handler.
func New(c Config) *Control {
	s := &Control{conf: c, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /v1/catalog", rpc.NewHandler(func(*http.Request) (any, error) {
		return s.conf.Current().Public, nil
	}))
	s.mux.HandleFunc("GET /v1/catalog/{api}/types",
		s.newDocumentHandler(func(a *catalog.API) *catalog.Document { return a.Types }))
	s.mux.HandleFunc("GET /v1/catalog/{api}/operations",
		s.newDocumentHandler(func(a *catalog.API) *catalog.Document { return a.OperationsFile }))
	s.mux.HandleFunc("GET /v1/inspection", rpc.NewHandler(func(*http.Request) (any, error) {
		return s.conf.Current().NewInspection(), nil
	}))
	s.mux.HandleFunc("GET /v1/diagnosis", rpc.NewHandler(s.serveDiagnosis))
	s.mux.HandleFunc("PUT /v1/slots/{n}", rpc.NewHandler(s.serveRegister))
	s.mux.HandleFunc("DELETE /v1/slots/{n}", rpc.NewHandler(s.serveUnregister))
	s.mux.HandleFunc("POST /v1/slots/{n}/drain", rpc.NewHandler(s.serveDrain))
	s.mux.HandleFunc("PUT /v1/slots/{n}/calls", rpc.NewHandler(s.serveSetCalls))
	s.mux.HandleFunc("GET /v1/broker", s.serveBroker)
	s.mux.HandleFunc("GET /v1/events", s.streamEvents)
	s.mux.HandleFunc("GET /v1/health", s.serveHealth)
	s.mux.HandleFunc("POST /v1/ledger/check", rpc.NewHandler(s.serveLedgerCheck))
	s.mux.HandleFunc("POST /v1/scrub", rpc.NewHandler(s.serveScrub))
	s.mux.HandleFunc("POST /v1/scrub/file", s.serveScrubFile)
	if c.Approvals != nil {
		s.mux.HandleFunc("GET /v1/slots/{n}/held", s.streamHeld)
		c.Approvals.AddRoutes(s.mux, approvalapi.ControlPaths, false)
	}
	s.mux.Handle("GET /metrics", c.Journal.Metrics().NewMetricsHandler())
	if c.Profile {
		s.mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		s.mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		s.mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v1/scrub") { // these handlers accept larger bodies
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	s.mux.ServeHTTP(w, r)
}

// Serve answers on the listener until ctx ends; then it returns nil.
func (s *Control) Serve(ctx context.Context, l net.Listener) error {
	if err := rpc.Serve(ctx, l, s); err != nil {
		return fmt.Errorf("serving the control API: %w", err)
	}
	return nil
}

// serveDiagnosis answers with a proxyapi.Diagnosis. With offline=true it checks no hosts.
func (s *Control) serveDiagnosis(r *http.Request) (any, error) {
	out := proxyapi.Diagnosis{CA: s.conf.CA}
	if r.URL.Query().Get("offline") != "true" {
		out.Hosts = s.conf.Hosts(r.Context())
	}
	return out, nil
}

// newDocumentHandler answers with a file of an active API.
func (s *Control) newDocumentHandler(of func(*catalog.API) *catalog.Document) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		snapshot := s.conf.Current()
		a := snapshot.Rules.Catalog.API(r.PathValue("api"))
		// Large files are read after the start. Wait for them: a 404 would be wrong.
		for a != nil && of(a).IsUnread() {
			select {
			case <-snapshot.Superseded:
			case <-r.Context().Done():
				return
			}
			snapshot = s.conf.Current()
			a = snapshot.Rules.Catalog.API(r.PathValue("api"))
		}
		if a == nil || !a.Active || of(a) == nil {
			rpc.WriteRefusal(w, fmt.Errorf("%w: no such API, or it has no such file", proxyapi.ErrNotFound))
			return
		}
		d := of(a)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Length", strconv.FormatInt(d.Size(), 10))
		text := d.Open()
		defer text.Close()
		_, _ = io.Copy(w, text) // an error means that the reader disconnected
	}
}

// serveBroker turns the connection into the connection to mcp-server's broker, until either end closes it.
func (s *Control) serveBroker(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != proxyapi.BrokerProtocol {
		rpc.WriteError(w, http.StatusUpgradeRequired, "Upgrade: want "+proxyapi.BrokerProtocol)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		rpc.WriteError(w, http.StatusInternalServerError, "the connection cannot be upgraded")
		return
	}
	defer conn.Close()
	if buffered.Reader.Buffered() > 0 { // the broker speaks only after the answer
		return
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		proxyapi.BrokerProtocol)
	if err == nil {
		_ = s.conf.Broker.Serve(r.Context(), conn) // mcp-server reconnects
	}
}

// streamEvents streams the events. It writes an empty line every keepTime, so that a write to a dead reader fails.
func (s *Control) streamEvents(w http.ResponseWriter, r *http.Request) {
	of := proxyapi.Events(r.URL.Query().Get("of"))
	switch of {
	case proxyapi.CatalogEvents, proxyapi.RequestEvents, proxyapi.AlarmEvents:
	default:
		rpc.WriteError(w, http.StatusBadRequest, "of: want catalog, requests or alarms")
		return
	}
	ch, cancel := s.conf.Journal.Subscribe(of)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	// Send the head at once: Subscribe returns with it, and the subscription already exists.
	if rc.Flush() != nil {
		return
	}
	keep := time.NewTicker(keepTime)
	defer keep.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-keep.C:
			_, err = io.WriteString(w, "\n")
		case e := <-ch:
			err = enc.Encode(e)
		}
		// Flush once for all events that are already queued.
		if err != nil || (len(ch) == 0 && rc.Flush() != nil) {
			return
		}
	}
}

func (s *Control) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := proxyapi.Health{Ready: true, Version: version.Version}
	status := http.StatusOK
	if err := s.conf.Ready(); err != nil {
		h.Ready, h.Problem, status = false, err.Error(), http.StatusServiceUnavailable
	}
	rpc.WriteAnswer(w, status, h)
}

// streamHeld streams the requests that a run waits for, one line for each change, until its lease or the reader ends.
func (s *Control) streamHeld(w http.ResponseWriter, r *http.Request) {
	var l *lease.Lease
	id, generation, err := s.parseLease(r)
	if err == nil {
		l, err = s.conf.Leases.FindLease(id, generation)
	}
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	for {
		// List and channel come from one lock, so a change between the two is not missed.
		list, changed := s.conf.Approvals.ListWaiting(l.Run)
		if enc.Encode(list) != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-l.Context().Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}
