// Package frame is what mcp-server's broker and the bridge in a server slot say to each other: one JSON object a line,
// over the bridge's standard input and output.
//
// The bridge shares its slot with a server that is not trusted, so the broker trusts what it reads no more than it
// trusts the server: lines, their depth and their meaning are bounded on reading.
package frame

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// MaxMessage is the largest message of a server, and the largest result, in bytes.
	MaxMessage = 16 << 20
	// MaxLine is the longest line, in bytes without its end: a message, and what a frame adds to it.
	MaxLine = MaxMessage + 64<<10
	// MaxDepth is how deep a message may nest.
	MaxDepth = 512
	// MaxLog is the longest text of one log frame, in bytes.
	MaxLog = 4 << 10
)

// The methods of a request.
const (
	ToolsMethod     = "tools"     // no params -> Tools
	CallMethod      = "call"      // Call -> the CallToolResult
	ResourcesMethod = "resources" // no params -> Resources
	ReadMethod      = "read"      // Read -> the ReadResourceResult
	PromptsMethod   = "prompts"   // no params -> Prompts
	PromptMethod    = "prompt"    // Prompt -> the GetPromptResult
)

// The codes of Error and Failed.
const (
	ServerError    = "server_error"     // the server answered with an error; Data is its JSON-RPC error
	ResultTooLarge = "result_too_large" // the answer is larger than MaxMessage, or nests deeper than MaxDepth
	Cancelled      = "cancelled"        // the call was cancelled, and the server answered, or has no process to end
	Abandoned      = "abandoned"        // the call was cancelled; the server lives, but does not say whether it stopped
	Hung           = "hung"             // the call was cancelled, and the server answers nothing
	Gone           = "gone"             // the connection to the server ended; the call may have been carried out
	NotSent        = "not_sent"         // the call was certainly not sent
	BadRequest     = "bad_request"      // the frame makes no sense
	NotStarted     = "not_started"      // the server's process could not be started, or ended before it was connected
	NotConnected   = "not_connected"    // the server did not answer in time, or not as a server does
	Refused        = "refused"          // the server answered 401 or 403
)

// ToBridge is a frame to the bridge. The first one has Start and nothing else.
type ToBridge struct {
	Start *Start `json:"start,omitempty"`
	// ID numbers requests from 1. Each is answered once.
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	// Cancel is the ID of a request that is no longer wanted. The request is still answered.
	Cancel uint64 `json:"cancel,omitempty"`
	// Answer is the answer to a Question.
	Answer *Answer `json:"answer,omitempty"`
}

// Start says which server, and how. Exactly one of Command and URL is set.
type Start struct {
	Command []string `json:"command,omitempty"`
	// Env is added to the bridge's own environment, for the server and for the bridge.
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // of requests to URL's host
	// Transport of a URL: "http", "sse", or "auto" and empty for the first of these that works.
	Transport string `json:"transport,omitempty"`
	// Protocol is a revision to use without negotiation, or empty.
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

// Tools is the result of ToolsMethod. Truncated says that the server has more pages than the bridge follows.
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

// FromBridge is a frame from the bridge: Ready or Failed once, then answers. Failed may also come later, as the last
// frame.
type FromBridge struct {
	Ready  *Ready          `json:"ready,omitempty"`
	Failed *Failed         `json:"failed,omitempty"`
	ID     uint64          `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Log is what the server printed on its standard error, or a remark of the bridge.
	Log string `json:"log,omitempty"`
	// Changed is "tools", "resources" or "prompts": the server's list has changed.
	Changed string `json:"changed,omitempty"`
	// Question is what the server asks the user during a request.
	Question *Question `json:"question,omitempty"`
	// Progress is how far the server is with a request.
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is what the server reported last of a request.
type Progress struct {
	Request uint64  `json:"request"`
	Done    float64 `json:"done"`
	Total   float64 `json:"total,omitempty"` // 0: unknown
	Message string  `json:"message,omitempty"`
}

// Question is a form that the server wants filled in.
type Question struct {
	// ID numbers questions from 1. Each is answered once.
	ID uint64 `json:"id"`
	// Request is the ID of the request that it is part of; 0: the server does not say.
	Request uint64          `json:"request,omitempty"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"`
}

// Answer is what the user did.
type Answer struct {
	ID      uint64          `json:"id"`
	Action  string          `json:"action,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
	// Refused is why the user was not asked. Then there is no Action.
	Refused string `json:"refused,omitempty"`
}

// Ready is what the server said about itself.
type Ready struct {
	Protocol     string          `json:"protocol"`
	Name         string          `json:"name,omitempty"`
	Version      string          `json:"version,omitempty"`
	Instructions string          `json:"instructions,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
}

// Failed is why the bridge ends.
type Failed struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is why a request has no result.
type Error struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// The mistakes of a line, after which nothing more is read.
var (
	ErrTooLong = fmt.Errorf("a frame is longer than %d bytes", MaxLine)
	ErrTooDeep = fmt.Errorf("a frame nests deeper than %d", MaxDepth)
)

// Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	lines *bufio.Reader
	err   error
}

// NewReader makes a Reader of frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReaderSize(r, 32<<10)} }

// Read reads the next frame into a ToBridge or FromBridge. io.EOF is the end between two frames.
func (r *Reader) Read(into any) error {
	if r.err == nil {
		r.err = r.next(into)
	}
	return r.err
}

func (r *Reader) next(into any) error {
	line, err := readLine(r.lines, MaxLine)
	if err != nil {
		return err
	}
	if Depth(line) > MaxDepth {
		return ErrTooDeep
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("reading a frame: %w", err)
	}
	return nil
}

// readLine reads a line of at most limit bytes, and gives it without its end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit+1 {
			return nil, ErrTooLong
		}
		switch {
		case err == nil && line == nil:
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

// Depth is how deep a JSON text nests. Of what is no JSON it is some number.
func Depth(text []byte) int {
	depth, deepest := 0, 0
	quoted, escaped := false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
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

// NewWriter makes a Writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame. ErrTooLong means that nothing was written; after any other error nothing more is.
func (w *Writer) Write(frame any) error {
	line, err := Encode(frame)
	if err != nil {
		return err
	}
	if len(line) > MaxLine+1 {
		return ErrTooLong
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.w.Write(line)
	}
	return w.err
}

// Encode is a value as one line of JSON with its end, in which <, > and & stand as they are: escaped, they would take
// six times the room.
func Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return b.Bytes(), err
}
