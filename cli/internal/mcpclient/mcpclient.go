// Package mcpclient is a client of the running CodeForge: it locates the server and opens MCP sessions with it.
package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config configures the search for the server.
type Config struct {
	// URL is the MCP endpoint, or docker://CONTAINER of mcp-server. Empty: Socket, else the supervisor of State, else the
	// container of Docker, else Fallback.
	URL string
	// Socket is the operator's socket inside mcp-server's container, or empty elsewhere.
	Socket string
	// State is the state directory of the embedded mode.
	State statedir.Dir
	// Docker returns mcp-server's container of a stack that the user may have started here, or "". Nil: do not search.
	Docker func(context.Context) (container string, err error)
	// Fallback is the endpoint if no supervisor runs: the one that Docker publishes. Empty: the user named State, and no
	// other server may be used.
	Fallback string
	// Token is the bearer token for an HTTP endpoint that requires one, or empty.
	Token secret.Value
}

// Place is the location of the server.
type Place struct {
	// State is the state directory whose run/mcp.sock leads to the server. Nil: Socket, Container or URL does.
	State *statedir.Dir
	// Socket is the operator's socket in this container. Container is the container for docker exec.
	Socket, Container string
	URL               string
}

// Name returns the place's name for a person.
func (p Place) Name() string {
	switch {
	case p.State != nil:
		return p.State.Path()
	case p.Socket != "":
		return "this container"
	case p.Container != "":
		return "the container " + p.Container
	}
	return p.URL
}

// IsLocal reports whether the place is the operator's socket, which offers more than the MCP endpoint.
func (p Place) IsLocal() bool { return p.State != nil || p.Socket != "" || p.Container != "" }

// socketURL is the endpoint's URL on a unix socket. Its host must only be one that the server accepts.
const socketURL = "http://localhost/mcp"

// LocateServer finds the server's place without connecting.
func LocateServer(ctx context.Context, c Config) (Place, error) {
	if name, ok := strings.CutPrefix(c.URL, docker.Scheme); ok {
		return Place{Container: name, URL: socketURL}, docker.CheckName(name)
	}
	if c.URL != "" {
		return Place{URL: c.URL}, nil
	}
	if c.Socket != "" {
		return Place{Socket: c.Socket, URL: socketURL}, nil
	}
	if _, err := c.State.ReadUp(); err == nil {
		return Place{State: &c.State, URL: socketURL}, nil
	} else if _, held := c.State.FindHolder(); held && !errors.Is(err, fs.ErrPermission) {
		return Place{}, err
	}
	// Either no server runs, or it is another user's (root's, by sudo), which accepts this user over HTTP.
	if c.Fallback == "" {
		return Place{}, explainAbsent(c)
	}
	if c.Docker != nil {
		if name, err := c.Docker(ctx); err != nil || name != "" {
			return Place{Container: name, URL: socketURL}, err
		}
	}
	return Place{URL: c.Fallback}, nil
}

// explainAbsent explains why a state directory that the user named cannot be reached.
func explainAbsent(c Config) error {
	_, err := c.State.ReadUp()
	if errors.Is(err, fs.ErrPermission) {
		return &absentError{fmt.Sprintf("the CodeForge in %s belongs to another user: name its endpoint with --url, e.g. "+
			"http://127.0.0.1:8080/mcp", c.State.Path()), err}
	}
	return &absentError{fmt.Sprintf("CodeForge is not running in %s%s. Start it with codeforge up --state %s",
		c.State.Path(), describeEnd(c), c.State.Path()), err}
}

// describeEnd returns how the CodeForge in the state directory ended by itself, in parentheses, or "".
func describeEnd(c Config) string {
	if e, ok := c.State.ReadLastEnd(); ok {
		return " (" + e.String() + ")"
	}
	return ""
}

// newClient returns an HTTP client that connects to the place. Over HTTP it sends the token.
func (p Place) newClient(token secret.Value) *http.Client {
	if !p.IsLocal() {
		return NewHTTPClient(token)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := p.dialSocket(ctx)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: err} // OpError "dial" means that nothing was sent
		}
		return conn, nil
	}
	return &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: answerTimeout, DialContext: dial}}
}

func (p Place) dialSocket(ctx context.Context) (net.Conn, error) {
	path := p.Socket
	switch {
	case p.Container != "":
		return docker.DialOperator(ctx, p.Container)
	case p.State != nil:
		in, release, err := p.State.Socket(statedir.MCPSocket)
		if err != nil {
			return nil, err
		}
		defer release()
		path = in
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// ConnectOperator returns a client of the operator's API. ok is false for a URL, which does not offer that API.
func ConnectOperator(ctx context.Context, c Config) (client operatorapi.Client, place Place, ok bool, err error) {
	place, err = LocateServer(ctx, c)
	if err != nil {
		return client, place, false, err
	}
	if !place.IsLocal() {
		return client, place, false, checkFallback(ctx, c, place)
	}
	return operatorapi.Client{HTTP: place.newClient(c.Token)}, place, true, nil
}

// checkFallback returns an error if the user named no server and none listens at the place.
func checkFallback(ctx context.Context, c Config, p Place) error {
	if c.URL != "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp"))
	if err != nil {
		return explainFailure(err, c, p)
	}
	return conn.Close()
}

// Session is an MCP session.
type Session struct {
	mcp *mcp.ClientSession
	// Place is the place at which the server was found.
	Place Place
}

// Options configure a session.
type Options struct {
	// Progress receives the server's progress messages. Nil: they are dropped.
	Progress func(message string)
}

// Connect opens a session.
func Connect(ctx context.Context, c Config, o Options) (*Session, error) {
	place, err := LocateServer(ctx, c)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "codeforge-cli", Version: version.Version}, &mcp.ClientOptions{
		// Without this field the SDK would announce roots, which the CLI does not have.
		Capabilities: &mcp.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if o.Progress != nil {
				o.Progress(r.Params.Message)
			}
		},
	})
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: place.URL, HTTPClient: place.newClient(c.Token), DisableStandaloneSSE: true, MaxEventSize: maxMessage,
	}, nil)
	if err != nil {
		return nil, explainStranger(ctx, c, place, explainFailure(err, c, place))
	}
	return &Session{mcp: s, Place: place}, nil
}

// maxMessage is the size of the largest accepted message, in bytes.
const maxMessage = 64 << 20

// explainFailure adds a remedy to a failed connection.
func explainFailure(err error, c Config, p Place) error {
	var op *net.OpError
	refused := errors.As(err, &op)
	switch {
	case p.IsLocal():
		return fmt.Errorf("connecting to the server in %s: %w", p.Name(), err)
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s closed the connection: without MCP_AUTH_TOKEN it accepts only the user who started it "+
			"(%w)", p.URL, err)
	case refused && c.URL == "" && !c.State.IsReadable():
		return &absentError{fmt.Sprintf("CodeForge does not answer at %s, and only the owner of %s can see whether it "+
			"runs there", p.URL, c.State.Path()), err}
	case refused && c.URL == "":
		return &absentError{fmt.Sprintf("CodeForge is not running, neither in %s%s nor at %s. "+
			"Start it with codeforge up or docker compose up -d", c.State.Path(), describeEnd(c), p.URL), err}
	case strings.Contains(err.Error(), "Unauthorized"):
		return fmt.Errorf("%s requires a token: set MCP_AUTH_TOKEN (in the environment or .env) to its value there", p.URL)
	}
	return fmt.Errorf("connecting to %s: %w", p.URL, err)
}

// absentError names a remedy. Its text omits the cause, which errors.Is finds.
type absentError struct {
	text  string
	cause error
}

func (e *absentError) Error() string { return e.text }

func (e *absentError) Unwrap() error { return e.cause }

// answerTimeout limits the wait for the start of an answer. It is longer than any run.
const answerTimeout = 10 * time.Minute

// NewHTTPClient returns an HTTP client that sends the token and connects directly, ignoring HTTP_PROXY.
func NewHTTPClient(token secret.Value) *http.Client {
	return &http.Client{Transport: bearerTransport{token, &http.Transport{ResponseHeaderTimeout: answerTimeout}}}
}

type bearerTransport struct {
	token secret.Value
	next  http.RoundTripper
}

// RoundTrip adds the Authorization header.
func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !b.token.IsEmpty() {
		// A RoundTripper must not change its request (net/http).
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	}
	return b.next.RoundTrip(r)
}

// Close ends the session.
func (s *Session) Close() error { return s.mcp.Close() }

// Result is the result of execute_code.
type Result struct {
	// Output is the first text for the model: stdout, or after a failure stderr and stdout.
	Output string `json:"output"`
	// Stderr is the standard error of a run that did not fail.
	Stderr string `json:"stderr,omitempty"`
	// Notes are the further texts, in the wording for a person if the server has one.
	Notes  []string `json:"notes,omitempty"`
	Failed bool     `json:"failed"`
	// Exit is nil if the code did not run or its end is unknown.
	Exit    *sandboxapi.Exit  `json:"exit,omitempty"`
	Receipt *proxyapi.Receipt `json:"receipt,omitempty"`
	// Files are the files that the run left in /out.
	Files []FileLink `json:"files,omitempty"`
}

// FileLink names a file of a run.
type FileLink struct {
	URI  string `json:"uri"`
	Name string `json:"name"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

// Keys in the _meta of a result, and of a block.
const (
	receiptKey = "codeforge/receipt"
	exitKey    = "codeforge/exit"
	notesKey   = "codeforge/notes"
	// patientKey is in the _meta of a call whose answer waits for the run's end.
	patientKey = "codeforge/patient"
	// inputKey is in the _meta of a call. It has the ID of the run's input.
	inputKey = "codeforge/input"
	// streamKey is in the _meta of the block of stderr, which begins with stderrLine.
	streamKey  = "codeforge/stream"
	stderrLine = "stderr:\n"
)

// Run holds the arguments of execute_code. Empty fields are omitted, so that the server's defaults apply.
type Run struct {
	Code     string              `json:"code"`
	Language sandboxapi.Language `json:"language,omitempty"`
	APIs     []string            `json:"apis,omitempty"`
	Timeout  float64             `json:"timeout,omitempty"` // in seconds
	DryRun   bool                `json:"dry_run,omitempty"`
	// Input is the run's own input, or nil. Only the operator's socket accepts one.
	Input *sandboxapi.Input `json:"-"`
}

// errNoInput is the error for an input at a place without the operator's socket.
var errNoInput = errors.New("--file and the standard input of a script need the operator's socket: run this where " +
	"CodeForge runs, or name docker://NAME")

// RunCode runs code.
func (s *Session) RunCode(ctx context.Context, args Run) (Result, error) {
	// The CLI shows the progress and waits, so the answer may come as late as the run's end.
	p := &mcp.CallToolParams{Name: "execute_code", Arguments: args, Meta: mcp.Meta{patientKey: true}}
	p.SetProgressToken("run")
	if args.Input != nil {
		if !s.Place.IsLocal() {
			return Result{}, errNoInput
		}
		client := operatorapi.Client{HTTP: s.Place.newClient(secret.Value{})} // the socket needs no token
		in, err := client.AddInput(ctx, args.Input)
		if err != nil {
			return Result{}, fmt.Errorf("sending the input of the run: %w", err)
		}
		p.Meta[inputKey] = in.ID
	}
	res, err := s.mcp.CallTool(ctx, p)
	if err != nil {
		return Result{}, unwrapAnswer(fmt.Errorf("running the code: %w", err))
	}
	return readResult(res)
}

// FetchRunFile fetches a file of a run.
func (s *Session) FetchRunFile(ctx context.Context, f FileLink) ([]byte, error) {
	res, err := s.mcp.ReadResource(ctx, &mcp.ReadResourceParams{URI: f.URI})
	if err != nil {
		return nil, unwrapAnswer(fmt.Errorf("fetching %s: %w", f.Name, err))
	}
	if len(res.Contents) != 1 {
		return nil, fmt.Errorf("fetching %s: the server sent no file", f.Name)
	}
	if c := res.Contents[0]; c.Blob == nil {
		return []byte(c.Text), nil
	}
	return res.Contents[0].Blob, nil
}

// unwrapAnswer returns the server's message without the chain of calls around it. Other errors stay unchanged.
func unwrapAnswer(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Message != "" {
		return errors.New(e.Message)
	}
	return err
}

// callTool calls a tool. A failure of the tool is an error.
func (s *Session) callTool(ctx context.Context, doing, tool string, args map[string]any) (Result, error) {
	res, err := s.mcp.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return Result{}, unwrapAnswer(fmt.Errorf("%s: %w", doing, err))
	}
	r, err := readResult(res)
	if err == nil && r.Failed {
		err = errors.New(strings.Join(append([]string{r.Output}, r.Notes...), "\n"))
	}
	return r, err
}

func readResult(res *mcp.CallToolResult) (Result, error) {
	out := Result{Failed: res.IsError}
	for i, c := range res.Content {
		if l, ok := c.(*mcp.ResourceLink); ok && l.Size != nil {
			out.Files = append(out.Files, FileLink{l.URI, l.Name, l.MIMEType, *l.Size})
		}
		text, ok := c.(*mcp.TextContent)
		if !ok {
			continue
		}
		switch {
		case i == 0:
			out.Output = text.Text
		case text.Meta[streamKey] == "stderr":
			out.Stderr = strings.TrimPrefix(text.Text, stderrLine)
		default:
			out.Notes = append(out.Notes, text.Text)
		}
	}
	told := struct {
		Output string
		Notes  []string
	}{out.Output, out.Notes}
	if err := errors.Join(decodeMeta(res.Meta, exitKey, &out.Exit), decodeMeta(res.Meta, notesKey, &told)); err != nil {
		return out, err
	}
	// The blocks address a model, and the metadata has the same notes for a person.
	out.Output, out.Notes = told.Output, told.Notes
	return out, decodeMeta(res.Meta, receiptKey, &out.Receipt)
}

// decodeMeta decodes one value of _meta into to. A missing value leaves to unchanged.
func decodeMeta(m mcp.Meta, key string, to any) error {
	v, ok := m[key]
	if !ok {
		return nil
	}
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		return fmt.Errorf("reading %s of the answer: %w", key, err)
	}
	return nil
}
