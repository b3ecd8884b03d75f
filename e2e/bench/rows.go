package bench

// The names of the tables.
const (
	tableRuns    = "execute_code"
	tablePython  = "execute_code, Python"
	tableServers = "MCP servers"
	tableProxy   = "proxy"
	tableIron    = "proxy, against iron-proxy"
	tableEngine  = "scan engine"
)

// Rows are all lines of all tables, in the order in which they are shown. docs/contribute/performance.md lists
// their gates and stretches.
var Rows = []Row{
	{ID: "runs.docker", Table: tableRuns, What: "Docker, warm slot, p50 against one `docker exec deno run -` per call", Unit: "x", Gate: 6, Stretch: 10},
	{ID: "runs.warm", Table: tableRuns, What: "embedded, warm slot, p50 against bare `deno run -`", Unit: "x", Gate: 2, Stretch: 3.5},
	{ID: "runs.call", Table: tableRuns, What: "embedded, warm slot, one HTTPS call to an API, p50 against bare Deno doing the same", Unit: "x"},
	{ID: "runs.cold", Table: tableRuns, What: "embedded, no warm slot, p50 above bare `deno run -`", Unit: "ms", Gate: 5, Stretch: 2, Less: true},
	{ID: "runs.burst", Table: tableRuns, What: "8 runs at once, throughput against 8 bare Denos at once", Unit: "x", Gate: 1.5, Stretch: 2},
	{ID: "runs.sustained", Table: tableRuns, What: "8 at once without a pause (each run pays for the next warm slot)", Unit: "x"},
	{ID: "runs.cost", Table: tableRuns, What: "embedded, 2 clients, processor time of a run against bare `deno run -`", Unit: "x", Gate: 1.65, Stretch: 1.5, Less: true},
	{ID: "runs.cost.crowd", Table: tableRuns, What: "the same with 500 mounts and 2,000 idle sockets on the machine", Unit: "x", Gate: 1.73, Stretch: 1.58, Less: true},
	{ID: "runs.docker.cost", Table: tableRuns, What: "Docker, 2 clients, the same", Unit: "x", Gate: 1.5, Stretch: 1.35, Less: true},
	{ID: "runs.rate", Table: tableRuns, What: "embedded, 8 clients, runs sustained", Unit: "/s"},
	{ID: "runs.rate.call", Table: tableRuns, What: "the same, one HTTPS call to an API", Unit: "/s"},
	{ID: "runs.rate.crowd", Table: tableRuns, What: "the same without a call, with 500 mounts and 2,000 idle sockets", Unit: "/s"},
	{ID: "runs.docker.rate", Table: tableRuns, What: "Docker, 8 clients, runs sustained", Unit: "/s"},
	{ID: "runs.idle", Table: tableRuns, What: "idle private memory per warm slot", Unit: "MB", Gate: 15, Stretch: 11, Less: true},
	{ID: "runs.print.16k", Table: tableRuns, What: "embedded, warm slot, printing 16 KiB, p50 against printing 1 KiB", Unit: "x", Gate: 1.15, Stretch: 1.05, Less: true},
	{ID: "runs.print.1m", Table: tableRuns, What: "embedded, warm slot, printing 1 MiB, the same", Unit: "x", Gate: 2.5, Stretch: 1.5, Less: true},
	{ID: "runs.pinned", Table: tableRuns, What: "embedded, warm slot, 3 packages and 40 keys unused, p50 against none", Unit: "x", Gate: 1.2, Stretch: 1.05, Less: true},
	{ID: "runs.environment", Table: tableRuns, What: "the same, reading a key from the environment: p50 above none", Unit: "ms", Less: true},
	{ID: "runs.import", Table: tableRuns, What: "the same, importing zod: p50 above none", Unit: "ms", Less: true},
	{ID: "runs.noop", Table: tableRuns, What: "mcp-server per call (a tool that does nothing), p50", Unit: "ms", Gate: 0.5, Stretch: 0.3, Less: true},

	{ID: "python.warm", Table: tablePython, What: "embedded, warm slot, p50 against bare `python3 -c`", Unit: "x", Gate: 1.5, Stretch: 2},
	{ID: "python.call", Table: tablePython, What: "embedded, warm slot, one HTTPS call, p50 against bare Python doing the same", Unit: "x", Gate: 3, Stretch: 4},
	{ID: "python.print.16k", Table: tablePython, What: "embedded, warm slot, printing 16 KiB, p50 against printing 1 KiB", Unit: "x", Gate: 1.15, Stretch: 1.05, Less: true},
	{ID: "python.print.1m", Table: tablePython, What: "embedded, warm slot, printing 1 MiB, the same", Unit: "x", Gate: 2.5, Stretch: 1.5, Less: true},
	{ID: "python.idle", Table: tablePython, What: "idle private memory per warm slot", Unit: "MB", Gate: 20, Stretch: 15, Less: true},

	{ID: "servers.call", Table: tableServers, What: "call of a tool that does nothing, p50 above the SDK on stdio", Unit: "ms", Gate: 3, Stretch: 1.5, Less: true},
	{ID: "servers.eight", Table: tableServers, What: "8 calls at once of a tool that takes 20 ms, calls/s against one after the other", Unit: "x", Gate: 4, Stretch: 6},
	{ID: "servers.busy", Table: tableServers, What: "8 calls at once of a tool that does nothing, the same (the processors are the bound)", Unit: "x"},
	{ID: "servers.busy.sdk", Table: tableServers, What: "the same, against what the SDK on stdio reaches", Unit: "x", Gate: 1, Stretch: 1.5},
	{ID: "servers.cold", Table: tableServers, What: "first call of a stopped server, above the SDK starting it", Unit: "ms", Less: true},
	{ID: "servers.package", Table: tableServers, What: "first call of a stopped package from npm, against the SDK starting it on Node", Unit: "x", Gate: 1.3, Stretch: 1.15, Less: true},
	{ID: "servers.package.deno", Table: tableServers, What: "the same, on the Deno that it runs on here", Unit: "x", Gate: 1.3, Stretch: 1.15, Less: true},
	{ID: "servers.gateway", Table: tableServers, What: "call of a tool that does nothing, p50 above bare Deno through a plain gateway", Unit: "ms", Less: true},
	{ID: "servers.unused", Table: tableServers, What: "100 servers that nobody uses: list_apis, p50", Unit: "ms", Gate: 1, Stretch: 0.3, Less: true},
	{ID: "servers.start", Table: tableServers, What: "the same: start of CodeForge", Unit: "ms", Less: true},
	{ID: "servers.memory", Table: tableServers, What: "the same: private memory of all processes", Unit: "MB", Less: true},
	{ID: "servers.runs", Table: tableServers, What: "the same: a run that uses none, p50", Unit: "ms", Less: true},

	{ID: "proxy.added", Table: tableProxy, What: "added p50 per small request, keep-alive, against mitmproxy's", Gate: 0.16, Stretch: 0.09, Less: true},
	{ID: "proxy.rps", Table: tableProxy, What: "requests/s at 32 connections against mitmproxy", Unit: "x", Gate: 14, Stretch: 18},
	{ID: "proxy.cpu", Table: tableProxy, What: "proxy CPU per request against mitmproxy", Unit: "x less", Gate: 16, Stretch: 24},
	{ID: "proxy.json", Table: tableProxy, What: "100 KB JSON, p99 against mitmproxy", Gate: 1, Stretch: 0.6, Less: true},
	{ID: "proxy.tls", Table: tableProxy, What: "new TLS connections/s at 8 clients against mitmproxy", Unit: "x", Gate: 5, Stretch: 7},
	{ID: "proxy.download", Table: tableProxy, What: "64 MiB of JSON, throughput against direct (0.50 is the ceiling on two cores)", Gate: 0.35, Stretch: 0.45},
	{ID: "proxy.download.binary", Table: tableProxy, What: "64 MiB of random bytes, the same", Gate: 0.35, Stretch: 0.45},
	{ID: "proxy.stream", Table: tableProxy, What: "64 MiB of JSON against mitmproxy with a streaming addon", Unit: "x", Gate: 1.5, Stretch: 2},
	{ID: "proxy.stream.binary", Table: tableProxy, What: "64 MiB of random bytes, the same", Unit: "x", Gate: 1.5, Stretch: 2},
	{ID: "proxy.rss", Table: tableProxy, What: "peak RSS whatever the body size (bodies to 256 MiB)", Unit: "MB", Gate: 32, Stretch: 24, Less: true},
	{ID: "proxy.sse", Table: tableProxy, What: "SSE event latency above direct, p50", Unit: "us", Gate: 250, Stretch: 150, Less: true},

	{ID: "iron.p50", Table: tableIron, What: "p50 of a small request, keep-alive, against iron-proxy's", Gate: 1, Stretch: 0.9, Less: true},
	{ID: "iron.rps", Table: tableIron, What: "requests/s at 32 connections against iron-proxy", Unit: "x", Gate: 6, Stretch: 8},
	{ID: "iron.cpu", Table: tableIron, What: "CPU per request against iron-proxy", Unit: "x less", Gate: 6, Stretch: 8},
	{ID: "iron.tls", Table: tableIron, What: "new TLS connections/s at 8 clients against iron-proxy", Unit: "x", Gate: 2, Stretch: 2.5},
	{ID: "iron.json", Table: tableIron, What: "64 MiB of JSON against iron-proxy, which does not scrub", Unit: "x", Gate: 1.2, Stretch: 1.4},
	{ID: "iron.binary", Table: tableIron, What: "64 MiB of random bytes, the same", Unit: "x", Gate: 1.2, Stretch: 1.4},

	{ID: "engine.8", Table: tableEngine, What: "scan engine, 8 patterns", Unit: "GB/s", Gate: 4, Stretch: 6},
	{ID: "engine.64", Table: tableEngine, What: "scan engine, 64 patterns", Unit: "GB/s", Gate: 3, Stretch: 5},
}
