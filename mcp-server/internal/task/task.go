// Package task serves runs as MCP tasks, in both shapes of the specification:
//
//   - Revision 2025-11-25: a client asks for a task with the parameter task of tools/call, and then calls tasks/get,
//     tasks/result, tasks/cancel and tasks/list.
//   - The extension io.modelcontextprotocol/tasks of revision 2026-07-28: a client declares the extension with each
//     call, and the server may answer with a task. The client then calls tasks/get, tasks/cancel and tasks/update.
//
// The SDK does not support tasks, so the package adds custom methods and middleware. The SDK drops the parameter task,
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
	// Header is the header that the transport adds to a tools/call with the parameter task. The transport removes the
	// client's value.
	Header = "X-Codeforge-Task"

	// Extension is the extension's name.
	Extension = "io.modelcontextprotocol/tasks"
	// paramVersion is the protocol version with the parameter task. extensionVersion is the first one with the extension.
	paramVersion, extensionVersion = "2025-11-25", "2026-07-28"

	relatedKey = "io.modelcontextprotocol/related-task"
	// runKey in the _meta of a tool's result names the run whose task is the answer.
	runKey = "codeforge/task"

	pollInterval = time.Second

	// complete is the resultType of every result except a new task.
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
	// FindTask waits until a run or ctx ends, and returns the run. If mayCancel, it first cancels the run. It returns
	// false if the tenant has no run with this ID.
	FindTask(ctx context.Context, id string, mayCancel bool) (Run, bool)
	// ListTasks returns a page of the runs of a user (see UserOf), the latest first, and the cursor of the next page.
	ListTasks(ctx context.Context, user, cursor string) (list []Run, next string, err error)
}

// Config configures AddMethods.
type Config struct {
	Runs Runs
	// Tools are the names of the tools whose runs can be tasks.
	Tools []string
	// TTL is the time after the start of a task in which clients can find it.
	TTL time.Duration
}

// Support says whether a tool may answer a tools/call with a task.
type Support int

const (
	// None means that the tool must answer with its result.
	None Support = iota
	// Allowed means that the tool may answer with a task.
	Allowed
	// Required means that the tool must answer at once, with a task or with an error.
	Required
)

// SupportOf returns the support of a call.
func SupportOf(req *mcp.CallToolRequest) Support {
	switch version := req.ProtocolVersion(); {
	case version >= extensionVersion && hasExtension(req.ClientCapabilities()):
		return Allowed
	case version >= paramVersion && version < extensionVersion && req.Extra != nil && req.Extra.Header.Get(Header) != "":
		return Required
	}
	return None
}

func hasExtension(c *mcp.ClientCapabilities) bool { return c != nil && c.Extensions[Extension] != nil }

// UserOf returns the user of a request's token, or "" if the token is not one user's.
func UserOf(extra *mcp.RequestExtra) string {
	if extra == nil || extra.TokenInfo == nil {
		return ""
	}
	return extra.TokenInfo.UserID
}

// userKey is the key of the caller's user in the context of tasks/list. Handlers of custom methods get no request.
type userKey struct{}

// AnswerWithTask returns the result with which a tool answers a call with the task of a run.
func AnswerWithTask(id string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Meta: mcp.Meta{runKey: id}}
}

// params has the parameters of every method of tasks.
type params struct {
	mcp.ParamsBase
	ID     string `json:"taskId"`
	Cursor string `json:"cursor"`
}

// wireTask is a task as JSON, with the fields of both shapes.
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
	TTLMs    int64               `json:"ttlMs,omitempty"`
	PollMs   int64               `json:"pollIntervalMs,omitempty"`
	Complete *mcp.CallToolResult `json:"result,omitempty"`
}

// ToolResult returns the result of the tool, or nil.
func (t *wireTask) ToolResult() *mcp.CallToolResult { return t.Complete }

// reply is every other result as JSON, with the fields of both shapes.
type reply struct {
	mcp.ResultBase
	Type  string      `json:"resultType,omitempty"`
	Task  *wireTask   `json:"task,omitempty"`
	Tasks []*wireTask `json:"tasks,omitzero"`
	Next  string      `json:"nextCursor,omitempty"`
}

// These types add fields to those of the SDK.
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
				isExtension, err := checkCaller(method, session.InitializeParams())
				if err != nil {
					return nil, err
				}
				if p == nil {
					p = &params{}
				}
				return s.answerMethod(ctx, method, *p, isExtension)
			})
		if err != nil { // only for a standard method
			panic(err)
		}
	}
	to.AddReceivingMiddleware(s.addTasks)
}

// checkCaller refuses a method that the caller's protocol does not have, and clients that do not declare the extension.
// isExtension means the shape of the extension.
func checkCaller(method string, p *mcp.InitializeParams) (isExtension bool, err error) {
	isExtension = p != nil && p.ProtocolVersion >= extensionVersion
	isRevisionOnly := method == resultMethod || method == listMethod
	switch {
	case isExtension && isRevisionOnly, !isExtension && method == updateMethod:
		return isExtension, &jsonrpc.Error{
			Code: jsonrpc.CodeMethodNotFound, Message: method + " is not in this protocol version",
		}
	case isExtension && !hasExtension(p.Capabilities):
		return isExtension, &jsonrpc.Error{
			Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client does not declare " + Extension,
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
		}
	}
	return isExtension, nil
}

// addTasks is a middleware that declares tasks to clients of revision 2025-11-25, and answers calls with tasks.
func (s *server) addTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if hasOtherName(req) {
			return nil, &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "Mcp-Name differs from taskId"}
		}
		call, isCall := req.(*mcp.CallToolRequest)
		if isCall && SupportOf(call) == Required && !slices.Contains(s.cfg.Tools, call.Params.Name) {
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
			if r.ProtocolVersion == paramVersion {
				return &initializeResult{r, capabilities{r.Capabilities,
					json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)}}, nil
			}
		case *mcp.ListToolsResult:
			if list, ok := req.(*mcp.ListToolsRequest); ok && list.ProtocolVersion() == paramVersion {
				return s.addExecution(r), nil
			}
		case *mcp.CallToolResult:
			if isCall {
				return s.answerCall(ctx, SupportOf(call), r)
			}
		}
		return res, err
	}
}

// hasOtherName reports whether the header Mcp-Name names another task than the message. Clients of the extension set
// the header for routers (SEP-2663, Routing Headers).
func hasOtherName(req mcp.Request) bool {
	p, _ := req.GetParams().(*params)
	if p == nil || req.GetExtra() == nil {
		return false
	}
	name := req.GetExtra().Header.Get("Mcp-Name")
	return name != "" && name != p.ID
}

func (s *server) addExecution(r *mcp.ListToolsResult) *toolsResult {
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

// answerCall replaces the result of AnswerWithTask by the task. It returns other results unchanged.
func (s *server) answerCall(ctx context.Context, support Support, r *mcp.CallToolResult) (mcp.Result, error) {
	id, isTask := r.Meta[runKey].(string)
	switch {
	case isTask && support == None:
		// The run's first call declared the extension. The second call, with the user's answer, does not declare it.
		r.Content = []mcp.Content{&mcp.TextContent{Text: "Run " + id + ": still running; get_run waits for more."}}
		return r, nil
	case support == Required && !isTask:
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
	run, err := s.findAtOnce(ctx, id)
	if err != nil {
		return nil, err
	}
	if support == Allowed {
		t := s.describeRun(run, true)
		t.Type, t.Complete = "task", nil
		return t, nil
	}
	return &reply{Task: s.describeRun(run, false)}, nil
}

// describeRun returns a run as a task. The task of a failed run is completed, as in the extension. Clients of revision
// 2025-11-25 do not fetch the result of a failed task, so the model would not see the error of its code.
func (s *server) describeRun(r Run, isExtension bool) *wireTask {
	t := &wireTask{ID: r.ID, Status: "completed", Created: r.Began.UTC(), Updated: r.Ended.UTC()}
	switch {
	case r.Ended.IsZero():
		t.Status, t.Message, t.Updated = "working", r.Progress, t.Created
	case r.Cancelled:
		t.Status = "cancelled"
	case isExtension:
		t.Complete = r.Result
	}
	if isExtension {
		t.Type, t.TTLMs, t.PollMs = complete, s.cfg.TTL.Milliseconds(), pollInterval.Milliseconds()
	} else {
		t.TTL, t.Poll = s.cfg.TTL.Milliseconds(), pollInterval.Milliseconds()
	}
	return t
}

// findAtOnce returns a run without waiting for its end.
func (s *server) findAtOnce(ctx context.Context, id string) (Run, error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	run, ok := s.cfg.Runs.FindTask(now, id, false)
	if !ok {
		return run, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("there is no task %.40q", id)}
	}
	return run, nil
}

func (s *server) answerMethod(ctx context.Context, method string, p params, isExtension bool) (mcp.Result, error) {
	if method == listMethod {
		return s.listTasks(ctx, p.Cursor)
	}
	run, err := s.findAtOnce(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	hasEnded := !run.Ended.IsZero()
	switch {
	case method == resultMethod:
		return s.awaitResult(ctx, p.ID)
	case method == cancelMethod && !hasEnded:
		run, _ = s.cfg.Runs.FindTask(ctx, p.ID, true)
	case method == cancelMethod && !isExtension:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the task has ended"}
	}
	// A task never asks the user, so tasks/update has no effect.
	if isExtension && method != getMethod {
		return &reply{Type: complete}, nil
	}
	return s.describeRun(run, isExtension), nil
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
		out.Tasks = append(out.Tasks, s.describeRun(r, false))
	}
	return out, nil
}
