// Command hostile is an MCP server on standard input and output that misbehaves according to its arguments. By default
// it knows only initialize. It is written without the SDK, so that it can break every rule.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	Params struct {
		Name      string          `json:"name"`
		Cursor    string          `json:"cursor"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
		Arguments struct {
			Text string `json:"text"`
			MS   int    `json:"ms"`
			Dir  string `json:"dir"`  // see meet
			Form string `json:"form"` // see ask
		} `json:"arguments"`
	} `json:"params"`
}

var (
	out       = make(chan string, 100)
	grown     int                          // tools that were added
	cancelled = map[string]chan struct{}{} // closed when the call with this ID is cancelled
	asked     = map[string]message{}       // calls of ask, by the ID of the open question

	slows, diesUnder int // calls of slow, and how many die waits for
	dying            bool
)

func dieIfDue() {
	if dying && slows >= diesUnder {
		os.Exit(5)
	}
}

func is(fault string) bool { return slices.Contains(os.Args[1:], fault) }

func main() {
	go func() {
		for line := range out {
			os.Stdout.WriteString(line)
		}
	}()
	if is("ignores-sigterm") {
		signal.Ignore(syscall.SIGTERM)
	}
	if is("banner") {
		fmt.Println("=== Welcome to the server ===\n{not json}\n[1, 2\n\n\"text\"\n{\"jsonrpc\":\"1.0\"}")
	}
	if is("dies-at-start") {
		fmt.Fprintln(os.Stderr, "KEY is required")
		os.Exit(3)
	}
	if is("slow-start") {
		time.Sleep(4 * time.Second)
	}
	if is("sleeps") {
		time.Sleep(5 * time.Minute)
		return
	}
	if is("forks") {
		child := exec.Command(os.Args[0], "sleeps")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if is("daemon") { // out of the group that the bridge ends
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		_ = os.WriteFile(filepath.Join(os.Getenv("HOME"), "forked"), fmt.Append(nil, child.Process.Pid), 0o600)
	}
	if is("floods-stderr") {
		go func() {
			for {
				fmt.Fprintln(os.Stderr, strings.Repeat("flood ", 1000))
			}
		}()
	}
	in := bufio.NewReaderSize(os.Stdin, 32<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			if is("ignores-eof") {
				time.Sleep(time.Hour)
			}
			return
		}
		var m message
		if json.Unmarshal(line, &m) == nil {
			handle(m)
		}
	}
}

func handle(m message) {
	if is("dies-at-" + strings.ReplaceAll(m.Method, "/", "-")) {
		os.Exit(4)
	}
	if is("silent-at-" + strings.ReplaceAll(m.Method, "/", "-")) {
		return
	}
	switch m.Method {
	case "":
		answered(m)
	case "server/discover":
		if is("knows-discover") {
			answer(m.ID, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`)
			return
		}
		fail(m.ID, -32601, "Method not found")
	case "initialize":
		if is("knows-discover") {
			fail(m.ID, -32022, "only 2026-07-28")
			return
		}
		answer(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"hostile","version":"1"}}`)
	case "ping":
		answer(m.ID, `{}`)
	case "tools/list":
		list(m)
	case "tools/call":
		call(m)
	case "notifications/cancelled":
		if c := cancelled[string(m.Params.RequestID)]; c != nil {
			close(c)
			delete(cancelled, string(m.Params.RequestID))
		}
	case "notifications/initialized":
	default:
		if m.ID != nil {
			fail(m.ID, -32601, "Method not found")
		}
	}
}

// listed is the file of the argument lists=FILE, with the definitions of the tools. All tools echo.
func listed() string {
	for _, arg := range os.Args[1:] {
		if file, ok := strings.CutPrefix(arg, "lists="); ok {
			return file
		}
	}
	return ""
}

// oddTools are definitions that break MCP's schema, as real servers send them.
const oddTools = `[
{"name":"typed","title":7,"icons":"x.png","annotations":"none","inputSchema":{"type":"object","properties":{
	"n":{"type":"int"},"file":{"type":"file"},"page-size":{"type":"integer"},"kind":{"type":"string","default":"a"}
},"required":["n","kind"]}},
{"name":"string","inputSchema":null,"outputSchema":null,"execution":"task"},
{"name":"block","annotations":{"readOnlyHint":"yes"}},
{"name":"json","outputSchema":null}]`

// oddResults are their results.
var oddResults = map[string]string{
	"typed": `{"content":["typed"]}`, "string": `{"content":"a string"}`, "block": `{"content":{"type":"text","text":"a block"}}`,
	"json": `{"content":[{"type":"text","text":"{\"a\":1}"}]}`,
}

func list(m message) {
	const tool = `{"name":%q,"description":"A tool","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"ms":{"type":"integer"},"dir":{"type":"string"}},"required":["text"]},"annotations":{"readOnlyHint":%v}}`
	if file := listed(); file != "" {
		text, _ := os.ReadFile(file)
		answer(m.ID, `{"tools":`+strings.TrimSpace(string(text))+`}`)
		return
	}
	switch {
	case is("odd-tools"):
		answer(m.ID, `{"tools":`+strings.NewReplacer("\n", "", "\t", "").Replace(oddTools)+`}`)
	case is("endless-pages"):
		answer(m.ID, `{"tools":[`+fmt.Sprintf(tool, "t"+m.Params.Cursor, false)+`],"nextCursor":"`+m.Params.Cursor+`x"}`)
	case is("same-cursor"):
		answer(m.ID, `{"tools":[`+fmt.Sprintf(tool, "t", false)+`],"nextCursor":"x"}`)
	default:
		var tools []string
		for _, name := range []string{"echo", "read", "slow", "die", "half", "huge", "deep", "other-id", "twice", "change", "error", "odd", "stray", "block", "never", "pid", "die-once", "grow", "meet", "leave", "ask", "report"} {
			tools = append(tools, fmt.Sprintf(tool, name, name == "read" || name == "die-once"))
		}
		for n := range grown {
			tools = append(tools, fmt.Sprintf(tool, fmt.Sprintf("grown%d", n), false))
		}
		answer(m.ID, `{"tools":[`+strings.Join(tools, ",")+`]}`)
	}
}

func call(m message) {
	text, _ := json.Marshal(m.Params.Arguments.Text)
	result := `{"content":[{"type":"text","text":` + string(text) + `}]}`
	if listed() != "" {
		answer(m.ID, result)
		return
	}
	if is("odd-tools") {
		answer(m.ID, oddResults[m.Params.Name])
		return
	}
	switch m.Params.Name {
	case "echo", "read":
		answer(m.ID, result)
	case "slow":
		slows++
		dieIfDue()
		go func() {
			time.Sleep(time.Duration(m.Params.Arguments.MS) * time.Millisecond)
			answer(m.ID, result)
		}()
	case "block": // the whole server
		arrived(m)
		time.Sleep(time.Duration(m.Params.Arguments.MS) * time.Millisecond)
		answer(m.ID, result)
	case "never":
		arrived(m)
	case "meet": // a test: answers when the file go is in its directory, or the call is cancelled
		c := make(chan struct{})
		cancelled[string(m.ID)] = c
		arrived(m)
		go func() {
			for {
				select {
				case <-c:
				case <-time.After(5 * time.Millisecond):
					if _, err := os.Stat(filepath.Join(m.Params.Arguments.Dir, "go")); m.Params.Arguments.Dir == "" || err != nil {
						continue
					}
				}
				answer(m.ID, result)
				return
			}
		}()
	case "report": // progress, ms times, of this call and then of one that there is not
		for n := range m.Params.Arguments.MS {
			report(m.Params.Meta.ProgressToken, n+1, m.Params.Arguments.MS, string(text))
		}
		report(json.RawMessage(`"999999"`), 1, 1, `"of another"`)
		time.Sleep(time.Second)
		answer(m.ID, result)
	case "ask": // the user, ms times after the first, with a form or an empty one
		ask(m)
	case "die": // under at least ms calls of slow, which may arrive later
		dying, diesUnder = true, m.Params.Arguments.MS
		dieIfDue()
	case "leave": // after the answer
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		os.Exit(8)
	case "half":
		os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[{"type":"te`)
		os.Exit(6)
	case "huge": // so many MB, in the order of the TypeScript SDK: result first
		w := bufio.NewWriterSize(os.Stdout, 1<<20)
		w.WriteString(`{"result":{"content":[{"type":"text","text":"`)
		part := strings.Repeat("a", 1<<20)
		for range m.Params.Arguments.MS {
			w.WriteString(part)
		}
		w.WriteString(`"}]},"jsonrpc":"2.0","id":` + string(m.ID) + "}\n")
		w.Flush()
	case "deep":
		answer(m.ID, `{"content":[],"structuredContent":`+strings.Repeat(`{"a":`, 10000)+"1"+strings.Repeat("}", 10000)+`}`)
	case "other-id":
		answer(json.RawMessage(`999999`), `{"content":[{"type":"text","text":"for another"}]}`)
		answer(json.RawMessage(`"text"`), `{"content":[{"type":"text","text":"for another"}]}`)
		answer(m.ID, result)
	case "twice":
		answer(m.ID, result)
		answer(m.ID, `{"content":[{"type":"text","text":"second"}]}`)
	case "pid":
		answer(m.ID, fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, os.Getpid()))
	case "die-once": // text is a file that remembers
		if _, err := os.Stat(m.Params.Arguments.Text); err != nil {
			_ = os.WriteFile(m.Params.Arguments.Text, nil, 0o600)
			os.Exit(7)
		}
		answer(m.ID, result)
	case "grow":
		grown++
		out <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n"
		answer(m.ID, result)
	case "grown0":
		answer(m.ID, result)
	case "change":
		for range 1000 {
			out <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n"
		}
		answer(m.ID, result)
	case "error":
		const no = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"the tool says no","data":{"n":12345678901234567890,"text":%s}}}`
		out <- fmt.Sprintf(no+"\n", m.ID, text)
	case "odd": // a kind of content that no SDK knows, and a number that is no double
		answer(m.ID, `{"content":[{"type":"hologram","z":1,"a":"<b>"}],"structuredContent":{"n":12345678901234567890}}`)
	case "stray":
		out <- "debug: about to answer\n"
		answer(m.ID, result)
	default:
		fail(m.ID, -32602, "Unknown tool: "+m.Params.Name)
	}
}

// ask asks the user the questions of a call of ask.
func ask(m message) {
	form := m.Params.Arguments.Form
	if form == "" {
		form = `{}`
	}
	id := fmt.Sprintf(`"q%d%s"`, m.Params.Arguments.MS, strings.Trim(string(m.ID), `"`))
	asked[id] = m
	text, _ := json.Marshal(m.Params.Arguments.Text)
	out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":%s,"requestedSchema":{"type":"object","properties":%s}}}`+"\n",
		id, text, form)
}

// answered answers a call of ask with the client's answers, when all its questions are answered.
func answered(m message) {
	of, ok := asked[string(m.ID)]
	if !ok {
		return
	}
	delete(asked, string(m.ID))
	if of.Params.Arguments.MS--; of.Params.Arguments.MS >= 0 {
		ask(of)
		return
	}
	said := string(m.Result)
	if m.Error != nil {
		said = string(m.Error)
	}
	text, _ := json.Marshal(said)
	answer(of.ID, fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":%v}`, text, m.Error != nil))
}

// arrived creates a file in the directory that a call names. A test waits for the file.
func arrived(m message) {
	if dir := m.Params.Arguments.Dir; dir != "" {
		_, _ = os.CreateTemp(dir, "arrived")
	}
}

func answer(id json.RawMessage, result string) {
	out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

func report(token json.RawMessage, done, total int, message string) {
	out <- fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d,"message":%s}}`+"\n",
		token, done, total, message)
}

func fail(id json.RawMessage, code int, text string) {
	out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`+"\n", id, code, text)
}
