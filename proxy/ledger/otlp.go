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
	err := Each(src, q, func(r Record) error {
		run := r.OfRun()
		switch {
		case r.Exchange != nil && proxyapi.OfRun(run) && run != "" && len(open) < maxOpenRuns:
			open[run] = append(open[run], r)
		case r.Exchange != nil:
			return enc.Encode(trace(r.At, nil, []Record{r}))
		case r.Run != nil:
			sent := open[run]
			delete(open, run)
			return enc.Encode(trace(r.At, r.Run, sent))
		}
		return nil
	})
	for _, sent := range open { // runs in progress, or cut off
		if err == nil {
			err = enc.Encode(trace(sent[len(sent)-1].At, nil, sent))
		}
	}
	return err
}

// The parts of OTLP JSON that ExportOTLP writes.
type (
	otlp struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributes   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	attributes struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes"`
		Status       struct {
			Code int `json:"code,omitempty"`
		} `json:"status"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value struct {
			String string `json:"stringValue,omitempty"`
			Int    string `json:"intValue,omitempty"`
		} `json:"value"`
	}
)

// The kinds of spans, and the status code of an error.
const (
	kindInternal = 1
	kindClient   = 3
	statusError  = 2
)

func text(key, value string) attribute {
	a := attribute{Key: key}
	a.Value.String = value
	return a
}

func number(key string, value int64) attribute {
	a := attribute{Key: key}
	a.Value.Int = strconv.FormatInt(value, 10)
	return a
}

// trace returns a run with its requests, or only the requests if run is nil.
func trace(at time.Time, run *Run, sent []Record) otlp {
	id, parent, root := identity(run, sent)
	var spans []span
	if run != nil {
		began := at.Add(-duration(run.Milliseconds))
		for _, r := range sent { // a run must begin before its requests
			if r.Exchange.At.Before(began) {
				began = r.Exchange.At
			}
		}
		s := span{
			TraceID: id, SpanID: root, ParentSpanID: parent, Name: "execute_code", Kind: kindInternal,
			Start: nano(began), End: nano(at),
			Attributes: []attribute{
				text("codeforge.run", run.Run), text("codeforge.language", run.Language), text("codeforge.outcome", run.Outcome),
				text("codeforge.code.sha256", run.CodeSHA256), text("codeforge.client", run.Client),
				number("codeforge.exit_code", int64(run.ExitCode)), number("codeforge.exchanges", int64(run.Count.Exchanges)),
			},
		}
		if run.ExitCode != 0 {
			s.Status.Code = statusError
		}
		spans = append(spans, s)
	} else {
		root = parent
	}
	for _, r := range sent {
		spans = append(spans, requestSpan(id, root, r))
	}
	out := otlp{[]resourceSpans{{ScopeSpans: []scopeSpans{{Spans: spans}}}}}
	out.ResourceSpans[0].Resource.Attributes = []attribute{text("service.name", "codeforge")}
	out.ResourceSpans[0].ScopeSpans[0].Scope.Name = "codeforge/audit"
	return out
}

// requestSpan returns the span of a request. Its attributes follow OpenTelemetry's conventions for HTTP.
func requestSpan(trace, parent string, r Record) span {
	x := r.Exchange
	s := span{
		TraceID: trace, SpanID: digest(16, "request", strconv.FormatInt(r.N, 10), r.Salt), ParentSpanID: parent,
		Name: x.Method + " " + x.Host, Kind: kindClient,
		Start: nano(x.At), End: nano(x.At.Add(duration(x.Milliseconds))),
		Attributes: []attribute{
			text("http.request.method", x.Method), text("url.full", x.URL), text("server.address", x.Host),
			number("http.response.status_code", int64(x.Status)), number("http.request.body.size", x.BytesUp),
			number("http.response.body.size", x.BytesDown), text("codeforge.outcome", x.Outcome),
			number("codeforge.record", r.N),
		},
	}
	if call := x.Call(); call != "" {
		s.Name = "call " + call
	}
	if x.Code != "" {
		s.Attributes = append(s.Attributes, text("error.type", x.Code))
	}
	names := make([]string, len(x.Swapped))
	for i, swap := range x.Swapped {
		names[i] = swap.Name
	}
	if len(names) > 0 {
		s.Attributes = append(s.Attributes, text("codeforge.names", strings.Join(names, ",")))
	}
	if x.Outcome != proxyapi.OutcomeServed && x.Outcome != proxyapi.OutcomePlanned {
		s.Status.Code = statusError
	}
	return s
}

// identity returns the ids of a trace, of the parent span and of the root span. A run with a traceparent belongs to
// that trace.
func identity(run *Run, sent []Record) (trace, parent, root string) {
	seed := ""
	if run != nil {
		seed = run.Run
		if part := strings.Split(run.Traceparent, "-"); len(part) == 4 {
			trace, parent = part[1], part[2]
		}
	} else {
		// A server's or an installation's name is the same for every request: its traces need the salt.
		seed = cmp.Or(sent[0].Exchange.Run, sent[0].Salt)
		if !proxyapi.OfRun(seed) {
			seed = sent[0].Salt
		}
	}
	return cmp.Or(trace, digest(32, "trace", seed)), parent, digest(16, "run", seed)
}

// digest derives an id with a number of hexadecimal digits. The same record always gets the same id.
func digest(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
