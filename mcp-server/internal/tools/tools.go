// Package tools provides the tools, resources, prompt and instructions that MCP clients see, on one mcp.Server. It
// reads and bounds the arguments of each call, such as the time limit of a run (execute.go).
//
// Text for the model is only in content. Tools have hand-written input schemas. The list of tools changes only with the
// languages of the sandbox, so that a catalog change does not make clients reload the list.
// A panic in a handler is an error of that call only.
package tools

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures a Surface.
type Config struct {
	// Executor may be nil if the server runs no code. Then Surface does not check whether skills load.
	Executor *execution.Executor
	Catalog  *catalogwatch.Watcher
	Control  *proxyapi.Client
	Skills   *skill.Store
	// Servers may be nil: then no tools of MCP servers are known.
	Servers Servers
	// Library may be nil: then no operations of APIs are known.
	Library *apidoc.Library
	// History may be nil: then no runs are stored.
	History *history.Store
	// Tenant is the tenant that the surface serves. Nil means the operator.
	Tenant *execution.TenantSources
	// Alarms may be nil: then no session is ever frozen.
	Alarms  *alarm.Set
	Log     *slog.Logger
	Version string
	// Debug logs code and output.
	Debug bool
	// YOLO adds a sentence on YOLO_MODE to the instructions.
	YOLO bool
	// OutputLimit bounds the output that a model is shown, in characters.
	OutputLimit int
	// TimeoutDefault and TimeoutMax are the default and the largest time limit of a run.
	TimeoutDefault, TimeoutMax time.Duration
	// AnswerAfter is the time after which execute_code answers although its run goes on.
	AnswerAfter time.Duration
	// Slots is the number of runs at once. All surfaces share Background, whose capacity is the largest number of
	// background runs of all tenants.
	Slots      int
	Background chan struct{}
	// TakeInput, if not nil, returns the input of a run by its ID, once, or nil.
	TakeInput func(id string) *sandboxapi.Input
	// Called, if not nil, is called after every tool call.
	Called func(tool string, failed bool, took time.Duration)
}

// Surface is an mcp.Server with everything that clients see.
type Surface struct {
	cfg    Config
	server *mcp.Server
	shelf  *skillResources
	desk   userform.Desk
	finder indexCache
	runs   runTable
	// writers counts the running calls that may change skills.
	writers writerCount
	// report is the sandbox's last report, or nil before the first one.
	report atomic.Pointer[sandboxapi.Health]
}

// New returns a surface with all tools, resources and the prompt.
func New(cfg Config) *Surface {
	s := &Surface{cfg: cfg}
	s.runs.all, s.runs.most = cfg.Background, max(1, cfg.Slots/2)
	s.shelf = &skillResources{surface: s}
	s.server = NewServer(ServerConfig{
		Version:      cfg.Version,
		Instructions: instructionsText(cfg.YOLO),
		Log:          cfg.Log,
		Complete:     s.shelf.completeName,
		Subscribe:    s.shelf.acceptSubscription,
		Unsubscribe:  s.shelf.endSubscription,
	})
	s.addExecute()
	s.addGetRun()
	task.AddMethods(s.server, task.Config{
		Runs: taskRuns{s}, Tools: []string{"execute_code"}, TTL: cfg.TimeoutMax + keepTime,
	})
	s.addAPIs()
	s.addSkillTools()
	s.shelf.registerAll()
	s.addFileResources()
	return s
}

// publicCatalog returns the public catalog in the view of the surface's tenant.
func (s *Surface) publicCatalog() proxyapi.Catalog {
	if s.cfg.Tenant == nil {
		return s.cfg.Catalog.Catalog()
	}
	return s.cfg.Tenant.NarrowCatalog(s.cfg.Catalog.Catalog())
}

// Server returns the server to connect sessions to.
func (s *Surface) Server() *mcp.Server { return s.server }

// ServerConfig configures NewServer.
type ServerConfig struct {
	Version      string
	Instructions string
	Log          *slog.Logger
	Complete     func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error)
	// Fixture is for the conformance suite: it declares logging, and omits the skills extension.
	Fixture bool
	// Subscribe and Unsubscribe handle resource subscriptions. Set both or neither.
	Subscribe   func(context.Context, *mcp.SubscribeRequest) error
	Unsubscribe func(context.Context, *mcp.UnsubscribeRequest) error
}

// NewServer returns a server without features, with the options and the panic recovery that all CodeForge servers have.
func NewServer(cfg ServerConfig) *mcp.Server {
	capabilities := &mcp.ServerCapabilities{
		Tools:     &mcp.ToolCapabilities{ListChanged: true},
		Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: cfg.Subscribe != nil},
		Prompts:   &mcp.PromptCapabilities{ListChanged: true},
	}
	capabilities.AddExtension(task.Extension, nil)
	if cfg.Fixture {
		capabilities.Logging = &mcp.LoggingCapabilities{} //nolint:staticcheck // deprecated, and still in the suite
	} else {
		capabilities.AddExtension(skillsExtension, nil)
	}
	self := &mcp.Implementation{Name: "codeforge", Title: "CodeForge", Version: cfg.Version}
	server := mcp.NewServer(self, &mcp.ServerOptions{
		Instructions:       cfg.Instructions,
		Capabilities:       capabilities,
		CompletionHandler:  cfg.Complete,
		SubscribeHandler:   cfg.Subscribe,
		UnsubscribeHandler: cfg.Unsubscribe,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.CacheScope = "private" // skills and catalog belong to one user
		},
	})
	// recovering is the outer one, so that it covers bounded too.
	server.AddReceivingMiddleware(recoverPanics(cfg.Log), rejectLongParams)
	return server
}

// recoverPanics turns a panic in a handler into an error of that call.
func recoverPanics(log *slog.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			defer func() {
				if p := recover(); p != nil {
					log.Error("panic in a handler", logline.Tag("mcp"), slog.String("method", method),
						slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
					res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
						Message: "internal error; the server's log has the details"}
				}
			}()
			return next(ctx, method, req)
		}
	}
}

func textResult(blocks ...string) *mcp.CallToolResult {
	r := &mcp.CallToolResult{}
	for _, b := range blocks {
		r.Content = append(r.Content, &mcp.TextContent{Text: b})
	}
	return r
}

func errorResult(blocks ...string) *mcp.CallToolResult {
	r := textResult(blocks...)
	r.IsError = true
	return r
}

// toolHints returns annotations with all four hints set.
func toolHints(readOnly, destructive, idempotent, openWorld bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{
		ReadOnlyHint: readOnly, DestructiveHint: &destructive, IdempotentHint: idempotent, OpenWorldHint: &openWorld,
	}
}

// refuseIfFrozen refuses a tool that may change something, if an alarm has frozen the session.
func (s *Surface) refuseIfFrozen(t *mcp.Tool, h mcp.ToolHandler) mcp.ToolHandler {
	if t.Annotations != nil && t.Annotations.ReadOnlyHint {
		return h
	}
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		// Checked at each call: the alarm may have come since the session's last one.
		if a, ok := s.cfg.Alarms.FreezingAlarm(s.callerSession(req)); ok {
			note := describeFrozen(a)
			return resultContents("", []readertext.Text{note, readertext.NewText("Not done.")}, true), nil
		}
		return h(ctx, req)
	}
}

// describeFrozen returns the reason why a session is frozen. Code chose the host's text. An alarm without a number
// means that the list of alarms could not be read: see alarm.Set.FreezingAlarm.
func describeFrozen(a operatorapi.Alarm) readertext.Text {
	if a.Number == 0 {
		return readertext.NewText(
			"CodeForge's database does not answer, so CodeForge does not know which sessions are frozen " +
				"and runs no code. Try again in a minute{, and tell the user: codeforge status names the cause|. " +
				"codeforge status names the cause}.")
	}
	return readertext.NewText(
		"Frozen: code of this session tried to send %WHAT to %HOST, as code that steals keys would. CodeForge ended the "+
			"run{. This session runs no more code. Do not retry or work around it: tell the user. Only the user can let the "+
			"session run code again, with codeforge unfreeze|, and refuses later runs of the session. To allow them: "+
			"codeforge unfreeze %SESSION}.", "%WHAT", a.DescribeSecret(), "%HOST", safetext.OneLine(a.Host), "%SESSION",
		a.Session)
}

// addTool adds a tool and counts its calls.
func (s *Surface) addTool(t *mcp.Tool, h mcp.ToolHandler) {
	s.server.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		start := time.Now()
		res, err := s.refuseIfFrozen(t, h)(ctx, req)
		if s.cfg.Called != nil {
			s.cfg.Called(t.Name, err != nil || res.IsError, time.Since(start))
		}
		return res, err
	})
}
