package servers

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// pythonFeatures are what code in Python can do with a server that is there. The stash has what TypeScript has left in it.
func pythonFeatures(t *testing.T, w *world.World) {
	for _, c := range []struct{ name, code, want string }{
		{"call", `print(mcp.everything.echo(message="hi"))`, "Echo: hi\n"},
		{"a dict", `print(mcp.everything.echo({"message": "hi"}))`, "Echo: hi\n"},
		{"aio", `print(await mcp.aio.everything.echo(message="hi"))`, "Echo: hi\n"},
		{"aio in asyncio.run", "import asyncio\nasync def main():\n    calls = [mcp.aio.everything.get_sum(a=i, b=1) for i in range(12)]\n    print((await asyncio.gather(*calls))[11])\nasyncio.run(main())",
			"The sum of 11 and 1 is 12.\n"},
		{"names", `print(dir(mcp), "echo" in dir(mcp.everything))`, "['everything'] True\n"},
		{"structured", `print(mcp.everything["get-structured-content"](location="New York"))`, "{'temperature': 33, 'conditions': 'Cloudy', 'humidity': 82}\n"},
		{"alias", `print(mcp.everything.get_structured_content(location="New York")["humidity"])`, "82\n"},
		{"image", "import os\nimage = next(b for b in mcp.everything.get_tiny_image() if isinstance(b, dict))\nprint(image['mimeType'], os.stat(image['path']).st_size == image['bytes'])", "image/png True\n"},
		{"tools", `print(any(t["name"] == "echo" and "inputSchema" in t for t in mcp.everything["$tools"]()))`, "True\n"},
		{"resources", "r = mcp.everything['$resources']()\nprint(len(r['resources']) > 0, len(r['templates']) > 0, len(mcp.everything['$read'](r['resources'][0]['uri'])['contents']) > 0)", "True True True\n"},
		{"prompt", `print(len(mcp.everything["$prompt"]("simple-prompt")["messages"]) > 0)`, "True\n"},
		{"raw", `print(mcp.everything.echo.raw(message="x")["content"][0]["text"])`, "Echo: x\n"},
		{"parallel", "got = parallel([lambda i=i: mcp.everything.echo(message=str(i)) for i in range(20)])\nprint([r.value for r in got] == [f'Echo: {i}' for i in range(20)])", "True\n"},
		{"parallel with a failure", "a, b = parallel([lambda: mcp.everything.echo(message='x'), lambda: mcp.everything.ecko()], limit=2)\nprint(a.value, type(b.reason).__name__, b['reason'].code)", "Echo: x McpError tool_not_found\n"},
		{"bad arguments", "try: mcp.everything.echo(mesage='x')\nexcept McpError as e: print(e.code, e.server, e.tool)", "bad_arguments everything echo\n"},
		{"no such server", "try: mcp.everythink.echo()\nexcept McpError as e: print(e.code, 'everything' in str(e))", "server_not_found True\n"},
		{"time limit", "try: mcp.everything.trigger_long_running_operation.within(0.3)(duration=60, steps=2)\nexcept McpError as e: print(e.code)", "timeout\n"},
		{"cancelled", "import asyncio\ntry:\n    async with asyncio.timeout(0.5):\n        await mcp.aio.everything.trigger_long_running_operation(duration=60, steps=2)\nexcept TimeoutError: print('timeout')", "timeout\n"},
		{"uncaught", "mcp.everything.ecko()", ""},
		{"stash of TypeScript", `print(stash.get("k"), stash.keys())`, "{'n': 1} ['k']\n"},
		{"stash", "stash.set('p', [1, None, 'ü'], ttl=60)\nprint(stash.get('p'), stash.get('q', 'none'))\nstash.delete('p')\nprint(stash.keys())", "[1, None, 'ü'] none\n['k']\n"},
	} {
		t.Run("python "+c.name, func(t *testing.T) {
			res := w.MustPython(t, c.code+"\n", "everything")
			if c.want == "" {
				if !res.IsError {
					t.Errorf("out %q", res.Out)
				}
				return
			}
			if res.IsError || res.Out != c.want {
				t.Errorf("out %q, notes %q, want %q", res.Out, res.Notes, c.want)
			}
		})
	}
	t.Run("python, narrowed to others", func(t *testing.T) {
		code := "print('mcp' in dir(__builtins__))\nimport urllib.request, urllib.error\n" +
			"try: urllib.request.urlopen('https://mcp.codeforge.internal/everything/echo', b'{}')\nexcept urllib.error.HTTPError as e: print(e.status, b'server_not_found' in e.read())\n"
		if res := w.MustPython(t, code, "httpbin"); res.Out != "False\n404 True\n" {
			t.Errorf("out %q, notes %q", res.Out, res.Notes)
		}
	})
}
