package embedded

import (
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/hostfolder"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// supervisorSetup is the supervisor's configuration. The outer process passes it to the inner one.
type supervisorSetup struct {
	State, APIs, Bin, Deno string
	TypeScript             string // empty: no compiler
	UV                     string // empty: packages of PyPI cannot be installed
	// Keep lists the paths that the proxy reads under their real names: APIs, and the file of further authorities.
	Keep []string
	Port int
	// Pythons are the Python interpreters to try, in this order.
	Pythons     []string
	Slots, Warm int
	WarmPython  int
	Memory      int64
	// Servers is the number of slots for MCP servers, ServerMemory the memory of each, in bytes. Programs is the folder of
	// their programs, or empty.
	Servers        int
	ServerMemory   int64
	Programs       string
	SkillsReadonly bool
	// Folders are the folders of the host that code may see.
	Folders []hostfolder.Folder
	// OwnerUID is the user, besides root, whose programs may connect without a token. In the user namespace an ordinary
	// user is root.
	OwnerUID int
	// Privileged means that this is real root, so daemons and slots have separate users.
	Privileged bool
	// Quiet keeps the daemons' lines out of stderr. The log file has them.
	Quiet bool
}

func (p supervisorSetup) endpointAddress() string { return "127.0.0.1:" + strconv.Itoa(p.Port) }

func (p supervisorSetup) endpointURL() string { return "http://" + p.endpointAddress() }

// proxyArgs returns egress-proxy's arguments.
func proxyArgs(p supervisorSetup, v hostView) []string {
	return []string{
		"--mode", "embedded",
		"--apis", p.APIs,
		"--ca-private", p.State + "/ca-private",
		"--ca-public", v.Path("ca"),
		"--control", v.Path("run", statedir.ControlSocket),
		"--tokens", p.State + "/tokens",
		"--audit", p.State + "/audit",
		"--credentials", v.Path("logins", statedir.CredentialsSocket),
		"--endpoint", strconv.Itoa(p.Port),
	}
}

func sandboxArgs(p supervisorSetup, v hostView) []string {
	args := []string{
		"serve",
		"--mode", "embedded",
		"--socket", v.Path("run", statedir.SandboxSocket),
		"--slots", strconv.Itoa(p.Slots),
		"--warm", strconv.Itoa(p.Warm),
		"--memory", strconv.FormatInt(p.Memory, 10),
		"--deno", v.Path("deno"),
		"--ca", v.Path("ca", "ca.pem"),
		"--runs", v.Path("runs"),
		"--skills", v.Path("skills"),
		"--tmp", v.Path("tmp"),
		"--state", v.Path("sandboxd"),
		"--code", v.Path("code", "slots"),
		"--out", v.Path("out", "slots"),
	}
	for _, path := range p.Pythons {
		args = append(args, "--python", path)
	}
	args = append(args,
		"--warm-python", strconv.Itoa(p.WarmPython),
		"--servers", strconv.Itoa(p.Servers),
		"--server-memory", strconv.FormatInt(p.ServerMemory, 10),
		"--bridge", v.Path("bin", "mcp-bridge"),
		"--packages", v.Path("packages"))
	if p.Programs != "" {
		args = append(args, "--programs", v.Path("programs"))
	}
	if p.TypeScript != "" {
		args = append(args, "--typescript", v.Path("typescript"))
	}
	if len(p.Folders) > 0 {
		args = append(args, "--folders", v.Path(foldersName))
	}
	if p.UV != "" {
		args = append(args, "--uv", v.Path("uv"))
	}
	if p.SkillsReadonly {
		args = append(args, "--skills-readonly")
	}
	return args
}

// serverArgs returns mcp-server's arguments. mcp-server also listens on [::1] if the machine has IPv6.
func serverArgs(p supervisorSetup, v hostView) []string {
	return []string{
		"--listen", p.endpointAddress(),
		"--sandbox", "unix:" + v.Path("run", statedir.SandboxSocket),
		"--control", v.Path("run", statedir.ControlSocket),
		"--skills", v.Path("skills"),
		"--socket", v.Path("run", statedir.MCPSocket),
		"--pins", v.Path("pins"),
		"--history", v.Path("history"),
		"--tenants", v.Path("tenants"),
		"--owner-uid", strconv.Itoa(p.OwnerUID),
	}
}

// Settings of each daemon. The proxy receives the whole environment, which may hold credentials, except the settings
// that only mcp-server needs.
var (
	sandboxSettings = []string{
		"SANDBOX_SLOTS", "SANDBOX_WARM", "SANDBOX_WARM_PYTHON", "SANDBOX_MEMORY", "SANDBOX_SERVERS",
		"SANDBOX_SERVER_MEMORY", "CANARIES", "SKILLS_READONLY", "DEBUG_MODE", "TZ", "LOG_FORMAT",
	}
	notForServer = []string{"UPSTREAM_PROXY", "UPSTREAM_CA_FILE", "USER_AGENT", "PACKAGE_REGISTRY_PRIVATE",
		"PROXY_DATABASE_URL", "PROXY_DATABASE_URL_FILE"}
	notForProxy = []string{
		"MCP_AUTH_TOKEN", "MCP_AUTH_TOKEN_FILE", "MCP_TOKENS_FILE", "DATABASE_URL", "DATABASE_URL_FILE",
		"MCP_ALLOWED_ORIGINS", "PUBLIC_URL", "OIDC_ISSUER", "OIDC_AUDIENCE", "OIDC_SCOPES", "OIDC_CLAIM",
		"OIDC_CA_FILE", "OIDC_INTROSPECTION_ID", "OIDC_INTROSPECTION_SECRET_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_METRIC_EXPORT_INTERVAL",
	}
)

// withSlotCounts returns environ with the actual numbers of slots, because --slots overrides SANDBOX_SLOTS.
func (p supervisorSetup) withSlotCounts(environ []string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "SANDBOX_SLOTS" || name == "SANDBOX_WARM" || name == "SANDBOX_WARM_PYTHON"
	})
	return append(out, "SANDBOX_SLOTS="+strconv.Itoa(p.Slots), "SANDBOX_WARM="+strconv.Itoa(p.Warm),
		"SANDBOX_WARM_PYTHON="+strconv.Itoa(p.WarmPython))
}

func daemonEnvirons(environ []string) (proxy, sandbox, server []string) {
	common := func(name string) bool { return name == "PATH" || name == "LANG" || name == "LC_ALL" }
	inList := func(list []string) func(string) bool {
		return func(name string) bool {
			return slices.Contains(list, name)
		}
	}
	isSetting, forSandbox := inList(settings.ListNames()), inList(sandboxSettings)
	hiddenServer, hiddenProxy := inList(notForServer), inList(notForProxy)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !hiddenProxy(name) && name != "LISTEN_FDS" && name != "LISTEN_FDNAMES" {
			proxy = append(proxy, kv)
		}
		if common(name) || forSandbox(name) {
			sandbox = append(sandbox, kv)
		}
		if common(name) || isSetting(name) && !hiddenServer(name) {
			server = append(server, kv)
		}
	}
	return proxy, sandbox, server
}
