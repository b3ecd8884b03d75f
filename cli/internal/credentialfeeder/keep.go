package credentialfeeder

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const (
	// glance is the interval at which KeepSupplying asks the proxy for due credentials.
	glance = 5 * time.Second
	// again is the pause before a failed program runs again.
	again = 30 * time.Second
)

// Proxy is the part of credentialapi.Client that a feeder uses.
type Proxy interface {
	ListCredentials(ctx context.Context) ([]credentialapi.Credential, error)
	SupplyValue(ctx context.Context, name string, s credentialapi.SuppliedValue) error
}

// Source is apis/ on this machine.
type Source struct {
	APIs   string
	Getenv func(string) string
}

// listCommands returns the programs by token name.
func (s Source) listCommands() map[string][]string {
	c, _ := catalog.Load(s.APIs, catalog.Options{Getenv: s.Getenv}) // codeforge check shows the problems
	out := map[string][]string{}
	for _, cr := range c.AllCredentials() {
		if command, ok := cr.Mint.(*catalog.Command); ok {
			out[cr.Name] = command.Args
		}
	}
	return out
}

// Outcome is the result for one credential. Err never contains its value.
type Outcome struct {
	Name string
	Err  error
}

// errUnknown is the error for a credential that the proxy has but this machine's apis/ lacks.
var errUnknown = errors.New(`apis/ on this machine has no such credential with "command"`)

// SupplyOnce supplies the credentials that the proxy lists with "command": the due ones, or all.
func (f *Feeder) SupplyOnce(ctx context.Context, p Proxy, s Source, all bool) ([]Outcome, error) {
	list, err := p.ListCredentials(ctx)
	if err != nil {
		return nil, err
	}
	var due []string
	for _, c := range list {
		if c.Kind == "command" && (all || isDue(c, time.Now())) {
			// Only the name comes from the proxy. The program comes from apis/ on this machine.
			due = append(due, c.Name)
		}
	}
	if len(due) == 0 {
		return nil, nil
	}
	slices.Sort(due)
	commands := s.listCommands()
	return convert.Each(due, func(name string) Outcome {
		return Outcome{name, f.supplyCredential(ctx, p, name, commands[name])}
	}), nil
}

func isDue(c credentialapi.Credential, now time.Time) bool {
	return c.State == credentialapi.StateSupply || c.DueAt != nil && now.After(*c.DueAt)
}

func (f *Feeder) supplyCredential(ctx context.Context, p Proxy, name string, args []string) error {
	if len(args) == 0 {
		return errUnknown
	}
	v, err := f.RunProgram(ctx, args)
	if err != nil {
		return err
	}
	return p.SupplyValue(ctx, name, v)
}

// KeepSupplying supplies due credentials until ctx ends. It calls tell for the first failure after a success.
func (f *Feeder) KeepSupplying(ctx context.Context, p Proxy, s Source, tell func(Outcome)) {
	failed := map[string]bool{}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next := glance
		outcomes, err := f.SupplyOnce(ctx, p, s, false)
		if err != nil { // the proxy has not started yet, or has stopped
			tick.Reset(next)
			continue
		}
		for _, o := range outcomes {
			if o.Err == nil {
				delete(failed, o.Name)
				continue
			}
			next = again
			if !failed[o.Name] && ctx.Err() == nil {
				tell(o)
			}
			failed[o.Name] = true
		}
		tick.Reset(next)
	}
}
