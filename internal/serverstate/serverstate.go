// Package serverstate is what mcp-server tells the user of MCP servers, as the JSON of GET /servers.
package serverstate

// Path is where mcp-server answers, to those who may also use its MCP endpoint.
const Path = "/servers"

// Server is one server of the catalog.
type Server struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Tools is how many tools code may call, nil when that is not known yet.
	Tools *int `json:"tools,omitempty"`
	// Bytes is how long the definitions of all its tools are, which no model is shown.
	Bytes int `json:"bytes,omitempty"`
	// Held is how many tools wait for the user, because they are new or not as they were accepted.
	Held int `json:"held,omitempty"`
	// Processes is how many processes of the server there are, Calls how many calls are in flight.
	Processes int `json:"processes"`
	Calls     int `json:"calls"`
	// Problem is why the server last failed, in the server's words or ours. It is empty after a success.
	Problem string `json:"problem,omitempty"`
	// Down means that the server does not work: it failed, and has not answered since.
	Down bool `json:"down,omitempty"`
}

// State is what a server does.
type State string

// The states.
const (
	Stopped  State = "stopped"  // it starts with its next call
	Starting State = "starting" // or is being installed
	Running  State = "running"
	Failing  State = "failing" // it is not started for a while
)
