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
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// pins are the definitions of tools that the user has accepted. What a server declares when it is first asked is
// accepted: whoever adds a server trusts it as it is now. What it declares later is held back until the user has seen
// it.
type pins struct {
	dir string // empty: they are forgotten with the process

	mu     sync.Mutex
	loaded map[string]*pinned // by server
	said   map[string]string  // by server: what was last said to be held back
}

// pinned is what is accepted of one server: a file of pins.dir.
type pinned struct {
	// Server is what the definitions are of: see subject.
	Server string `json:"server"`
	// Tools are the definitions by name, as canonical writes them.
	Tools map[string]json.RawMessage `json:"tools"`
}

// subject is what a server is, whatever its version and its settings: another one in its place starts anew, a new
// version does not.
func subject(s controlapi.Server) string {
	name := s.Package
	if at := strings.LastIndex(name, "@"); at > len("npm:") {
		name = name[:at]
	}
	line, _ := json.Marshal([]any{s.URL, name, s.Command}) // texts
	return string(line)
}

// taskOnly is the support of tasks of a tool that runs as a task only.
const taskOnly = "required"

// canonical is a tool's definition as far as models and code act on it, with keys in order.
func canonical(raw json.RawMessage) json.RawMessage {
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&all) != nil {
		return json.RawMessage("{}") // definitions reads objects only
	}
	keys := []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
	if how, _ := all["execution"].(map[string]any); how["taskSupport"] == taskOnly { // else it means nothing here
		keys = append(keys, "execution")
	}
	maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(keys, key) })
	line, _ := json.Marshal(all) // it was JSON
	return line
}

// Why a tool is held back.
const (
	heldNew     = "new"
	heldChanged = "changed"
)

// examine says of each tool whether it is held back. It records what a server declares when it is first asked. Nothing
// is recorded of a server that lists no tools: some list them only for a key that may use them; nor of tools that are
// only remembered, which no server declares now.
func (p *pins) examine(s *server, tools []*tool, remembered bool) {
	if s.spec.Pins == "off" || len(tools) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	have, err := p.load(s.api.Name)
	if err != nil {
		s.warn("the accepted tools of the server cannot be read, so all of them are held back; "+
			"codeforge mcp approve "+s.api.Name+" accepts them anew", "error", err)
	}
	if have == nil || err == nil && have.Server != subject(s.spec) {
		if remembered {
			return
		}
		have = &pinned{Server: subject(s.spec), Tools: map[string]json.RawMessage{}}
		for _, t := range tools {
			have.Tools[t.Name] = t.raw
		}
		if err := p.keep(s.api.Name, have); err != nil {
			p.loaded[s.api.Name] = have
			s.warn("the accepted tools of the server are forgotten with this process", "error", err)
		}
		s.log(fmt.Sprintf("%d tools of the server are accepted as they are now", len(tools)))
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
		names = append(names, t.held+" "+clean(t.Name))
	}
	list := strings.Join(names, ", ")
	if p.said[s.api.Name] == list {
		return
	}
	p.said[s.api.Name] = list
	if len(names) > 0 {
		const most = 20
		s.warn("tools of the server are not as they were accepted, and are held back; codeforge mcp approve "+
			s.api.Name+" shows what changed", "count", len(names), "tools", strings.Join(names[:min(len(names), most)], ", "))
	}
}

// load is what is accepted of a server, or nil if nothing is. With an error it is not nil, and nothing is accepted.
func (p *pins) load(name string) (*pinned, error) {
	if have := p.loaded[name]; have != nil || p.dir == "" {
		return have, nil
	}
	text, err := os.ReadFile(p.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	have := &pinned{}
	if err == nil {
		err = json.Unmarshal(text, have)
	}
	if err != nil {
		return &pinned{}, err
	}
	p.loaded[name] = have
	return have, nil
}

// file is where the accepted tools of a server are. A name of the catalog is a word.
func (p *pins) file(name string) string { return filepath.Join(p.dir, name+".json") }

// keep keeps what is accepted of a server. After an error that is what it was before.
func (p *pins) keep(name string, have *pinned) error {
	if p.dir != "" {
		line, err := json.Marshal(have)
		if err == nil {
			err = atomicfile.Write(p.file(name), line, 0o600)
		}
		if err != nil {
			return err
		}
	}
	p.loaded[name] = have
	return nil
}

// Review is what of a server's tools waits for the user. The server is asked for them if they are not known.
func (b *Broker) Review(ctx context.Context, name string) (operatorapi.Review, error) {
	r := operatorapi.Review{Server: name, Changes: []operatorapi.Change{}}
	s := b.server(name)
	if s == nil {
		return r, operatorapi.ErrNoServer
	}
	tools, f := s.list(ctx)
	if f != nil {
		return r, errors.New(f.message)
	}
	if s.spec.Pins == "off" {
		return r, nil
	}
	b.pins.mu.Lock()
	have, _ := b.pins.load(name) // what cannot be read accepts nothing
	b.pins.mu.Unlock()
	if have == nil {
		have = &pinned{}
	}
	there := map[string]bool{}
	sum := sha256.New()
	for _, t := range tools {
		there[t.Name] = true
		now := t.raw
		_, _ = fmt.Fprintf(sum, "%d %s\n", len(now), now) // never fails
		if t.held != "" {
			r.Changes = append(r.Changes, operatorapi.Change{Tool: t.Name, Kind: t.held, Before: have.Tools[t.Name], After: now})
		}
	}
	for _, gone := range slices.Sorted(maps.Keys(have.Tools)) {
		if !there[gone] {
			r.Changes = append(r.Changes, operatorapi.Change{Tool: gone, Kind: "removed", Before: have.Tools[gone]})
		}
	}
	r.Digest = hex.EncodeToString(sum.Sum(nil))
	return r, nil
}

// Approve accepts the tools of a server as Review has shown them: the digest is of what it showed, so that nothing is
// accepted that were added since.
func (b *Broker) Approve(ctx context.Context, name, digest string) error {
	r, err := b.Review(ctx, name)
	if err != nil {
		return err
	}
	if r.Digest != digest {
		return errors.New("the tools have changed again since they were shown: look at them again")
	}
	s := b.server(name)
	if s == nil {
		return operatorapi.ErrNoServer
	}
	b.mu.Lock()
	tools := slices.Clone(s.tools)
	for i, t := range tools {
		accepted := *t
		accepted.held = ""
		tools[i] = &accepted
	}
	b.mu.Unlock()
	have := &pinned{Server: subject(s.spec), Tools: map[string]json.RawMessage{}}
	sum := sha256.New()
	for _, t := range tools {
		have.Tools[t.Name] = t.raw
		_, _ = fmt.Fprintf(sum, "%d %s\n", len(have.Tools[t.Name]), have.Tools[t.Name])
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return errors.New("the tools have changed again since they were shown: look at them again")
	}
	b.pins.mu.Lock()
	err = b.pins.keep(name, have)
	b.pins.mu.Unlock()
	if err != nil {
		return fmt.Errorf("what you accept cannot be stored, so nothing was accepted: %w", err)
	}
	b.mu.Lock()
	s.tools = tools
	b.mu.Unlock()
	s.log("the user accepted the tools of the server as they are now")
	return nil
}

// Held is how many tools of a server wait for the user, as far as they are known.
func (b *Broker) Held(name string) int {
	s := b.server(name)
	if s == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.held()
}

// held is how many tools wait for the user. Broker.mu is held.
func (s *server) held() (n int) {
	for _, t := range s.tools {
		if t.held != "" {
			n++
		}
	}
	return n
}

// quarantine is the failure of a call of a tool that is held back, or nil.
func (s *server) quarantine(t *tool) *failure {
	if t.held == "" {
		return nil
	}
	why := "this tool has changed since the user accepted it"
	if t.held == heldNew {
		why = "this tool has come since the user accepted those of the server"
	}
	return &failure{
		code: quarantined, message: why + ", and is held back",
		hint: "Do without it, and tell the user: codeforge mcp approve " + s.api.Name + " shows what changed.",
	}
}
