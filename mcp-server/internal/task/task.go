// Package task serves runs as MCP tasks, in both shapes of the specification:
//
//   - Revision 2025-11-25: a client asks for a task with the parameter task of tools/call, and then calls tasks/get,
//     tasks/result, tasks/cancel and tasks/list.
//   - The extension io.modelcontextprotocol/tasks of revision 2026-07-28: a client declares the extension with each
//     call, and the server may answer with a task. The client then calls tasks/get, tasks/cancel and tasks/update.
//
// The SDK knows no tasks, but its custom methods and middleware have room for them. The SDK drops the parameter task,
// so the transport repeats it in Header.
package task

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// Header is set by the transport on a tools/call with the parameter task. A client's value is overwritten.
	Header = "X-Codeforge-Task"

	// Extension is the extension's name.
	Extension = "io.modelcontextprotocol/tasks"
	// byClient is the first protocol version in which clients ask for tasks. byServer is the first with the extension.
	byClient, byServer = "2025-11-25", "2026-07-28"

	relatedKey = "io.modelcontextprotocol/related-task"
	// runKey in the _meta of a tool's result names the run whose task is the answer.
	runKey = "codeforge/task"

	pollInterval = time.Second

	// complete is the resultType of all results but a new task.
	complete = "complete"

	getMethod, cancelMethod = "tasks/get", "tasks/cancel"
	// Only one of the two shapes has these methods.
	resultMethod, listMethod, updateMethod = "tasks/result", "tasks/list", "tasks/update"
)

// Run is the state of a run.
type Run struct {
	ID string
	// Began is the start of the run. Ended is zero while the run goes on.
	Began, Ended time.Time
	// Progress describes a run that goes on, for a person or a model.
	Progress  string
	Cancelled bool
	// Result is the answer of the tool, or nil while the run goes on. ListTasks may leave it out.
	Result *mcp.CallToolResult
}

// Runs has the runs of one tenant.
type Runs interface {
	// FindTask returns a run after its end, or when ctx ends. If mayCancel, it cancels the run before. It returns false if
	// the tenant has no run with this ID.
	FindTask(ctx context.Context, id string, mayCancel bool) (Run, bool)
	// ListTasks returns a page of the runs of a user (see UserOf), the latest first, and the cursor of the next page.
	ListTasks(ctx context.Context, user, cursor string) (list []Run, next string, err error)
}

// Config configures AddMethods.
type Config struct {
	Runs Runs
	// Tools are the names of the tools whose runs can be tasks.
	Tools []string
	// TTL is how long a task can be found, from its start.
	TTL time.Duration
}

// Support is the relation of one tools/call to tasks.
type Support int

// A call without support gets the tool's result. The tool decides if tasks are Allowed. If a task is Asked for, the
// tool must answer at once with Answer, or else with an error.
const (
	None Support = iota
	Allowed
	Asked
)

// SupportOf returns the support of a call.
func SupportOf(req *mcp.CallToolRequest) Support {
	switch version := req.ProtocolVersion(); {
	case version >= byServer && declares(req.ClientCapabilities()):
		return Allowed
	case version >= byClient && version < byServer && req.Extra != nil && req.Extra.Header.Get(Header) != "":
		return Asked
	}
	return None
}

func declares(c *mcp.ClientCapabilities) bool { return c != nil && c.Extensions[Extension] != nil }

// UserOf returns the user of a request's token, or "" if its token belongs to no single user.
func UserOf(extra *mcp.RequestExtra) string {
	if extra == nil || extra.TokenInfo == nil {
		return ""
	}
	return extra.TokenInfo.UserID
}

// userKey is the key of the caller's user in the context of tasks/list: handlers of custom methods get no request.
type userKey struct{}

// Answer returns the result with which a tool answers a call by the task of a run.
func Answer(id string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Meta: mcp.Meta{runKey: id}}
}

// params are those of all methods of tasks.
type params struct {
	mcp.ParamsBase
	ID     string `json:"taskId"`
	Cursor string `json:"cursor"`
}

// wireTask is a task in the form of either shape.
type wireTask struct {
	mcp.ResultBase
	Type     string              `json:"resultType,omitempty"`
	ID       string              `json:"taskId"`
	Status   string              `json:"status"`
	Message  string              `json:"statusMessage,omitempty"`
	Created  time.Time           `json:"createdAt"`
	Updated  time.Time           `json:"lastUpdatedAt"`
	TTL      int64               `json:"ttl,omitempty"`
	Poll     int64               `json:"pollInterval,omitempty"`
	NewTTL   int64               `json:"ttlMs,omitempty"`
	NewPoll  int64               `json:"pollIntervalMs,omitempty"`
	Complete *mcp.CallToolResult `json:"result,omitempty"`
}

// reply is any other answer.
type reply struct {
	mcp.ResultBase
	Type  string      `json:"resultType,omitempty"`
	Task  *wireTask   `json:"task,omitempty"`
	Tasks []*wireTask `json:"tasks,omitzero"`
	Next  string      `json:"nextCursor,omitempty"`
}

// These add the fields that the SDK's types do not have.
type (
	initializeResult struct {
		*mcp.InitializeResult
		Capabilities capabilities `json:"capabilities"`
	}
	capabilities struct {
		*mcp.ServerCapabilities
		Tasks json.RawMessage `json:"tasks"`
	}
	toolsResult struct {
		*mcp.ListToolsResult
		Tools []tool `json:"tools"`
	}
	tool struct {
		*mcp.Tool
		Execution json.RawMessage `json:"execution,omitempty"`
	}
)

type server struct{ cfg Config }

// AddMethods adds the methods of tasks to a server. The server must declare Extension.
func AddMethods(to *mcp.Server, cfg Config) {
	s := &server{cfg}
	for _, method := range []string{getMethod, resultMethod, cancelMethod, listMethod, updateMethod} {
		err := mcp.AddReceivingCustomMethod(to, method,
			func(ctx context.Context, session *mcp.ServerSession, p *params) (mcp.Result, error) {
				isNew, err := checkCaller(method, session.InitializeParams())
				if err != nil {
					return nil, err
				}
				if p == nil {
					p = &params{}
				}
				return s.answerMethod(ctx, method, *p, isNew)
			})
		if err != nil { // only for a standard method
			panic(err)
		}
	}
	to.AddReceivingMiddleware(s.addTasks)
}

// checkCaller refuses a method that the caller's protocol does not have, and clients that do not declare the extension.
// isNew means the shape of the extension.
func checkCaller(method string, p *mcp.InitializeParams) (isNew bool, err error) {
	isNew = p != nil && p.ProtocolVersion >= byServer
	isOld := method == resultMethod || method == listMethod
	switch {
	case isNew && isOld, !isNew && method == updateMethod:
		return isNew, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not in this protocol version"}
	case isNew && !declares(p.Capabilities):
		return isNew, &jsonrpc.Error{
			Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client does not declare " + Extension,
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
		}
	}
	return isNew, nil
}

// addTasks is a middleware that declares tasks to clients of revision 2025-11-25, and answers calls with tasks.
func (s *server) addTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if hasOtherName(req) {
			return nil, &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "Mcp-Name differs from taskId"}
		}
		call, isCall := req.(*mcp.CallToolRequest)
		if isCall && SupportOf(call) == Asked && !slices.Contains(s.cfg.Tools, call.Params.Name) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: call.Params.Name + " does not run as a task"}
		}
		if method == listMethod {
			ctx = context.WithValue(ctx, userKey{}, UserOf(req.GetExtra()))
		}
		res, err := next(ctx, method, req)
		if err != nil {
			return res, err
		}
		switch r := res.(type) {
		case *mcp.InitializeResult:
			if r.ProtocolVersion == byClient {
				return &initializeResult{r, capabilities{r.Capabilities,
					json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)}}, nil
			}
		case *mcp.ListToolsResult:
			if list, ok := req.(*mcp.ListToolsRequest); ok && list.ProtocolVersion() == byClient {
				return s.withExecution(r), nil
			}
		case *mcp.CallToolResult:
			if isCall {
				return s.answerCall(ctx, SupportOf(call), r)
			}
		}
		return res, err
	}
}

// hasOtherName reports whether the header for routers names another task than the message. Clients of the extension set
// it (SEP-2663, Routing Headers).
func hasOtherName(req mcp.Request) bool {
	p, _ := req.GetParams().(*params)
	if p == nil || req.GetExtra() == nil {
		return false
	}
	name := req.GetExtra().Header.Get("Mcp-Name")
	return name != "" && name != p.ID
}

func (s *server) withExecution(r *mcp.ListToolsResult) *toolsResult {
	out := &toolsResult{ListToolsResult: r, Tools: []tool{}}
	for _, t := range r.Tools {
		add := tool{Tool: t}
		if slices.Contains(s.cfg.Tools, t.Name) {
			add.Execution = json.RawMessage(`{"taskSupport":"optional"}`)
		}
		out.Tools = append(out.Tools, add)
	}
	return out
}

// answerCall replaces the result of a tool by a task, if the tool asks for it.
func (s *server) answerCall(ctx context.Context, support Support, r *mcp.CallToolResult) (mcp.Result, error) {
	id, isTask := r.Meta[runKey].(string)
	switch {
	case isTask && support == None:
		// The first call of this run declared the extension, and this one, with the user's answer, does not.
		r.Content = []mcp.Content{&mcp.TextContent{Text: "Run " + id + ": still running; get_run waits for more."}}
		return r, nil
	case support == Asked && !isTask:
		var refusal []string
		for _, c := range r.Content {
			if t, ok := c.(*mcp.TextContent); ok {
				refusal = append(refusal, t.Text)
			}
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: strings.Join(refusal, "\n")}
	case !isTask:
		return r, nil
	}
	run, err := s.findNow(ctx, id)
	if err != nil {
		return nil, err
	}
	if support == Allowed {
		t := s.describe(run, true)
		t.Type, t.Complete = "task", nil
		return t, nil
	}
	return &reply{Task: s.describe(run, false)}, nil
}

// describe returns a run as a task. A run that failed is completed, as the extension has it: clients of revision
// 2025-11-25 do not fetch the result of a task that failed, so the model would not see the error of its code.
func (s *server) describe(r Run, isNew bool) *wireTask {
	t := &wireTask{ID: r.ID, Status: "completed", Created: r.Began.UTC(), Updated: r.Ended.UTC()}
	switch {
	case r.Ended.IsZero():
		t.Status, t.Message, t.Updated = "working", r.Progress, t.Created
	case r.Cancelled:
		t.Status = "cancelled"
	case isNew:
		t.Complete = r.Result
	}
	if isNew {
		t.Type, t.NewTTL, t.NewPoll = complete, s.cfg.TTL.Milliseconds(), pollInterval.Milliseconds()
	} else {
		t.TTL, t.Poll = s.cfg.TTL.Milliseconds(), pollInterval.Milliseconds()
	}
	return t
}

// findNow returns the present state of a run.
func (s *server) findNow(ctx context.Context, id string) (Run, error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	run, ok := s.cfg.Runs.FindTask(now, id, false)
	if !ok {
		return run, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("there is no task %.40q", id)}
	}
	return run, nil
}

func (s *server) answerMethod(ctx context.Context, method string, p params, isNew bool) (mcp.Result, error) {
	if method == listMethod {
		return s.listTasks(ctx, p.Cursor)
	}
	run, err := s.findNow(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	isOver := !run.Ended.IsZero()
	switch {
	case method == resultMethod:
		return s.awaitResult(ctx, p.ID)
	case method == cancelMethod && !isOver:
		run, _ = s.cfg.Runs.FindTask(ctx, p.ID, true)
	case method == cancelMethod && !isNew:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the task has ended"}
	}
	// A task never asks the user: tasks/update has no effect.
	if isNew && method != getMethod {
		return &reply{Type: complete}, nil
	}
	return s.describe(run, isNew), nil
}

func (s *server) awaitResult(ctx context.Context, id string) (mcp.Result, error) {
	run, _ := s.cfg.Runs.FindTask(ctx, id, false)
	if run.Result == nil { // the client has gone, or the history cannot be read
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the end of the run is unknown"}
	}
	res := *run.Result
	res.Meta = mcp.Meta{relatedKey: map[string]string{"taskId": id}}
	maps.Copy(res.Meta, run.Result.Meta)
	return &res, nil
}

func (s *server) listTasks(ctx context.Context, cursor string) (mcp.Result, error) {
	user, _ := ctx.Value(userKey{}).(string)
	runs, next, err := s.cfg.Runs.ListTasks(ctx, user, cursor)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	out := &reply{Tasks: []*wireTask{}, Next: next}
	for _, r := range runs {
		out.Tasks = append(out.Tasks, s.describe(r, false))
	}
	return out, nil
}
