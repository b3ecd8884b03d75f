package servers

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// codeWheel is an unmodified package of PyPI, and code that makes one call with it.
type codeWheel struct {
	pin, host, token string
	variable         string // the credential's second variable
	code, out        string
}

const awsToken = "S3_KEY"

// pythonSDKs are the packages of TestCodeWheels.
var pythonSDKs = []codeWheel{
	{
		pin: "stripe@16.1.0", host: "api.stripe.com", token: "STRIPE_KEY", out: "a@example.com\n",
		code: `import os, stripe
print(stripe.StripeClient(os.environ["STRIPE_KEY"]).v1.customers.retrieve("cus_1").email)`,
	},
	{
		pin: "openai@3.57.0", host: "api.openai.com", token: "OPENAI_KEY", variable: "OPENAI_API_KEY", out: "OpenAI says hi\n",
		code: `from openai import OpenAI
c = OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
print(c.choices[0].message.content)`,
	},
	{
		pin: "slack_sdk@3.48.0", host: "slack.com", token: "SLACK_TOKEN", out: "Slack says hi\n",
		code: `import os
from slack_sdk import WebClient
print(WebClient(token=os.environ["SLACK_TOKEN"]).auth_test()["team"])`,
	},
	{
		pin: "boto3@1.44.8", host: "s3.eu-central-1.amazonaws.com", token: awsToken, out: "S3 says hi\n",
		code: `import os, boto3
from botocore.config import Config
s3 = boto3.client("s3", region_name="eu-central-1", aws_access_key_id=os.environ["S3_KEY"], aws_secret_access_key="unused",
                  config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
print(s3.get_object(Bucket="b", Key="k")["Body"].read().decode())`,
	},
	{
		pin: "httpx@0.28.1", host: "api.github.com", token: "GITHUB_KEY", out: "0.28.1 github-says-hi\n",
		code: `import os, httpx
answer = httpx.get("https://api.github.com/user", headers={"Authorization": "Bearer " + os.environ["GITHUB_KEY"]})
print(httpx.__version__, answer.json()["login"])`,
	},
	{
		pin: "pandas@3.1.1", host: "api.open-meteo.com", token: "METEO_KEY", out: "21.5\n",
		code: `import os, pandas
table = pandas.read_json("https://api.open-meteo.com/v1", storage_options={"Authorization": "Bearer " + os.environ["METEO_KEY"]})
print(table.loc["temperature_2m", "current"])`,
	},
}

// codeWheels are the packages of pythonSDKs for registry.Fetch.
func codeWheels() string {
	words := []string{}
	for _, p := range pythonSDKs {
		words = append(words, strings.Replace(p.pin, "@", "==", 1))
	}
	return "pypi:" + strings.Join(words, " ")
}

// pinWheels writes the list of packages, and waits until code can import the module.
func pinWheels(t *testing.T, w *world.World, module string, pins ...string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"packages": pins, "index": "https://" + upstream.Registry + "/" + registry.IndexPath})
	testkit.Must(t, errors.Join(err, os.WriteFile(filepath.Join(w.Dir, "apis", "packages.json"), text, 0o644))) //nolint:gosec // no secret
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Second) {
		r, err := w.Do(t.Context(), w.Session(), world.Run{Code: "import " + module, Language: "python", Timeout: 60})
		if err == nil && !r.IsError {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("code cannot import %s: %v\n%s\n%s", module, err, r.Out, r.Notes)
		}
	}
}

// TestCodeWheels: unmodified packages of PyPI, pinned by the user, work in code in Python with names for keys. The hosts
// get the keys, the code gets names, and no run asks the index.
// Promise: first-installed-package
func TestCodeWheels(t *testing.T) {
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			sdks := pythonSDKs // the packages decide most of it, so one user tries all
			if user == world.Self && !testkit.IsThorough() {
				sdks = sdks[:1]
			}
			known := map[string]*canary.Canary{}
			var apis []world.API
			for _, p := range sdks {
				known[p.token] = canary.New(p.token)
				credential := map[string]any{"value": known[p.token].Value()}
				if p.variable != "" {
					credential["variable"] = p.variable
				}
				if p.token == awsToken {
					credential = map[string]any{"aws": map[string]any{"access_key_id": "AKIDOFTHETEST",
						"secret_access_key": known[p.token].Value(), "region": "eu-central-1", "services": []string{"s3"}}}
				}
				apis = append(apis, world.API{Name: strings.ToLower(strings.ReplaceAll(p.token, "_", "-")), Config: map[string]any{
					"description": p.pin, "domains": []string{p.host}, "credentials": map[string]any{p.token: credential},
				}})
			}
			w := world.Start(t, world.Config{Registry: true, User: user, APIs: apis})
			r := w.MustPython(t, "import stripe")
			if !r.IsError || !strings.Contains(r.Notes, "codeforge package add pypi:NAME@VERSION") {
				t.Errorf("without packages: %s %s", r.Out, r.Notes)
			}
			var pins []string
			for _, p := range sdks {
				pins = append(pins, "pypi:"+p.pin)
			}
			pinWheels(t, w, "stripe", pins...)
			list, err := w.Session().CallTool(t.Context(), &mcp.CallToolParams{Name: "list_apis"})
			if err != nil || !strings.Contains(list.Content[len(list.Content)-1].(*mcp.TextContent).Text, "Python can import these packages: pypi:stripe@16.1.0") {
				t.Errorf("list_apis: %+v %v", list, err)
			}
			countAsked := func() (asked int) {
				for _, s := range w.Upstream.Seen("") {
					if s.Host == upstream.Registry || s.Name == upstream.Registry {
						asked++
					}
				}
				return asked
			}
			fetched := countAsked()
			for _, p := range sdks {
				t.Run(p.pin, func(t *testing.T) {
					r, err := w.Do(t.Context(), w.Session(), world.Run{Code: p.code, Language: "python", Timeout: 120})
					if err != nil || r.Out != p.out || r.Notes != "" {
						t.Fatalf("%v\n%.3000s\n%.3000s", err, r.Out, r.Notes)
					}
					if where := canary.Join(known).Find([]byte(r.JSON)); where != "" {
						t.Errorf("a key is shown: %s", where)
					}
					want := known[p.token].Value()
					if p.token == awsToken {
						want = "Credential=AKIDOFTHETEST/"
					}
					injected(t, w, p.host, want)
				})
			}
			if now := countAsked(); now != fetched || fetched == 0 {
				t.Errorf("the index got %d requests by the installation, and %d by runs", fetched, now-fetched)
			}
		})
	}
}

// writeHostileWheel adds a wheel to the index. Each of its files prints a line, except that of the package itself. A
// second wheel, broken, cannot be installed.
func writeHostileWheel(t *testing.T) {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	broken := filepath.Join(registry.Dir(root), "broken-1.0-py3-none-any.whl")
	testkit.Must(t, os.WriteFile(broken, []byte("no archive"), 0o600))
	t.Cleanup(func() { _ = os.Remove(broken) })
	path := filepath.Join(registry.Dir(root), "hostile-1.0-py3-none-any.whl")
	f, err := os.Create(path) //nolint:gosec // of the tests
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.Remove(path) })
	files := map[string]string{
		"hostile/__init__.py":                    "ok = 'imported'\n",
		"hostile-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n",
		"hostile-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"hostile-1.0.dist-info/RECORD":           "",
		"hostile-1.0.dist-info/entry_points.txt": "[console_scripts]\njson = hostile:ok\n",
		"hostile.pth":                            "import sys; sys.stdout.write('ran .pth')\n",
	}
	for _, name := range []string{"sitecustomize", "usercustomize", "json/__init__", "asyncio/__init__", "ssl", "warnings", "base64", "encodings/idna",
		"skills/__init__", "skills/shadow", "warm", "main", "_bootlocale", "PIL/__init__", "readline"} {
		files[name+".py"] = "print('ran " + name + "')\n"
	}
	w := zip.NewWriter(f)
	for name, text := range files {
		entry, err := w.Create(name)
		testkit.Must(t, err)
		_, err = entry.Write([]byte(text))
		testkit.Must(t, err)
	}
	testkit.Must(t, errors.Join(w.Close(), f.Close()))
}

// pinByCommand pins the wheels of writeHostileWheel with codeforge package, and removes the one that cannot be installed.
func pinByCommand(t *testing.T, w *world.World) {
	t.Helper()
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"add", "pypi:Hostile"}, 0, "Pinned pypi:Hostile@1.0.\nCode can import the packages of the list now.\n"},
		{[]string{"add", "pypi:absent"}, 1, "the package index has no absent"},
		{[]string{"add", "pypi:broken"}, 1, "the packages could not be installed"},
		{[]string{"list"}, 0, "warning: the packages could not be installed"},
		{[]string{"rm", "pypi:broken"}, 0, "Removed pypi:broken.\nCode can import the packages of the list now.\n"},
		{[]string{"list"}, 0, "pypi:Hostile@1.0                         installed\n"},
	} {
		c, err := w.Command(append([]string{"package"}, step.args...)...)
		testkit.Must(t, err)
		c.Env = map[string]string{
			"PIP_INDEX_URL": "https://" + upstream.Registry + "/" + registry.IndexPath, "SSL_CERT_FILE": filepath.Join(w.Dir, "ca.pem"),
		}
		out, code, err := world.Tool(t.Context(), c)
		hasWarned := strings.Contains(out, "warning:")
		if err != nil || code != step.code || !strings.Contains(out, step.want) || hasWarned != strings.HasPrefix(step.want, "warning:") {
			t.Errorf("package %q: %d %v\n%s", step.args, code, err, out)
		}
	}
}

// TestHostileWheel: of a pinned package runs only what code imports. Its files replace no module of Python, and no skill.
// Promise: first-installed-package
func TestHostileWheel(t *testing.T) {
	writeHostileWheel(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{Registry: true, User: user})
			if w.Mode == world.Docker { // the host does not know the index's name
				pinWheels(t, w, "hostile", "pypi:hostile@1.0")
			} else {
				pinByCommand(t, w)
			}
			for _, code := range []string{
				"import json, asyncio, ssl, warnings, base64, urllib.request\nprint(json.dumps([1]))",
				"import asyncio, json\nawait asyncio.sleep(0)\nprint(json.dumps([1]))",
				"try:\n  from skills import shadow\nexcept ImportError:\n  print([1])",
				"import sys, hostile\nprint([1] if hostile.ok == 'imported' else sys.path)",
				"import hostile, os\ntry:\n  open(hostile.__file__, 'a')\nexcept OSError:\n  print([1])",
				"import hostile, os\nfrom pathlib import Path\nprint([len([p for p in Path(hostile.__file__).parents[1].iterdir() if p.suffix == '.pth']) + 1])",
			} {
				r := w.MustPython(t, code)
				if r.Out != "[1]\n" {
					t.Errorf("%s\n%s %s", code, r.Out, r.Notes)
				}
			}
		})
	}
}
