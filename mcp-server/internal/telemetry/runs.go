package telemetry

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxExchanges bounds the spans of one run. An attribute of the run has the number of all exchanges.
const maxExchanges = 128

// RecordRun records a run that has ended, with its exchanges. The names of the attributes follow the conventions for
// MCP, generative AI and HTTP.
func (t *Recorder) RecordRun(r execution.RunRequest, began time.Time, o execution.Outcome, err error) {
	if t == nil || t.tracer == nil {
		return
	}
	language := "typescript"
	if r.Language.IsPython() {
		language = "python"
	}
	attrs := []attribute.KeyValue{
		attribute.String("mcp.method.name", "tools/call"),
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", "execute_code"),
		attribute.String("codeforge.run", o.Run), attribute.String("codeforge.language", language),
		attribute.String("codeforge.outcome", cmp.Or(string(o.Exit.Reason), "not_run")),
		attribute.Int("codeforge.exit_code", o.Exit.Code),
		attribute.Int64("codeforge.waited_ms", o.Waited.Milliseconds()),
		attribute.Int("codeforge.exchanges", o.Receipt.Count.Exchanges),
		attribute.Int("codeforge.denied", o.Receipt.Count.Denied),
	}
	if r.Tenant != nil {
		attrs = append(attrs, attribute.String("codeforge.tenant", r.Tenant.Name))
	}
	// The client's trace continues, if its request names one.
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": r.Traceparent})
	ctx, span := t.tracer.Start(ctx, "tools/call execute_code", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(began), trace.WithAttributes(attrs...))
	if err != nil || o.Exit.Code != 0 {
		span.SetStatus(codes.Error, "")
	}
	for _, x := range o.Receipt.Exchanges[:min(len(o.Receipt.Exchanges), maxExchanges)] {
		t.recordExchange(ctx, x)
	}
	span.End()
}

// recordExchange records an exchange. The requests that an MCP server sent for a call are below the call.
func (t *Recorder) recordExchange(ctx context.Context, x proxyapi.Exchange) {
	method := hideCustomMethod(x.Method)
	name, attrs := method, []attribute.KeyValue{
		attribute.String("http.request.method", method), attribute.Int("http.response.status_code", x.Status),
		attribute.Int64("http.request.body.size", x.BytesUp), attribute.Int64("http.response.body.size", x.BytesDown),
		attribute.String("codeforge.outcome", x.Outcome),
	}
	if len(x.APIs) > 0 {
		attrs = append(attrs, attribute.StringSlice("codeforge.apis", x.APIs))
	}
	if x.CalledTool() != "" {
		// The span has no name of the tool, because code writes that name into the path.
		name, attrs = "tools/call", append(attrs, attribute.String("mcp.method.name", "tools/call"))
	}
	if x.Code != "" {
		attrs = append(attrs, attribute.String("error.type", x.Code))
	}
	if names := convert.Each(x.Swapped, func(s proxyapi.Swap) string { return s.Name }); len(names) > 0 {
		attrs = append(attrs, attribute.StringSlice("codeforge.credentials", names))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(x.At),
		trace.WithAttributes(attrs...))
	if x.Outcome != proxyapi.OutcomeServed && x.Outcome != proxyapi.OutcomePlanned {
		span.SetStatus(codes.Error, "")
	}
	for _, caused := range x.Caused[:min(len(x.Caused), maxExchanges)] {
		t.recordExchange(ctx, caused)
	}
	span.End(trace.WithTimestamp(x.At.Add(time.Duration(x.Milliseconds * float64(time.Millisecond)))))
}

// hideCustomMethod returns a standard method, or "_OTHER" for another one: code may write any text as a method.
func hideCustomMethod(method string) string {
	//defence:trace-method
	if !slices.Contains(standardMethods, method) {
		return "_OTHER"
	}
	return method
}

var standardMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}
