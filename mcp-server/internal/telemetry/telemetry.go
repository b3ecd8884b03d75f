// Package telemetry sends traces, metrics and log lines to an OpenTelemetry collector, over OTLP.
//
// Threat: code chooses methods, hosts, paths and names of tools, and may write a secret or a long text into them. The
// collector is outside of CodeForge, and its readers may know less than the operator. A client wants to hide its runs.
// The collector's answer redirects to another host, or is long.
//
// Contract: attributes of spans and metrics have names that the operator chose, words of fixed lists, and numbers. They
// have no host, no URL, no code, no output and no value of a credential. Log lines are those of standard error, without
// the lines of DEBUG_MODE, which have code and bodies. A slow collector never delays a run: spans and lines wait in
// bounded queues, and further ones are dropped. Every run has a trace, even if the client's traceparent is not sampled.
// The package follows no redirect, reads at most maxAnswer bytes of an answer, and does nothing without an endpoint.
package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

const (
	// maxText bounds the value of an attribute of a span, and maxLine a text of a log line, in bytes.
	maxText, maxLine = 256, 2 << 10
	// maxAnswer bounds an answer of the collector, in bytes. The log contains the answer if it is an error.
	maxAnswer = 4 << 10
	// sendTime bounds one request to the collector.
	sendTime = 10 * time.Second
)

// The signals of Config.
const (
	Traces  = "traces"
	Metrics = "metrics"
	Logs    = "logs"
)

// Config configures a Recorder.
type Config struct {
	// Endpoint is the URL of the collector. Each signal goes to a path below it, such as /v1/traces.
	Endpoint string
	// Signals are the signals to send.
	Signals []string
	// Interval is the time between two reports of the metrics.
	Interval time.Duration
	Log      *slog.Logger
}

// Recorder sends the signals. A nil Recorder sends nothing. Create it with New.
type Recorder struct {
	cfg      Config
	client   *http.Client
	resource *resource.Resource
	tracer   trace.Tracer // nil without traces
	// shutdowns has a function for each signal in use. It sends the waiting data and ends the signal.
	shutdowns []func(context.Context) error
}

// New returns a recorder, or nil if the endpoint is empty. It does not connect.
func New(ctx context.Context, cfg Config) (*Recorder, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	t := &Recorder{cfg: cfg, client: &http.Client{
		Timeout: sendTime,
		// It follows no redirects, so mcp-server connects only to the address that the operator chose.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, resource: resource.NewSchemaless(
		attribute.String("service.name", "codeforge"), attribute.String("service.version", version.Version),
		// The counts of several replicas, or of this one after a restart, are different series.
		attribute.String("service.instance.id", rand.Text()))}
	failures := &rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failures.Do(func() {
			cfg.Log.Warn("the collector does not accept the telemetry", logline.Tag("mcp"),
				slog.String("error", err.Error()))
		})
	}))
	if !slices.Contains(cfg.Signals, Traces) {
		return t, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(t.signalURL(Traces)),
		otlptracehttp.WithHTTPClient(t.client), otlptracehttp.WithMaxResponseSize(maxAnswer))
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxText
	// By default, a client's traceparent decides whether its run is recorded.
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(t.resource))
	t.tracer = p.Tracer("codeforge")
	t.shutdowns = append(t.shutdowns, p.Shutdown)
	return t, err
}

func (t *Recorder) signalURL(signal string) string {
	return strings.TrimSuffix(t.cfg.Endpoint, "/") + "/v1/" + signal
}

// ReportMetrics sends the metrics of a gatherer at each interval and at Close, if Metrics is among the signals.
func (t *Recorder) ReportMetrics(ctx context.Context, from prometheus.Gatherer) error {
	if t == nil || !slices.Contains(t.cfg.Signals, Metrics) {
		return nil
	}
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(t.signalURL(Metrics)),
		otlpmetrichttp.WithHTTPClient(t.client), otlpmetrichttp.WithMaxResponseSize(maxAnswer))
	if err != nil {
		return err
	}
	p := metric.NewMeterProvider(metric.WithResource(t.resource), metric.WithReader(metric.NewPeriodicReader(exporter,
		metric.WithInterval(t.cfg.Interval), metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))))
	t.shutdowns = append(t.shutdowns, p.Shutdown)
	return nil
}

// ExtendLogger returns a logger that also sends its lines, or l itself without the signal Logs. clean cleans every text
// of a line.
func (t *Recorder) ExtendLogger(l *slog.Logger, clean func(string) string) (*slog.Logger, error) {
	if t == nil || !slices.Contains(t.cfg.Signals, Logs) {
		return l, nil
	}
	exporter, err := otlploghttp.New(context.Background(), otlploghttp.WithEndpointURL(t.signalURL(Logs)),
		otlploghttp.WithHTTPClient(t.client), otlploghttp.WithMaxResponseSize(maxAnswer))
	if err != nil {
		return nil, err
	}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(t.resource),
		sdklog.WithProcessor(publicLines{sdklog.NewBatchProcessor(exporter)}))
	t.shutdowns = append(t.shutdowns, p.Shutdown)
	// Protobuf refuses a text that is not UTF-8, and the exporter would lose the whole batch.
	cut := func(text string) string {
		return safetext.CutText(strings.ToValidUTF8(clean(text), "\uFFFD"), maxLine, "...")
	}
	return logline.AddHandler(l, otelslog.NewHandler("codeforge", otelslog.WithLoggerProvider(p)), cut), nil
}

// publicLines drops the lines of DEBUG_MODE.
type publicLines struct{ sdklog.Processor }

// Enabled implements sdklog.Processor.
func (p publicLines) Enabled(ctx context.Context, param sdklog.EnabledParameters) bool {
	//defence:telemetry-debug
	if param.Severity < log.SeverityInfo {
		return false
	}
	return p.Processor.Enabled(ctx, param)
}

// Close sends the waiting data, until ctx ends.
func (t *Recorder) Close(ctx context.Context) (err error) {
	if t == nil {
		return nil
	}
	for _, shutdown := range t.shutdowns {
		err = errors.Join(err, shutdown(ctx))
	}
	return err
}
