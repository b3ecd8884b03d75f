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

func (s *Control) serveRegister(w http.ResponseWriter, r *http.Request) {
	id, ok := s.parseSlot(w, r)
	if !ok {
		return
	}
	var reg proxyapi.Registration
	dec := json.NewDecoder(r.Body)
	// A misspelled field would otherwise drop a restriction silently.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&reg); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "the body is not a registration")
		return
	}
	if dec.More() {
		rpc.WriteError(w, http.StatusBadRequest, "the body holds more than a registration")
		return
	}
	rules := s.conf.Current().Rules
	c := rules.Catalog
	if reg.Install && rules.Registry == nil {
		rpc.WriteError(w, http.StatusBadRequest,
			"install: neither PACKAGE_REGISTRY nor a config.json names a package registry")
		return
	}
	// The APIs of a run are checked against the catalog in force, not against mcp-server's copy.
	for _, name := range reg.APIs {
		switch a := c.API(name); {
		case a != nil && a.Active && (a.Server != nil || !id.IsServer()):
		case a != nil && a.Active:
			rpc.WriteError(w, http.StatusBadRequest, "apis: "+strconv.Quote(name)+" is not an MCP server")
			return
		case reg.Closed && !id.IsServer():
			// The name is of its tenant's list. It opens nothing, and the tenant's other APIs stay usable.
		default:
			rpc.WriteError(w, http.StatusBadRequest, "apis: no active API is called "+strconv.Quote(name))
			return
		}
	}
	// Before BeginLease, so that the run cannot reach the database even once.
	dialguard.CloseDatabase(reg.Database)
	//defence:proxy-database
	dialguard.CloseDatabase(s.conf.Database.ResolvePostgres(r.Context()))
	if _, err := s.conf.Leases.BeginLease(id, reg); err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Control) serveUnregister(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.parseLease(w, r)
	if !ok {
		return
	}
	var sum proxyapi.Summary
	if err := json.NewDecoder(r.Body).Decode(&sum); err != nil && !errors.Is(err, io.EOF) {
		rpc.WriteError(w, http.StatusBadRequest, "the body is not a summary")
		return
	}
	// End seals the plan, so the reason has to come first.
	if l, err := s.conf.Leases.FindLease(id, generation); err == nil && l.Plan != nil {
		l.Plan.SetIncomplete(sum.WhyIncomplete())
	}
	rec, err := s.conf.Leases.EndLease(id, generation)
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	s.recordRunEnd(id, sum, &rec)
	s.conf.Journal.PublishEvent(proxyapi.Event{Receipt: &rec})
	rpc.WriteAnswer(w, http.StatusOK, rec)
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
func (s *Control) serveDrain(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.parseLease(w, r)
	if !ok {
		return
	}
	cause, ok := parseCause(r.URL.Query())
	if !ok {
		rpc.WriteError(w, http.StatusBadRequest, "run, call and among: want the run's id, SERVER.TOOL and a number")
		return
	}
	rec, err := s.conf.Leases.DrainReceipt(id, generation, cause.Run)
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	if cause != (proxyapi.Cause{}) && len(rec.Exchanges) > 0 {
		s.conf.Journal.PublishCaused(proxyapi.CausedRequests{Cause: cause, Exchanges: rec.Exchanges, Omitted: rec.Omitted})
	}
	rpc.WriteAnswer(w, http.StatusOK, rec)
}

// serveSetCalls replaces the list of calls in progress at a server.
func (s *Control) serveSetCalls(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.parseLease(w, r)
	if !ok {
		return
	}
	var calls proxyapi.ServerCalls
	if err := json.NewDecoder(r.Body).Decode(&calls); err != nil || slices.ContainsFunc(calls.Calls, isTooLong) {
		rpc.WriteError(w, http.StatusBadRequest, "the body is not a list of calls")
		return
	}
	if err := s.conf.Leases.ReplaceCalls(id, generation, calls); err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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

// parseLease parses {n} and ?generation=. On an error it answers the request and returns false.
func (s *Control) parseLease(w http.ResponseWriter, r *http.Request) (slot.ID, uint64, bool) {
	id, ok := s.parseSlot(w, r)
	if !ok {
		return 0, 0, false
	}
	generation, err := strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64)
	if err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "generation: want a number")
	}
	return id, generation, err == nil
}

// parseSlot returns the slot of a request. If pods share the proxy, ?pod= is the pod's address, {n} is the pod's number
// for its slot, and a registration assigns the slot. On an error it answers the request and returns false.
func (s *Control) parseSlot(w http.ResponseWriter, r *http.Request) (slot.ID, bool) {
	id, ok := parseSlotNumber(w, r)
	text := r.URL.Query()["pod"]
	if !ok || s.conf.Pods == nil && text == nil {
		return id, ok
	}
	if s.conf.Pods == nil || id != 0 || len(text) != 1 {
		rpc.WriteError(w, http.StatusBadRequest, "pod: want one address with slot 0 if pods share the proxy, else no address")
		return 0, false
	}
	pod, err := netip.ParseAddr(text[0])
	if err != nil || !pod.Is4() {
		rpc.WriteError(w, http.StatusBadRequest, "pod: want an IPv4 address")
		return 0, false
	}
	// Only a registration may take a slot: the others must not create one for an unknown pod.
	if r.Method == http.MethodPut {
		if id, err = s.conf.Pods.AssignSlot(pod); err != nil {
			rpc.WriteError(w, http.StatusServiceUnavailable, err.Error())
		}
		return id, err == nil
	}
	if id, ok = s.conf.Pods.FindSlot(pod); !ok {
		rpc.WriteRefusal(w, fmt.Errorf("%w: the pod has no slot", proxyapi.ErrFenced))
	}
	return id, ok
}

// parseSlotNumber parses {n}. It accepts only the form that the client writes, such as 7 but not 07.
func parseSlotNumber(w http.ResponseWriter, r *http.Request) (slot.ID, bool) {
	n, err := strconv.Atoi(r.PathValue("n"))
	id := slot.ID(n)
	if err != nil || !id.IsValid() || strconv.Itoa(n) != r.PathValue("n") {
		rpc.WriteError(w, http.StatusBadRequest, "no such slot")
		return 0, false
	}
	return id, true
}

// isTooLong reports whether a name in a call is longer than a cause allows.
func isTooLong(c proxyapi.ServerCall) bool { return len(c.Run) > maxRunID || len(c.Call) > maxCall }
