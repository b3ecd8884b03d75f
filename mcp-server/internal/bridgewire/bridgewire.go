// Package bridgewire defines the messages between mcp-server's broker and the bridge in a server slot. Each frame is
// one JSON object on one line, over the bridge's standard input and output.
//
// Threat: the bridge shares its slot with an untrusted server, which can write frames itself. Contract: the reader
// bounds each line, its depth and its meaning, and the broker trusts a frame no more than the server.
package bridgewire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

const (
	// MaxMessage bounds a server's message and a result, in bytes.
	MaxMessage = 16 << 20
	// MaxLine bounds a line, in bytes without its end: a message, and the frame around it.
	MaxLine = MaxMessage + 64<<10
	// MaxDepth bounds the nesting of a message.
	MaxDepth = 512
	// MaxLog bounds the text of one log frame, in bytes.
	MaxLog = 4 << 10
)

// Methods of a request.
const (
	ToolsMethod     = "tools"     // no params -> Tools
	CallMethod      = "call"      // Call -> the CallToolResult
	ResourcesMethod = "resources" // no params -> Resources
	ReadMethod      = "read"      // Read -> the ReadResourceResult
	PromptsMethod   = "prompts"   // no params -> Prompts
	PromptMethod    = "prompt"    // Prompt -> the GetPromptResult
)

// Codes of Error and Failed.
const (
	ServerError    = "server_error"     // the server answered with an error; Data is its JSON-RPC error
	ResultTooLarge = "result_too_large" // the answer is larger than MaxMessage, or nests deeper than MaxDepth
	Cancelled      = "cancelled"        // the call was cancelled, and the server answered or has no process to end
	Abandoned      = "abandoned"        // the call was cancelled; the server lives, but does not report whether it stopped
	Hung           = "hung"             // the call was cancelled, and the server does not answer
	Gone           = "gone"             // the connection to the server ended; the call may have been carried out
	NotSent        = "not_sent"         // the call was certainly not sent
	BadRequest     = "bad_request"      // the frame is invalid
	NotStarted     = "not_started"      // the server's process could not be started, or ended before it was connected
	NotConnected   = "not_connected"    // the server did not answer in time, or not as an MCP server
	Refused        = "refused"          // the server answered 401 or 403
	Limited        = "limited"          // the server answered 429, so it did not carry out the call
)

// ToBridge is a frame to the bridge. The first frame has only Start.
type ToBridge struct {
	Start *Start `json:"start,omitempty"`
	// ID numbers requests from 1. The bridge answers each once.
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	// Cancel is the ID of a request that is no longer wanted. The bridge still answers that request.
	Cancel uint64 `json:"cancel,omitempty"`
	// Answer is the answer to a Question.
	Answer *Answer `json:"answer,omitempty"`
}

// Start names the server and how to reach it. Exactly one of Command and URL is set.
type Start struct {
	Command []string `json:"command,omitempty"`
	// Env is added to the environment of the bridge and of the server.
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // of requests to URL's host
	// Transport of a URL: "http", "sse", or "auto". "auto" and empty mean the first of the two that works.
	Transport string `json:"transport,omitempty"`
	// Protocol is a protocol version to use without negotiation, or empty.
	Protocol         string `json:"protocol,omitempty"`
	ConnectTimeoutMS int64  `json:"connect_timeout_ms"`
}

// Call is the params of CallMethod.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Read is the params of ReadMethod.
type Read struct {
	URI string `json:"uri"`
}

// Prompt is the params of PromptMethod.
type Prompt struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// Tools is the result of ToolsMethod. Truncated means that the server has more pages than the bridge reads.
type Tools struct {
	Tools     []json.RawMessage `json:"tools"`
	Truncated bool              `json:"truncated,omitempty"`
}

// Resources is the result of ResourcesMethod.
type Resources struct {
	Resources []json.RawMessage `json:"resources"`
	Templates []json.RawMessage `json:"templates"`
	Truncated bool              `json:"truncated,omitempty"`
}

// Prompts is the result of PromptsMethod.
type Prompts struct {
	Prompts   []json.RawMessage `json:"prompts"`
	Truncated bool              `json:"truncated,omitempty"`
}

// FromBridge is a frame from the bridge. The first one has Ready or Failed, later ones are answers. Failed may also
// come later, as the last frame.
type FromBridge struct {
	Ready  *Ready          `json:"ready,omitempty"`
	Failed *Failed         `json:"failed,omitempty"`
	ID     uint64          `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Log is output of the server on its standard error, or a remark of the bridge.
	Log string `json:"log,omitempty"`
	// Changed means that the server's list of tools has changed.
	Changed bool `json:"tools_changed,omitempty"`
	// Question is a question of the server to the user during a request.
	Question *Question `json:"question,omitempty"`
	// Progress is the progress of a request.
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is the server's last report about a request.
type Progress struct {
	Request uint64  `json:"request"`
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: unknown
	Message string  `json:"message,omitempty"`
}

// Question is a form that the server asks the user to fill in.
type Question struct {
	// ID numbers questions from 1. The broker answers each once.
	ID uint64 `json:"id"`
	// Request is the ID of the request that the question belongs to. 0 means that the server does not name it.
	Request uint64          `json:"request,omitempty"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"`
}

// Answer is the user's reaction to a question.
type Answer struct {
	ID      uint64          `json:"id"`
	Action  string          `json:"action,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
	// Refused is the reason why the user was not asked. If set, Action is empty.
	Refused string `json:"refused,omitempty"`
}

// Ready means that the server is connected, with this version of MCP.
type Ready struct {
	Protocol string `json:"protocol"`
}

// Failed is the reason why the bridge ends.
type Failed struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is the reason why a request has no result.
type Error struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errors of a line. The reader reads no further lines after them.
var (
	ErrTooLong = fmt.Errorf("a frame is longer than %d bytes", MaxLine)
	ErrTooDeep = fmt.Errorf("a frame nests deeper than %d", MaxDepth)
)

// Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	lines *bufio.Reader
	size  int // of the last line
	err   error
}

// NewReader returns a Reader of frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReaderSize(r, 32<<10)} }

// Read reads the next frame into a ToBridge or FromBridge. io.EOF means the end between two frames.
func (r *Reader) Read(into any) error {
	if r.err == nil {
		r.err = r.readNext(into)
	}
	return r.err
}

// FrameSize returns the size of the last frame, in bytes.
func (r *Reader) FrameSize() int { return r.size }

func (r *Reader) readNext(into any) error {
	line, err := readLine(r.lines, MaxLine)
	if err != nil {
		return err
	}
	r.size = len(line)
	// Checked before decoding: the bound of encoding/json, 10,000 levels, is far above MaxDepth.
	if NestingDepth(line) > MaxDepth {
		return ErrTooDeep
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("reading a frame: %w", err)
	}
	return nil
}

// readLine reads a line of at most limit bytes, and returns it without its end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		// Checked for each part, so that a line without an end does not fill the memory.
		if len(line)+len(part) > limit+1 {
			return nil, ErrTooLong
		}
		switch {
		case err == nil && line == nil:
			// A copy, because the part is in the reader's buffer, which the next read overwrites.
			return bytes.TrimSuffix(bytes.Clone(part), []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
			line = append(line, part...)
		case errors.Is(err, io.EOF) && len(line)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSuffix(append(line, part...), []byte("\n")), nil
		}
	}
}

// NestingDepth returns the nesting depth of a JSON text. For another text the result has no meaning.
func NestingDepth(text []byte) int {
	depth, deepest := 0, 0
	quoted, escaped := false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			// Brackets in a string do not count, so the scan follows quotes and escapes.
			escaped, quoted = b == '\\', b != '"'
		case b == '"':
			quoted = true
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewWriter returns a Writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame. After ErrTooLong, which writes no byte, the Writer stays usable. Other errors are final.
func (w *Writer) Write(frame any) error {
	line, err := EncodeLine(frame)
	if err != nil {
		return err
	}
	if len(line) > MaxLine+1 {
		return ErrTooLong
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// An incomplete line would join with the next one, so a failed Writer stays closed.
	if w.err == nil {
		_, w.err = w.w.Write(line)
	}
	return w.err
}

// EncodeLine returns a value as one line of JSON with its end.
func EncodeLine(value any) ([]byte, error) {
	text, err := convert.ToJSON(value)
	return append(text, '\n'), err
}
