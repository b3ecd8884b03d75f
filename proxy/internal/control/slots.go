package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The bounds of the names in a cause, in bytes.
const (
	maxRunID = 64
	maxCall  = 1024
)

func (s *Control) serveRegister(r *http.Request) (any, error) {
	id, err := s.parseSlot(r)
	if err != nil {
		return nil, err
	}
	var reg proxyapi.Registration
	// Decode rejects a misspelled field, which would otherwise drop a restriction silently.
	if jsonread.Decode(r.Body, &reg) != nil {
		return nil, rpc.NewBadRequest("the body is not a registration")
	}
	rules := s.conf.Current().Rules
	c := rules.Catalog
	if reg.Install && rules.Registry == nil {
		return nil, rpc.NewBadRequest("install: neither PACKAGE_REGISTRY nor a config.json names a package registry")
	}
	// The APIs of a run are checked against the catalog in force, not against mcp-server's copy.
	for _, name := range reg.APIs {
		switch a := c.API(name); {
		case a != nil && a.Active && (a.Server != nil || !id.IsServer()):
		case a != nil && a.Active:
			return nil, rpc.NewBadRequest("apis: " + strconv.Quote(name) + " is not an MCP server")
		case reg.Closed && !id.IsServer():
			// The name is of its tenant's list. It opens nothing, and the tenant's other APIs stay usable.
		default:
			return nil, rpc.NewBadRequest("apis: no active API is called " + strconv.Quote(name))
		}
	}
	// Before BeginLease, so that the run cannot reach the database even once.
	dialguard.CloseDatabase(reg.Database)
	//defence:proxy-database
	dialguard.CloseDatabase(s.conf.Database.ResolvePostgres(r.Context()))
	_, err = s.conf.Leases.BeginLease(id, reg)
	return nil, err
}

func (s *Control) serveUnregister(r *http.Request) (any, error) {
	id, generation, err := s.parseLease(r)
	if err != nil {
		return nil, err
	}
	var sum proxyapi.Summary
	if err := json.NewDecoder(r.Body).Decode(&sum); err != nil && !errors.Is(err, io.EOF) {
		return nil, rpc.NewBadRequest("the body is not a summary")
	}
	// End seals the plan, so the reason has to come first.
	if l, err := s.conf.Leases.FindLease(id, generation); err == nil && l.Plan != nil {
		l.Plan.SetIncomplete(sum.WhyIncomplete())
	}
	rec, err := s.conf.Leases.EndLease(id, generation)
	if err != nil {
		return nil, err
	}
	s.recordRunEnd(id, sum, &rec)
	s.conf.Journal.PublishEvent(proxyapi.Event{Receipt: &rec})
	return rec, nil
}

// recordRunEnd records the end of a run. If the run sent a request, the caller gets the receipt only after the ledger
// is on disk.
func (s *Control) recordRunEnd(id slot.ID, sum proxyapi.Summary, rec *proxyapi.Receipt) {
	if s.conf.Ledger == nil || !proxyapi.IsRunID(rec.Run) {
		return
	}
	sum.Client = s.conf.Journal.CleanText(sum.Client)
	run := ledger.Run{
		Run: rec.Run, Tenant: rec.Tenant, Slot: int(id), Generation: rec.Generation, Summary: sum, Count: rec.Count,
	}
	if s.conf.Ledger.AppendRecord(ledger.Entry{Run: &run}) != nil || rec.Count.Exchanges == 0 {
		return // the ledger counts and logs a lost record
	}
	if head, err := s.conf.Ledger.WriteCheckpoint(rec.Run); err == nil {
		rec.Audit = head.String()
	}
}

// RecordLost records the end of a run whose receipt mcp-server did not fetch.
func (s *Control) RecordLost(id slot.ID, rec proxyapi.Receipt) {
	s.recordRunEnd(id, proxyapi.Summary{Outcome: proxyapi.OutcomeLost}, &rec)
}

// serveDrain answers with the exchanges of a slot so far. The slot's run continues.
func (s *Control) serveDrain(r *http.Request) (any, error) {
	id, generation, err := s.parseLease(r)
	if err != nil {
		return nil, err
	}
	cause, ok := parseCause(r.URL.Query())
	if !ok {
		return nil, rpc.NewBadRequest("run, call and among: want the run's id, SERVER.TOOL and a number")
	}
	rec, err := s.conf.Leases.DrainReceipt(id, generation, cause.Run)
	if err != nil {
		return nil, err
	}
	if cause != (proxyapi.Cause{}) && len(rec.Exchanges) > 0 {
		s.conf.Journal.PublishCaused(proxyapi.CausedRequests{Cause: cause, Exchanges: rec.Exchanges, Omitted: rec.Omitted})
	}
	return rec, nil
}

// serveSetCalls replaces the list of calls in progress at a server.
func (s *Control) serveSetCalls(r *http.Request) (any, error) {
	id, generation, err := s.parseLease(r)
	if err != nil {
		return nil, err
	}
	var calls proxyapi.ServerCalls
	if err := json.NewDecoder(r.Body).Decode(&calls); err != nil || slices.ContainsFunc(calls.Calls, isTooLong) {
		return nil, rpc.NewBadRequest("the body is not a list of calls")
	}
	return nil, s.conf.Leases.ReplaceCalls(id, generation, calls)
}

// parseCause parses ?run=, ?call= and ?among=. A request must have all three parameters, or omit all three.
func parseCause(q url.Values) (proxyapi.Cause, bool) {
	c := proxyapi.Cause{Run: q.Get("run"), Call: q.Get("call")}
	if !q.Has("run") && !q.Has("call") && !q.Has("among") {
		return c, true
	}
	var err error
	c.Among, err = strconv.Atoi(q.Get("among"))
	return c, err == nil && c.Among > 0 && c.Run != "" && len(c.Run) <= maxRunID && c.Call != "" && len(c.Call) <= maxCall
}

// parseLease parses {n} and ?generation=.
func (s *Control) parseLease(r *http.Request) (slot.ID, uint64, error) {
	id, err := s.parseSlot(r)
	if err != nil {
		return 0, 0, err
	}
	generation, err := strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64)
	if err != nil {
		return 0, 0, rpc.NewBadRequest("generation: want a number")
	}
	return id, generation, nil
}

// parseSlot returns the slot of a request. If pods share the proxy, ?pod= is the pod's address, {n} is the pod's number
// for its slot, and a registration assigns the slot.
func (s *Control) parseSlot(r *http.Request) (slot.ID, error) {
	n, err := strconv.Atoi(r.PathValue("n"))
	id := slot.ID(n)
	// Only the form that the client writes, such as 7 but not 07.
	if err != nil || !id.IsValid() || strconv.Itoa(n) != r.PathValue("n") {
		return 0, rpc.NewBadRequest("no such slot")
	}
	text := r.URL.Query()["pod"]
	if s.conf.Pods == nil && text == nil {
		return id, nil
	}
	if s.conf.Pods == nil || id != 0 || len(text) != 1 {
		return 0, rpc.NewBadRequest("pod: want one address with slot 0 if pods share the proxy, else no address")
	}
	pod, err := netip.ParseAddr(text[0])
	if err != nil || !pod.Is4() {
		return 0, rpc.NewBadRequest("pod: want an IPv4 address")
	}
	// Only a registration may take a slot: the others must not create one for an unknown pod.
	if r.Method == http.MethodPut {
		return s.conf.Pods.AssignSlot(pod)
	}
	id, ok := s.conf.Pods.FindSlot(pod)
	if !ok {
		return 0, fmt.Errorf("%w: the pod has no slot", proxyapi.ErrFenced)
	}
	return id, nil
}

// isTooLong reports whether a name in a call is longer than a cause allows.
func isTooLong(c proxyapi.ServerCall) bool { return len(c.Run) > maxRunID || len(c.Call) > maxCall }
