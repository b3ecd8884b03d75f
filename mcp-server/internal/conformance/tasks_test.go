package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
)

// taskFixtures are runs that end after a time.
type taskFixtures struct {
	mu   sync.Mutex
	runs map[string]task.Run
}

func (f *taskFixtures) start(req *mcp.CallToolRequest, d time.Duration, result *mcp.CallToolResult) (*mcp.CallToolResult, error) {
	if task.SupportOf(req) == task.None {
		time.Sleep(d)
		return result, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("task-%d", len(f.runs))
	f.runs[id] = task.Run{ID: id, Began: time.Now()}
	time.AfterFunc(d, func() { f.end(id, false, result) })
	return task.AnswerWithTask(id), nil
}

func (f *taskFixtures) end(id string, cancelled bool, result *mcp.CallToolResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.runs[id]; ok && r.Ended.IsZero() {
		r.Ended, r.Cancelled, r.Result = time.Now(), cancelled, result
		f.runs[id] = r
	}
}

func (f *taskFixtures) FindTask(_ context.Context, id string, mayCancel bool) (task.Run, bool) {
	if mayCancel {
		f.end(id, true, nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.runs[id]
	return r, ok
}

func (f *taskFixtures) ListTasks(context.Context, string, string) ([]task.Run, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.runs)), "", nil
}

func addTasks(server *mcp.Server) {
	f := &taskFixtures{runs: map[string]task.Run{}}
	task.AddMethods(server, task.Config{Runs: f, Tools: []string{"slow_compute", "failing_job"}, TTL: time.Hour})
	tool(server, "greet", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a struct{ Name string }
		if err := json.Unmarshal(req.Params.Arguments, &a); err != nil {
			return nil, err
		}
		return say("Hello, %s!", a.Name)
	})
	tool(server, "slow_compute", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a struct{ Seconds int }
		if err := json.Unmarshal(req.Params.Arguments, &a); err != nil {
			return nil, err
		}
		result, _ := say("computed")
		return f.start(req, time.Duration(a.Seconds)*time.Second, result)
	})
	tool(server, "failing_job", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, _ := say("failed")
		result.IsError = true
		return f.start(req, time.Second, result)
	})
}

var failedCheck = regexp.MustCompile(`\[([\w-]+) *\].*FAILURE`)

// TestTaskScenarios runs the suite's scenarios of the tasks extension. It leaves out those of tools that ask during a
// task, and of tools that refuse clients without tasks: execute_code does neither.
func TestTaskScenarios(t *testing.T) {
	modules := testkit.InstallClients(t)
	url := fixture(t)
	for scenario, want := range map[string]string{
		"tasks-capability-negotiation": "", "tasks-wire-fields": "", "tasks-request-state-removal": "", "tasks-request-headers": "",
		// A run never ends with an error of the protocol.
		"tasks-lifecycle": "sep-2663-tasks-get-status-failed",
		// This check calls a tool that asks.
		"tasks-dispatch-and-envelope": "tasks-result-type-complete-on-non-task-responses",
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "conformance-next/dist/index.js"), "server", "--url", url, "--scenario", scenario)
			failed := ""
			for _, m := range failedCheck.FindAllStringSubmatch(out, -1) {
				failed += m[1]
			}
			if failed != want || !strings.Contains(out, "Passed: ") {
				t.Errorf("%v: %q failed\n%s", err, failed, out)
			}
		})
	}
}
