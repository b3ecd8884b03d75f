package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxOpenRuns bounds the runs without an end that ExportOTLP holds in memory.
const maxOpenRuns = 1000

// ExportOTLP writes each run with its requests as a trace: one line of OTLP JSON, which a collector's otlpjsonfile
// receiver and its /v1/traces accept. Requests of MCP servers and installations are separate traces. The traces contain
// only data of the ledger: names, hosts, sizes and times.
//
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
func ExportOTLP(src Source, q Query, w io.Writer) error {
	enc := json.NewEncoder(w)
	open := map[string][]Record{}
	err := EachRecord(src, q, func(r Record) error {
		run := r.RunID()
		switch {
		case r.Exchange != nil && proxyapi.IsRunID(run) && run != "" && len(open) < maxOpenRuns:
			open[run] = append(open[run], r)
		case r.Exchange != nil:
			return enc.Encode(newTrace(r.At, nil, []Record{r}))
		case r.Run != nil:
			sent := open[run]
			delete(open, run)
			return enc.Encode(newTrace(r.At, r.Run, sent))
		}
		return nil
	})
	for _, sent := range open { // runs in progress, or cut off
		if err == nil {
			err = enc.Encode(newTrace(sent[len(sent)-1].At, nil, sent))
		}
	}
	return err
}

// object is a JSON object of OTLP.
type object = map[string]any

// The kinds of spans, and the status code of an error.
const (
	kindInternal = 1
	kindClient   = 3
	statusError  = 2
)

func textAttribute(key, value string) object {
	return object{"key": key, "value": object{"stringValue": value}}
}

func numberAttribute(key string, value int64) object {
	return object{"key": key, "value": object{"intValue": strconv.FormatInt(value, 10)}}
}

// newTrace returns a run with its requests, or only the requests if run is nil.
func newTrace(at time.Time, run *Run, sent []Record) object {
	id, parent, root := traceIDs(run, sent)
	var spans []object
	if run != nil {
		began := at.Add(-toDuration(run.Milliseconds))
		for _, r := range sent { // a run must begin before its requests
			if r.Exchange.At.Before(began) {
				began = r.Exchange.At
			}
		}
		spans = append(spans, newSpan(id, root, parent, object{
			"name": "execute_code", "kind": kindInternal,
			"attributes": []object{
				textAttribute("codeforge.run", run.Run), textAttribute("codeforge.language", run.Language),
				textAttribute("codeforge.outcome", run.Outcome),
				textAttribute("codeforge.code.sha256", run.CodeSHA256), textAttribute("codeforge.client", run.Client),
				numberAttribute("codeforge.exit_code", int64(run.ExitCode)),
				numberAttribute("codeforge.exchanges", int64(run.Count.Exchanges)),
			},
		}, began, at, run.ExitCode != 0))
	} else {
		root = parent
	}
	for _, r := range sent {
		spans = append(spans, newRequestSpan(id, root, r))
	}
	return object{"resourceSpans": []object{{
		"resource":   object{"attributes": []object{textAttribute("service.name", "codeforge")}},
		"scopeSpans": []object{{"scope": object{"name": "codeforge/audit"}, "spans": spans}},
	}}}
}

// newSpan completes a span with its ids, its time and its status. parent may be empty.
func newSpan(trace, id, parent string, span object, began, ended time.Time, isFailed bool) object {
	span["traceId"], span["spanId"], span["status"] = trace, id, object{}
	span["startTimeUnixNano"], span["endTimeUnixNano"] = formatNano(began), formatNano(ended)
	if parent != "" {
		span["parentSpanId"] = parent
	}
	if isFailed {
		span["status"] = object{"code": statusError}
	}
	return span
}

// newRequestSpan returns the span of a request. Its attributes follow OpenTelemetry's conventions for HTTP.
func newRequestSpan(trace, parent string, r Record) object {
	x := r.Exchange
	name := x.Method + " " + x.Host
	if call := x.CalledTool(); call != "" {
		name = "call " + call
	}
	attributes := []object{
		textAttribute("http.request.method", x.Method), textAttribute("url.full", x.URL),
		textAttribute("server.address", x.Host),
		numberAttribute("http.response.status_code", int64(x.Status)), numberAttribute("http.request.body.size", x.BytesUp),
		numberAttribute("http.response.body.size", x.BytesDown), textAttribute("codeforge.outcome", x.Outcome),
		numberAttribute("codeforge.record", r.N),
	}
	if x.Code != "" {
		attributes = append(attributes, textAttribute("error.type", x.Code))
	}
	names := convert.Each(x.Swapped, func(swap proxyapi.Swap) string { return swap.Name })
	if len(names) > 0 {
		attributes = append(attributes, textAttribute("codeforge.names", strings.Join(names, ",")))
	}
	id := hashID(16, "request", strconv.FormatInt(r.N, 10), r.Salt)
	return newSpan(trace, id, parent, object{"name": name, "kind": kindClient, "attributes": attributes},
		x.At, x.At.Add(toDuration(x.Milliseconds)),
		x.Outcome != proxyapi.OutcomeServed && x.Outcome != proxyapi.OutcomePlanned)
}

// traceIDs returns the ids of a trace, of the parent span and of the root span. A run with a traceparent belongs to
// that trace.
func traceIDs(run *Run, sent []Record) (trace, parent, root string) {
	seed := ""
	if run != nil {
		seed = run.Run
		if part := strings.Split(run.Traceparent, "-"); len(part) == 4 {
			trace, parent = part[1], part[2]
		}
	} else {
		// A server's or an installation's name is the same for every request: its traces need the salt.
		seed = cmp.Or(sent[0].Exchange.Run, sent[0].Salt)
		if !proxyapi.IsRunID(seed) {
			seed = sent[0].Salt
		}
	}
	return cmp.Or(trace, hashID(32, "trace", seed)), parent, hashID(16, "run", seed)
}

// hashID derives an id with a number of hexadecimal digits. The same record always gets the same id.
func hashID(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}

func toDuration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func formatNano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
