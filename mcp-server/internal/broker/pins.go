package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// acceptedStore are the definitions of tools that the user has accepted. The first definitions of a server count as
// accepted, because a user who adds a server trusts its present state. Later changes are held back until the user has
// reviewed them.
type acceptedStore struct {
	dir string // empty: the pins are lost when the process ends

	mu     sync.Mutex
	loaded map[string]*acceptedTools // by server
	said   map[string]string         // by server: the last reported list of held tools
}

// acceptedTools is the content of one file of acceptedStore.dir: the accepted tools of one server.
type acceptedTools struct {
	// Server identifies the server of the definitions: see serverSubject.
	Server string `json:"server"`
	// Digest is the configuration with which the server last declared exactly these tools (see digestOf), or empty. With
	// it, the tools are known after a restart, and listing them starts no server.
	Digest string `json:"digest,omitempty"`
	// Tools are the definitions by name, in the form that canonicalDefinition writes.
	Tools map[string]json.RawMessage `json:"tools"`
}

func newAcceptedTools(s *configuredServer, tools []*declaredTool) *acceptedTools {
	have := &acceptedTools{Server: serverSubject(s.spec), Digest: s.digest, Tools: map[string]json.RawMessage{}}
	for _, t := range tools {
		have.Tools[t.Name] = t.raw
	}
	return have
}

// serverSubject identifies a server without its version and settings. If another server takes its name, acceptance
// starts again; a new version of the same server does not cause this.
func serverSubject(s mcpserver.Settings) string {
	name := s.Package
	// A scope such as npm:@scope/name begins with @ too, which is no version.
	if at := strings.LastIndex(name, "@"); at > len("npm:") {
		name = name[:at]
	}
	line, _ := json.Marshal([]any{s.URL, name, s.Command}) // texts
	return string(line)
}

// taskOnly is the value of taskSupport for a tool that runs only as a task.
const taskOnly = "required"

// canonicalDefinition returns the parts of a tool's definition that models and code act on, with sorted keys.
func canonicalDefinition(raw json.RawMessage) json.RawMessage {
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	// Numbers stay exact: a float64 would make two different definitions equal.
	dec.UseNumber()
	if dec.Decode(&all) != nil {
		return json.RawMessage("{}") // definitions reads objects only
	}
	keys := []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
	if how, _ := all["execution"].(map[string]any); how["taskSupport"] == taskOnly { // other values have no effect here
		keys = append(keys, "execution")
	}
	maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(keys, key) })
	line, _ := json.Marshal(all) // it was JSON
	return line
}

// Reasons why a tool is held back.
const (
	heldNew     = "new"
	heldChanged = "changed"
)

// recallTools returns the tools that a server last declared, if all of them are accepted. They may be out of date:
// before a tool is called, the running server lists its tools again.
func (p *acceptedStore) recallTools(s *configuredServer) (tools []*declaredTool, isKnown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, err := p.loadAccepted(s.api.Name)
	if err != nil || have == nil || have.Digest != s.digest || s.spec.Pins == "off" {
		return nil, false
	}
	var all []json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(have.Tools)) {
		all = append(all, have.Tools[name])
	}
	return readDefinitions(all), true
}

// markHeldBack marks each tool that is held back, and accepts a server's first definitions. It accepts nothing from an
// empty list, because some servers list their tools only for a key that may use them.
func (p *acceptedStore) markHeldBack(s *configuredServer, tools []*declaredTool) {
	if s.spec.Pins == "off" || len(tools) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	have, err := p.loadAccepted(s.api.Name)
	if err != nil {
		s.logWarning("the accepted tools of the server cannot be read, so all of them are held back; "+
			"codeforge mcp approve "+s.api.Name+" accepts them again", "error", err)
	}
	if have == nil || err == nil && have.Server != serverSubject(s.spec) {
		have = newAcceptedTools(s, tools)
		if err := p.storeAccepted(s.api.Name, have); err != nil {
			p.loaded[s.api.Name] = have
			s.logWarning("the accepted tools of the server are forgotten with this process", "error", err)
		}
		s.logInfo(fmt.Sprintf("%d tools of the server are accepted as they are now", len(tools)))
		return
	}
	var names []string
	for _, t := range tools {
		switch accepted, known := have.Tools[t.Name]; {
		case !known:
			t.held = heldNew
		case !bytes.Equal(accepted, t.raw):
			t.held = heldChanged
		default:
			continue
		}
		names = append(names, t.held+" "+cleanText(t.Name))
	}
	digest := ""
	if len(names) == 0 && len(tools) == len(have.Tools) {
		digest = s.digest
	}
	if have.Digest != digest {
		declared := *have
		declared.Digest = digest
		_ = p.storeAccepted(s.api.Name, &declared) // an error only costs a start of the server after a restart
	}
	list := strings.Join(names, ", ")
	// A server can repeat its list every few seconds; only a change is worth a line in the log.
	if p.said[s.api.Name] == list {
		return
	}
	p.said[s.api.Name] = list
	if len(names) > 0 {
		const most = 20
		s.logWarning("tools of the server are not as they were accepted, and are held back; codeforge mcp approve "+
			s.api.Name+" shows what changed", "count", len(names), "tools", strings.Join(names[:min(len(names), most)], ", "))
	}
}

// loadAccepted returns the accepted tools of a server, or nil if there are none yet. After an error the result is not
// nil, and accepts no tool.
func (p *acceptedStore) loadAccepted(name string) (*acceptedTools, error) {
	if have := p.loaded[name]; have != nil || p.dir == "" {
		return have, nil
	}
	text, err := os.ReadFile(p.acceptedPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	have := &acceptedTools{}
	if err == nil {
		err = json.Unmarshal(text, have)
	}
	// An unreadable file must not count as a first start: a damaged file would accept everything.
	if err != nil {
		return &acceptedTools{}, err
	}
	p.loaded[name] = have
	return have, nil
}

// acceptedPath returns the path of a server's accepted tools. A catalog's name is safe as a file name.
func (p *acceptedStore) acceptedPath(name string) string { return filepath.Join(p.dir, name+".json") }

// storeAccepted stores the accepted tools of a server. After an error the earlier ones stay valid.
func (p *acceptedStore) storeAccepted(name string, have *acceptedTools) error {
	if p.dir != "" {
		line, err := json.Marshal(have)
		if err == nil {
			err = atomicfile.Write(p.acceptedPath(name), line, 0o600)
		}
		if err != nil {
			return err
		}
	}
	p.loaded[name] = have
	return nil
}

// ReviewTools returns the changes of a server's tools that wait for the user. It asks the server if its tools are
// unknown.
func (b *Broker) ReviewTools(ctx context.Context, name string) (operatorapi.Review, error) {
	r := operatorapi.Review{Server: name, Changes: []operatorapi.Change{}}
	s := b.findServer(name)
	if s == nil {
		return r, operatorapi.ErrNoServer
	}
	tools, f := s.listTools(ctx)
	if f != nil {
		return r, errors.New(f.message)
	}
	if s.spec.Pins == "off" {
		return r, nil
	}
	b.pins.mu.Lock()
	have, _ := b.pins.loadAccepted(name) // unreadable pins accept no tool
	b.pins.mu.Unlock()
	if have == nil {
		have = &acceptedTools{}
	}
	there := map[string]bool{}
	for _, t := range tools {
		there[t.Name] = true
		if t.held != "" {
			change := operatorapi.Change{Tool: t.Name, Kind: t.held, Before: have.Tools[t.Name], After: t.raw}
			r.Changes = append(r.Changes, change)
		}
	}
	for _, gone := range slices.Sorted(maps.Keys(have.Tools)) {
		if !there[gone] {
			r.Changes = append(r.Changes, operatorapi.Change{Tool: gone, Kind: "removed", Before: have.Tools[gone]})
		}
	}
	r.Digest = digestOfTools(tools)
	return r, nil
}

func digestOfTools(tools []*declaredTool) string {
	sum := sha256.New()
	for _, t := range tools {
		// The length separates the definitions, so that two different lists cannot give the same bytes.
		_, _ = fmt.Fprintf(sum, "%d %s\n", len(t.raw), t.raw) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ApproveTools accepts the tools of a server that ReviewTools has shown. The digest identifies that list, so later
// additions are not accepted.
func (b *Broker) ApproveTools(ctx context.Context, name, digest string) error {
	r, err := b.ReviewTools(ctx, name)
	if err != nil {
		return err
	}
	if r.Digest != digest {
		return errors.New("the tools have changed again since they were shown: look at them again")
	}
	s := b.findServer(name)
	if s == nil {
		return operatorapi.ErrNoServer
	}
	b.mu.Lock()
	tools := slices.Clone(s.tools)
	// Calls in flight use the old tools without the lock, so held changes only in copies.
	for i, t := range tools {
		accepted := *t
		accepted.held = ""
		tools[i] = &accepted
	}
	b.mu.Unlock()
	// Compared again: the server may have listed other tools after ReviewTools returned.
	if digestOfTools(tools) != digest {
		return errors.New("the tools have changed again since they were shown: look at them again")
	}
	b.pins.mu.Lock()
	err = b.pins.storeAccepted(name, newAcceptedTools(s, tools))
	b.pins.mu.Unlock()
	// The tools stay held until the file is written: a restart would otherwise hold them again without a reason.
	if err != nil {
		return fmt.Errorf("the tools were not accepted, because storing them failed: %w", err)
	}
	b.mu.Lock()
	s.tools, s.fresh = tools, false // another listing may have ended meanwhile
	b.mu.Unlock()
	s.logInfo("the user accepted the tools of the server as they are now")
	return nil
}

// CountHeld returns the number of a server's known tools that wait for the user.
func (b *Broker) CountHeld(name string) int {
	s := b.findServer(name)
	if s == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.countHeld()
}

// countHeld returns the number of tools that wait for the user. The caller holds Broker.mu.
func (s *configuredServer) countHeld() (n int) {
	for _, t := range s.tools {
		if t.held != "" {
			n++
		}
	}
	return n
}

// checkQuarantine returns the failure for a call of a tool that is held back, or nil.
func (s *configuredServer) checkQuarantine(t *declaredTool) *callFailure {
	if t.held == "" {
		return nil
	}
	why := "this tool has changed since the user accepted it"
	if t.held == heldNew {
		why = "this tool is newer than the tools that the user accepted"
	}
	return &callFailure{
		code: quarantined, message: why + ", and is held back",
		hint: "Do without it, and tell the user: codeforge mcp approve " + s.api.Name + " shows what changed.",
	}
}
