package mcpserver

// StatusPath is the path of mcp-server's report on MCP servers: the JSON of GET /servers. Clients that
// may use the MCP endpoint may request it.
const StatusPath = "/servers"

// Status is the report on one server of the catalog.
type Status struct {
	Name  string      `json:"name"`
	State ServerState `json:"state"`
	// Tools is the number of tools that code may call, or nil if it is not known yet.
	Tools *int `json:"tools,omitempty"`
	// Bytes is the length of all tool definitions, which no model receives.
	Bytes int `json:"bytes,omitempty"`
	// Held is the number of tools that wait for the user, because they are new or differ from the accepted ones.
	Held int `json:"held,omitempty"`
	// Processes is the number of the server's processes, Calls the number of calls in flight.
	Processes int `json:"processes"`
	Calls     int `json:"calls"`
	// Problem is the reason of the server's last failure, in its words or CodeForge's. It is empty after a success.
	Problem string `json:"problem,omitempty"`
	// Down means that the server does not work: it has failed and not answered since.
	Down bool `json:"down,omitempty"`
}

// ServerState is the current activity of a server.
type ServerState string

// The states.
const (
	Stopped  ServerState = "stopped"  // it starts with its next call
	Starting ServerState = "starting" // or being installed
	Running  ServerState = "running"
	Failing  ServerState = "failing" // not started again for a while
)
