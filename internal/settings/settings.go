// Package settings parses and validates the settings in .env and the environment.
//
//	YOLO_MODE=false            also open hosts that are not in any API
//	USER_AGENT=CodeForge/<v>   the User-Agent of every request that leaves
//	REDACTING_STRINGS=         comma separated: replaced in every request
//	REDACTING_STRINGS_FILE=    a file with them instead, one per line
//	DEBUG_MODE=false           log payloads and more
//	MCP_PORT=8080              port of the MCP endpoint
//	MCP_AUTH_TOKEN=            bearer token a client must send; empty: not needed
//	MCP_AUTH_TOKEN_FILE=       a file with it instead
//	MCP_TOKENS_FILE=           a file of tenants: clients with separate tokens, APIs, skills and limits
//	MCP_ALLOWED_HOSTS=         comma separated: Host values besides localhost
//	MCP_ALLOWED_ORIGINS=       comma separated: origins whose web pages may use the MCP endpoint
//	PUBLIC_URL=                https origin at which clients outside of this machine reach the MCP endpoint
//	OIDC_ISSUER=               identity provider whose access tokens the MCP endpoint accepts
//	OIDC_AUDIENCE=             audience of accepted tokens; empty: PUBLIC_URL/mcp
//	OIDC_SCOPES=               comma separated: scopes that clients should request
//	OIDC_CLAIM=sub             claim that names the login of a tenant
//	OIDC_CA_FILE=              PEM of the authorities of the identity provider
//	OIDC_INTROSPECTION_ID=     client ID with which mcp-server asks the provider about tokens; empty: they are JWTs
//	OIDC_INTROSPECTION_SECRET_FILE= a file with the client's secret
//	SANDBOX_SLOTS=8            runs at the same time, 1 to 100
//	SANDBOX_WARM=2             interpreters kept warm, 0 to SANDBOX_SLOTS; the default is 1 for one slot
//	SANDBOX_WARM_PYTHON=0      interpreters of Python kept warm, 0 to SANDBOX_SLOTS
//	SANDBOX_MEMORY=1g          memory of one run: a number and k, m or g
//	SANDBOX_SERVERS=8          MCP servers running at the same time, 0 to 32
//	SANDBOX_SERVER_MEMORY=512m memory of one MCP server with all its processes
//	SANDBOX_SUBNET=10.77.0     Docker: the first three numbers of the sandbox's network
//	SANDBOX_PROGRAMS=          folder of programs for MCP servers
//	PACKAGE_REGISTRY=          https URL of the registry that packages of MCP servers come from
//	PACKAGE_REGISTRY_PRIVATE=  address ranges to which the registry's name may resolve
//	CANARIES=on                put canaries, which a request may not contain, into the sandbox: on or off
//	SKILLS_READONLY=false      code cannot write /skills
//	OUTPUT_LIMIT=40000         characters of output shown to the model
//	TIMEOUT_DEFAULT=           seconds a run may take; empty: TIMEOUT_MAX
//	TIMEOUT_MAX=300            seconds a run may ask for
//	ANSWER_AFTER=45            seconds until a call answers; its run goes on
//	UPSTREAM_PROXY=            http, https or socks5 URL that requests leave through
//	UPSTREAM_CA_FILE=          PEM of further authorities for every upstream
//	AUDIT=on                   the ledger of requests that left the machine: on, off, or required
//	AUDIT_KEEP=90              days for which records are kept; 0: forever
//	AUDIT_SIZE=8g              size of the ledger on the disk: a number and k, m or g
//	AUDIT_ANCHOR=              a file or named pipe that gets each of its checkpoints
//	TZ=UTC                     time zone in the sandbox
//	LOG_FORMAT=text            text or json
//	HISTORY=full               the parts of runs that are kept: full, receipts or off
//	DATABASE_URL=              URL of the Postgres that replaces mcp-server's files, for several replicas
//	DATABASE_URL_FILE=         a file with it instead
//	DATABASE_CA_FILE=          PEM of the authorities of the Postgres servers
//	PROXY_DATABASE_URL=        URL of the Postgres with approvals and limits, for several proxies
//	PROXY_DATABASE_URL_FILE=   a file with it instead
//	OTEL_EXPORTER_OTLP_ENDPOINT= URL of an OpenTelemetry collector
//	OTEL_TRACES_EXPORTER=otlp  a trace of each run: otlp or none
//	OTEL_METRICS_EXPORTER=otlp mcp-server's and the proxy's metrics: otlp or none
//	OTEL_LOGS_EXPORTER=otlp    mcp-server's log lines: otlp or none
//	OTEL_METRIC_EXPORT_INTERVAL=60000 milliseconds between two reports of the metrics
package settings

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

// Settings are all variables of .env. Parse makes them; they are immutable afterwards.
type Settings struct {
	YOLO             bool
	UserAgent        string
	RedactingStrings []string
	Debug            bool
	MCPPort          int
	MCPAuthToken     secret.Value
	MCPTokensFile    string
	MCPAllowedHosts  []string
	// MCPAllowedOrigins are origins, such as https://app.example.com.
	MCPAllowedOrigins []string
	// PublicURL is an https origin without a slash at its end, or empty.
	PublicURL string
	Collector Collector
	// OIDC is the identity provider.
	OIDC       OIDC
	Slots      int
	Warm       int
	WarmPython int
	// Memory is the memory of one run, in bytes.
	Memory int64
	// Servers is the number of MCP servers that can run at the same time. ServerMemory is the limit of each in bytes.
	Servers      int
	ServerMemory int64
	// Network is the sandbox's network in Docker mode.
	Network slot.Network
	// Programs is a folder of programs for MCP servers, read-only to them. Empty means no folder.
	Programs string
	// Registry is the registry of MCP server packages; nil disables installations. RegistryPrivate lists the address
	// ranges, besides public addresses, to which its name may resolve.
	Registry        *url.URL
	RegistryPrivate []netip.Prefix
	// Canaries puts a canary into each slot.
	Canaries       bool
	SkillsReadonly bool
	// Database is the URL of Postgres with its sslmode. If it is empty, mcp-server uses files. The URL includes
	// DatabaseCAFile.
	Database secret.Value
	// ProxyDatabase is the URL of the Postgres in which several proxies share approvals and limits, in the form of
	// Database. If it is empty, this proxy is the only one.
	ProxyDatabase  secret.Value
	DatabaseCAFile string
	// OutputLimit is in characters.
	OutputLimit    int
	TimeoutDefault time.Duration
	TimeoutMax     time.Duration
	AnswerAfter    time.Duration
	// UpstreamProxy is nil if requests leave directly.
	UpstreamProxy  *url.URL
	UpstreamCAFile string
	// Audit is "on", "off" or "required". AuditKeep is the time for which records are kept; 0 means forever. AuditSize
	// bounds the ledger in bytes.
	Audit       string
	AuditKeep   time.Duration
	AuditSize   int64
	AuditAnchor string
	TZ          string
	// LogFormat is "text" or "json".
	LogFormat string
	// History is "full", "receipts" or "off".
	History string
}

// OIDC are the settings of an identity provider. They need PUBLIC_URL, and MCP_TOKENS_FILE, which maps logins to
// tenants.
type OIDC struct {
	// Issuer is empty without an identity provider.
	Issuer string
	// Audience is the only audience of an accepted token. Parse sets its default.
	Audience string
	// Clients should request Scopes. Claim is the name of the claim with the login of a tenant.
	Scopes []string
	Claim  string
	CAFile string
	// IntrospectionID is the client ID of this server at the provider, and IntrospectionSecretFile the path of its secret.
	// Both are empty without introspection.
	IntrospectionID, IntrospectionSecretFile string
}

// Collector are the settings of an OpenTelemetry collector.
type Collector struct {
	// URL is empty without a collector.
	URL string
	// Signals are the signals to send: traces, metrics, logs.
	Signals []string
	// Interval is the time between two reports of the metrics.
	Interval time.Duration
}

// Format prints no setting: the settings include the strings to redact and the upstream proxy's password.
func (s Settings) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[settings]") }

// LogValue prints no setting.
func (s Settings) LogValue() slog.Value { return slog.StringValue("[settings]") }

// MarshalJSON writes no setting.
func (s Settings) MarshalJSON() ([]byte, error) { return []byte(`"[settings]"`), nil }

// ListNames lists every variable, in the order of .env.example.
func ListNames() []string {
	return convert.Each(settingSpecs(), func(v settingSpec) string { return v.name })
}

// DefaultOf returns the default value of a variable, as in .env.example, or "" for an unknown name.
func DefaultOf(name string) string {
	for _, v := range settingSpecs() {
		if v.name == name {
			return v.def
		}
	}
	return ""
}

// settingSpec is one line of .env: its default and its parser. read returns a description of a right value, or "".
type settingSpec struct {
	name, def string
	read      func(s *Settings, text string) (want string)
}

// readPath returns the read function of a setting with a path. The error names kind: "the path of a PEM file".
func readPath(kind string, field func(*Settings) *string) func(*Settings, string) string {
	return func(s *Settings, text string) string { return parsePath(text, "the path of "+kind, field(s)) }
}

func settingSpecs() []settingSpec {
	return []settingSpec{
		{"YOLO_MODE", "false", func(s *Settings, t string) string { return parseBool(t, &s.YOLO) }},
		{"USER_AGENT", "CodeForge/" + version.Version, func(s *Settings, t string) string {
			return parseHeader(t, &s.UserAgent)
		}},
		{"REDACTING_STRINGS", "", func(s *Settings, t string) string { return parseRedacting(t, &s.RedactingStrings) }},
		{"REDACTING_STRINGS_FILE", "", func(s *Settings, t string) string {
			return readFromFile(t, s.RedactingStrings != nil, &s.RedactingStrings, parseRedacting)
		}},
		{"DEBUG_MODE", "false", func(s *Settings, t string) string { return parseBool(t, &s.Debug) }},
		{"MCP_PORT", "8080", func(s *Settings, t string) string { return parseInt(t, 1, 65535, &s.MCPPort) }},
		{"MCP_AUTH_TOKEN", "", func(s *Settings, t string) string { return parseBearer(t, &s.MCPAuthToken) }},
		{"MCP_AUTH_TOKEN_FILE", "", func(s *Settings, t string) string {
			return readFromFile(t, !s.MCPAuthToken.IsEmpty(), &s.MCPAuthToken, parseBearer)
		}},
		{"MCP_TOKENS_FILE", "", readPath("a JSON file", func(s *Settings) *string { return &s.MCPTokensFile })},
		{"MCP_ALLOWED_HOSTS", "", func(s *Settings, t string) string { return parseHosts(t, &s.MCPAllowedHosts) }},
		{"MCP_ALLOWED_ORIGINS", "", func(s *Settings, t string) string { return parseOrigins(t, &s.MCPAllowedOrigins) }},
		{"PUBLIC_URL", "", func(s *Settings, t string) string { return parsePublicURL(t, &s.PublicURL) }},
		{"OIDC_ISSUER", "", func(s *Settings, t string) string { return parseIssuer(t, &s.OIDC.Issuer) }},
		{"OIDC_AUDIENCE", "", func(s *Settings, t string) string { return parseHeader(t, &s.OIDC.Audience) }},
		{"OIDC_SCOPES", "", func(s *Settings, t string) string {
			s.OIDC.Scopes = splitList(t)
			return parseHeader(t, new(string))
		}},
		{"OIDC_CLAIM", "sub", func(s *Settings, t string) string { return parseHeader(t, &s.OIDC.Claim) }},
		{"OIDC_CA_FILE", "", readPath("a PEM file", func(s *Settings) *string { return &s.OIDC.CAFile })},
		{"OIDC_INTROSPECTION_ID", "", func(s *Settings, t string) string { return parseHeader(t, &s.OIDC.IntrospectionID) }},
		{"OIDC_INTROSPECTION_SECRET_FILE", "", readPath("a file with a secret", func(s *Settings) *string {
			return &s.OIDC.IntrospectionSecretFile
		})},
		{"SANDBOX_SLOTS", "8", func(s *Settings, t string) string { return parseInt(t, 1, slot.Max, &s.Slots) }},
		{"SANDBOX_WARM", "2", func(s *Settings, t string) string { return parseInt(t, 0, slot.Max, &s.Warm) }},
		{"SANDBOX_WARM_PYTHON", "0", func(s *Settings, t string) string { return parseInt(t, 0, slot.Max, &s.WarmPython) }},
		{"SANDBOX_MEMORY", "1g", func(s *Settings, t string) string { return parseSize(t, minRunMemory, &s.Memory) }},
		{"SANDBOX_SERVERS", "8", func(s *Settings, t string) string { return parseInt(t, 0, slot.MaxServers, &s.Servers) }},
		{"SANDBOX_SERVER_MEMORY", "512m", func(s *Settings, t string) string {
			return parseSize(t, minServerMemory, &s.ServerMemory)
		}},
		{"SANDBOX_SUBNET", slot.DefaultNetwork, func(s *Settings, t string) string { return parseSubnet(t, &s.Network) }},
		{"SANDBOX_PROGRAMS", "", readPath("a folder", func(s *Settings) *string { return &s.Programs })},
		{"PACKAGE_REGISTRY", "", func(s *Settings, t string) string { return parseRegistryURL(t, &s.Registry) }},
		{"PACKAGE_REGISTRY_PRIVATE", "", func(s *Settings, t string) string { return parseRanges(t, &s.RegistryPrivate) }},
		{"CANARIES", "on", func(s *Settings, t string) string {
			text := ""
			want := parseOption(t, &text, "on", "off")
			s.Canaries = text == "on"
			return want
		}},
		{"SKILLS_READONLY", "false", func(s *Settings, t string) string { return parseBool(t, &s.SkillsReadonly) }},
		{"OUTPUT_LIMIT", "40000", func(s *Settings, t string) string {
			return parseInt(t, 1000, 10_000_000, &s.OutputLimit)
		}},
		{"TIMEOUT_DEFAULT", "", func(s *Settings, t string) string {
			if t == "" {
				return ""
			}
			return parseSeconds(t, &s.TimeoutDefault)
		}},
		{"TIMEOUT_MAX", "300", func(s *Settings, t string) string { return parseSeconds(t, &s.TimeoutMax) }},
		{"ANSWER_AFTER", "45", func(s *Settings, t string) string { return parseSeconds(t, &s.AnswerAfter) }},
		{"UPSTREAM_PROXY", "", func(s *Settings, t string) string { return parseProxyURL(t, &s.UpstreamProxy) }},
		{"UPSTREAM_CA_FILE", "", readPath("a PEM file", func(s *Settings) *string { return &s.UpstreamCAFile })},
		{"AUDIT", "on", func(s *Settings, t string) string { return parseOption(t, &s.Audit, "on", "off", "required") }},
		{"AUDIT_KEEP", "90", func(s *Settings, t string) string {
			days := 0
			// A hundred years, which is far from overflow.
			want := parseInt(t, 0, 36500, &days)
			s.AuditKeep = time.Duration(days) * 24 * time.Hour
			return want
		}},
		{"AUDIT_SIZE", "8g", func(s *Settings, t string) string { return parseSize(t, minAuditSize, &s.AuditSize) }},
		{"AUDIT_ANCHOR", "", readPath("a file", func(s *Settings) *string { return &s.AuditAnchor })},
		{"TZ", "UTC", func(s *Settings, t string) string { return parseZone(t, &s.TZ) }},
		{"LOG_FORMAT", "text", func(s *Settings, t string) string { return parseOption(t, &s.LogFormat, "text", "json") }},
		{"HISTORY", "full", func(s *Settings, t string) string {
			return parseOption(t, &s.History, "full", "receipts", "off")
		}},
		{"DATABASE_URL", "", func(s *Settings, t string) string { return parseDatabase(t, &s.Database) }},
		{"DATABASE_URL_FILE", "", func(s *Settings, t string) string {
			return readFromFile(t, !s.Database.IsEmpty(), &s.Database, parseDatabase)
		}},
		{"PROXY_DATABASE_URL", "", func(s *Settings, t string) string { return parseDatabase(t, &s.ProxyDatabase) }},
		{"PROXY_DATABASE_URL_FILE", "", func(s *Settings, t string) string {
			return readFromFile(t, !s.ProxyDatabase.IsEmpty(), &s.ProxyDatabase, parseDatabase)
		}},
		{"DATABASE_CA_FILE", "", readPath("a PEM file", func(s *Settings) *string { return &s.DatabaseCAFile })},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "", func(s *Settings, t string) string {
			return parseCollector(t, &s.Collector.URL)
		}},
		{"OTEL_TRACES_EXPORTER", "otlp", readSignal("traces")},
		{"OTEL_METRICS_EXPORTER", "otlp", readSignal("metrics")},
		{"OTEL_LOGS_EXPORTER", "otlp", readSignal("logs")},
		{"OTEL_METRIC_EXPORT_INTERVAL", "60000", func(s *Settings, t string) string {
			milliseconds := 0
			want := parseInt(t, 1000, 24*60*60*1000, &milliseconds)
			s.Collector.Interval = time.Duration(milliseconds) * time.Millisecond
			return want
		}},
	}
}
