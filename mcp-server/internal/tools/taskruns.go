package tools

import (
	"context"
	"slices"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/task"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// taskPage is the largest number of stored runs in a page of tasks/list.
const taskPage = 50

// taskRuns implements task.Runs. Every run of the tenant is a task.
type taskRuns struct{ *Surface }

// FindTask implements task.Runs.
func (r taskRuns) FindTask(ctx context.Context, id string, mayCancel bool) (task.Run, bool) {
	if mayCancel {
		short, stop := context.WithTimeout(ctx, cancelTime)
		defer stop()
		ctx = short
	}
	switch l, d, err := r.waitForRun(ctx, id, mayCancel); {
	case err != nil:
		return task.Run{}, false
	case l == nil:
		return describeStored(d), true
	default:
		return l.describeTask(), true
	}
}

// ListTasks implements task.Runs. If the history is off, it lists the background runs in memory.
func (r taskRuns) ListTasks(ctx context.Context, user, cursor string) (list []task.Run, next string, err error) {
	if r.cfg.History.Mode() == history.Off {
		r.runs.mu.Lock()
		defer r.runs.mu.Unlock()
		for _, l := range slices.Backward(r.runs.list) {
			if r.canList(user, l.user) {
				list = append(list, l.describeTask())
			}
		}
		return list, "", nil
	}
	filter := operatorapi.RunFilter{Limit: taskPage}
	if r.cfg.Tenant != nil {
		filter.Tenant = r.cfg.Tenant.Name
	}
	page, err := r.cfg.History.ListRuns(ctx, filter, cursor)
	for _, run := range page.Runs {
		if r.isOwn(run) && r.canList(user, run.User) { // the operator's page has every tenant's runs
			list = append(list, describeStored(operatorapi.Detail{Run: run}))
		}
	}
	return list, page.Next, err
}

// canList reports whether a user of the tenant may list an owner's run. With the run's ID, each user of the tenant can
// use the run.
func (r taskRuns) canList(user, owner string) bool {
	//defence:task-user permits
	return user == owner || r.cfg.Tenant == nil // the operator is one user
}

func (l *longRun) describeTask() task.Run {
	t := task.Run{ID: l.id, Began: l.began}
	if l.hasEnded() {
		t.Ended, t.Cancelled, t.Result = l.endedAt, l.isCancelled, l.result
		return t
	}
	t.Progress = l.describeProgress()
	return t
}

func describeStored(d operatorapi.Detail) task.Run {
	t := task.Run{ID: d.ID, Began: d.Began, Progress: d.State}
	if d.IsUnfinished() {
		return t
	}
	// Every protocol with tasks has links.
	t.Ended, t.Result = d.Ended, renderStored(d, firstWithLinks)
	if t.Ended.IsZero() { // mcp-server ended before the run
		t.Ended = d.Began
	}
	t.Cancelled = d.State == operatorapi.Stopped && d.Reason != describeNoExit(errRestart)
	return t
}
