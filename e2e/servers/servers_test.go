// Package servers tests upstream MCP servers as code and models use them: real servers from npm, installed from a
// registry of the test, in both modes.
package servers

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// everything is the reference server, which has a tool for each feature of the protocol.
const everything = "@modelcontextprotocol/server-everything@2026.8.31"

// github is GitHub's own server, a Go program.
const github = "github.com/github/github-mcp-server/cmd/github-mcp-server@v1.0.0"

func TestMain(m *testing.M) {
	os.Exit(world.Main(m, func(root string) {
		if err := world.BuildProgram(root, github, "github-mcp-server"); err != nil {
			fmt.Fprintln(os.Stderr, "servers:", err) // the tests find the program missing
		}
		packages := append([]string{everything, codeWheels()}, wheels...)
		for name := range examples {
			x, err := readExample(root, name)
			if err != nil {
				fmt.Fprintln(os.Stderr, "servers:", err)
			}
			if pkg, is := strings.CutPrefix(x.program, "npm:"); is {
				packages = append(packages, pkg)
			}
		}
		for _, p := range packages {
			if err := registry.Fetch(root, p); err != nil {
				fmt.Fprintln(os.Stderr, "servers:", err) // the tests find the package missing
			}
		}
	}))
}

// server is an API that is nothing but a package from npm.
func server(name, pkg string, more map[string]any) world.API {
	config := map[string]any{"description": "the server " + name, "mcp": map[string]any{"package": "npm:" + pkg}}
	for k, v := range more {
		config[k] = v
	}
	return world.API{Name: name, Config: config}
}

// users are the users that a test starts CodeForge as: both in embedded mode, where they differ.
func users() map[string]world.User {
	if world.CurrentMode() == world.Docker {
		return map[string]world.User{"docker": world.Self}
	}
	if os.Geteuid() != 0 {
		return map[string]world.User{"ordinary user": world.Ordinary}
	}
	return map[string]world.User{"root": world.Self, "ordinary user": world.Ordinary}
}

// TestMainJob: code calls a tool of a server, which is installed and started for that.
func TestMainJob(t *testing.T) {
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user, Registry: true, Change: func(apis []world.API) []world.API {
				return append(apis, server("everything", everything, nil))
			}})
			res := w.MustExecute(t, `console.log(await mcp.everything.echo({ message: "hi" }));`)
			if res.IsError || res.Out != "Echo: hi\n" {
				t.Fatalf("out %q, error %v, notes %q", res.Out, res.IsError, res.Notes)
			}
			ex := res.Receipt.Exchanges
			if len(ex) == 0 || ex[0].CalledTool() != "everything.echo" || ex[0].Status != 200 {
				t.Errorf("receipt %+v, want a call of everything.echo", res.Receipt)
			}
			if !strings.Contains(w.Logs(), "CALL everything.echo") {
				t.Error("the log does not show the call")
			}
			if user == world.Self || os.Geteuid() != 0 || testkit.IsThorough() { // the runners and mcp-server decide these
				features(t, w)
				questions(t, w)
				progress(t, w)
				pythonFeatures(t, w)
			}
			status(t, w)
			commands(t, w)
		})
	}
}

// status: the user's commands show the server. It may just be ending, after a call that was cancelled: then the next call
// starts it again.
func status(t *testing.T, w *world.World) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
	defer cancel()
	testkit.WaitFor(t, func() bool {
		w.MustExecute(t, `await mcp.everything.echo({ message: "hi" });`, "everything")
		var out string
		var err error
		if w.Mode == world.Docker {
			out, err = w.Stack.Exec(ctx, "", "mcp-server", "codeforge", "status")
		} else {
			out, _, err = world.Tool(ctx, world.Command{User: w.User, Dir: w.Dir, Args: []string{"status", "--state", w.Process.State}})
		}
		if err != nil || !strings.Contains(out, "everything     ") {
			t.Fatalf("codeforge status: %v\n%s", err, out)
		}
		return strings.Contains(out, "everything     running, 13 tools")
	})
}

// features are what code can do with a server that is there.
func features(t *testing.T, w *world.World) {
	for _, c := range []struct{ name, code, want string }{
		{"names", `console.log(Object.keys(mcp), "echo" in mcp.everything);`, "[ \"everything\" ] true\n"},
		{"structured", `console.log(await mcp.everything["get-structured-content"]({ location: "New York" }));`,
			"{ temperature: 33, conditions: \"Cloudy\", humidity: 82 }\n"},
		{"alias", `console.log((await mcp.everything.get_structured_content({ location: "New York" })).humidity);`, "82\n"},
		{"sum", `console.log(await mcp.everything["get-sum"]({ a: 2, b: 3 }));`, "The sum of 2 and 3 is 5.\n"},
		{"image", `const image = (await mcp.everything["get-tiny-image"]()).find((b) => b.path);
console.log(image.mimeType, Deno.statSync(image.path).size === image.bytes);`, "image/png true\n"},
		{"tools", `console.log((await mcp.everything.$tools()).some((t) => t.name === "echo" && t.inputSchema));`, "true\n"},
		{"resources", `const { resources, templates } = await mcp.everything.$resources();
console.log(resources.length > 0, templates.length > 0);`, "true true\n"},
		{"read", `const { resources } = await mcp.everything.$resources();
console.log((await mcp.everything.$read(resources[0].uri)).contents.length > 0);`, "true\n"},
		{"prompt", `console.log((await mcp.everything.$prompt("simple-prompt")).messages.length > 0);`, "true\n"},
		{"raw", `console.log((await mcp.everything.echo.raw({ message: "x" })).content[0].text);`, "Echo: x\n"},
		{"parallel", `const all = await parallel(Array.from({ length: 20 }, (_, i) => () => mcp.everything.echo({ message: String(i) })));
console.log(all.every((r, i) => r.value === "Echo: " + i));`, "true\n"},
		{"bad arguments", `try { await mcp.everything.echo({ mesage: "x" }); } catch (e) { console.log(e instanceof McpError, e.code); }`,
			"true bad_arguments\n"},
		{"no such tool", `try { await mcp.everything.ecko({}); } catch (e) { console.log(e.code, /echo/.test(e.message)); }`,
			"tool_not_found true\n"},
		{"no such server", `try { await mcp.everythink.echo({}); } catch (e) { console.log(e.code, /everything/.test(e.message)); }`,
			"server_not_found true\n"},
		{"timeout", `try { await mcp.everything["trigger-long-running-operation"]({ duration: 60, steps: 2 }, { timeout: 300 }); }
catch (e) { console.log(e.code); }`, "timeout\n"},
		{"signal", `try { await mcp.everything["trigger-long-running-operation"]({ duration: 60, steps: 2 },
  { signal: AbortSignal.timeout(300) }); } catch (e) { console.log(e.name); }`, "TimeoutError\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if res := w.MustExecute(t, c.code, "everything"); res.IsError || res.Out != c.want {
				t.Errorf("out %q, notes %q, want %q", res.Out, res.Notes, c.want)
			}
		})
	}
	t.Run("stash", func(t *testing.T) {
		w.MustExecute(t, `await stash.set("k", { n: 1 });`)
		if res := w.MustExecute(t, `console.log(await stash.get("k"), await stash.keys());`); res.Out != "{ n: 1 } [ \"k\" ]\n" {
			t.Errorf("out %q, notes %q", res.Out, res.Notes)
		}
	})
	t.Run("narrowed to others", func(t *testing.T) {
		if res := w.MustExecute(t, `console.log(typeof mcp);`, "httpbin"); res.Out != "undefined\n" {
			t.Errorf("out %q", res.Out)
		}
		res := w.MustExecute(t, `const r = await fetch("https://mcp.codeforge.internal/everything/echo", { method: "POST", body: "{}" });
console.log(r.status, (await r.json()).code);`, "httpbin")
		if res.Out != "404 server_not_found\n" {
			t.Errorf("out %q, notes %q", res.Out, res.Notes)
		}
	})
}

// questions: what a server asks during a call reaches the user of the client that runs the code, whatever the client's
// era; where the client shows no forms, code is told.
func questions(t *testing.T, w *world.World) {
	const code = `console.log(await mcp.everything["trigger-elicitation-request"]({}).catch((e) => e.code + " " + e.message));`
	for _, protocol := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("question "+protocol, func(t *testing.T) {
			asked := ""
			session, err := w.ConnectAs(t.Context(), &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked = r.Params.Message
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann " + protocol}}, nil
				},
			}, protocol)
			testkit.Must(t, err)
			defer session.Close()
			res, err := w.Do(t.Context(), session, world.Run{Code: code, APIs: []string{"everything"}, Timeout: 60})
			if err != nil || !strings.Contains(res.Out, "- Name: Ann "+protocol) {
				t.Errorf("%v: out %q, notes %q", err, res.Out, res.Notes)
			}
			if asked != `The MCP server "everything" asks; never type a secret here: Please provide inputs for the following fields:` {
				t.Errorf("the user was asked %q", asked)
			}
		})
	}
	t.Run("question without forms", func(t *testing.T) {
		if res := w.MustExecute(t, code, "everything"); !strings.Contains(res.Out, "tool_error ") ||
			!strings.Contains(res.Out, "cannot show its user a question") {
			t.Errorf("out %q, notes %q", res.Out, res.Notes)
		}
	})
}

// progress: a client that asked for it learns how far a server is with a call.
func progress(t *testing.T, w *world.World) {
	for _, protocol := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("progress "+protocol, func(t *testing.T) {
			told := make(chan string, 100)
			session, err := w.ConnectAs(t.Context(), &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told <- r.Params.Message
				},
			}, protocol)
			testkit.Must(t, err)
			defer session.Close()
			params := &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{
				"code": `await mcp.everything["trigger-long-running-operation"]({ duration: 4, steps: 2 });`,
			}}
			params.SetProgressToken("p")
			if res, err := session.CallTool(t.Context(), params); err != nil || res.IsError {
				t.Fatalf("%v, %+v", err, res)
			}
			for {
				select {
				case message := <-told:
					if message == "everything.trigger-long-running-operation: 1 of 2" {
						return
					}
				default:
					t.Fatal("no progress was told")
				}
			}
		})
	}
}

// commands: whoever started CodeForge lists the server and its tools, and calls one.
func commands(t *testing.T, w *world.World) {
	if w.Mode == world.Docker { // e2e/walk has them there
		return
	}
	for command, want := range map[string]string{
		"list": "everything", "tools everything": "get-structured-content", `call everything echo {"message":"hi"}`: "Echo: hi",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
		args := append([]string{"mcp"}, strings.SplitN(command, " ", 4)...)
		out, code, err := world.Tool(ctx, world.Command{User: w.User, Dir: w.Dir, Args: append(args, "--state", w.Process.State)})
		cancel()
		if err != nil || code != 0 || !strings.Contains(out, want) {
			t.Errorf("codeforge mcp %s: exit code %d, %v\n%s", command, code, err, out)
		}
	}
}
