package providers

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// pinned is an unmodified package of npm, and code that makes one call with it.
type pinned struct {
	pin    string
	host   string
	answer string
	// tokens are the token names that the code uses. The host must get the value of the first one, unless the package
	// signs with it.
	tokens []string
	in     []string // nil: the default places
	// variables are the credentials' second variables, by token.
	variables map[string]string
	aws       bool
	code      string
	out       string
}

// pinnedPackages are the packages of TestPinnedPackages.
var pinnedPackages = []pinned{
	{
		pin: "stripe@18.1.0", host: "api.stripe.com", tokens: []string{"STRIPE_KEY"},
		answer: `{"id":"cus_1","object":"customer","email":"a@example.com"}`,
		code: `import Stripe from "npm:stripe";
const customer = await new Stripe(process.env.STRIPE_KEY).customers.retrieve("cus_1");
console.log(customer.email);`, out: "a@example.com\n",
	},
	{
		pin: "openai@7.59.0", host: "api.openai.com", tokens: []string{"OPENAI_KEY"},
		variables: map[string]string{"OPENAI_KEY": "OPENAI_API_KEY"},
		answer:    `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}`,
		code: `import OpenAI from "npm:openai@7";
const openai = new OpenAI();
const c = await openai.chat.completions.create({ model: "gpt-5", messages: [{ role: "user", content: "hi" }] });
console.log(c.choices[0].message.content);`, out: "hi\n",
	},
	{
		pin: "@anthropic-ai/sdk@1.14.0", host: "api.anthropic.com", tokens: []string{"ANTHROPIC_KEY"},
		variables: map[string]string{"ANTHROPIC_KEY": "ANTHROPIC_API_KEY"},
		answer:    `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}]}`,
		code: `import Anthropic from "npm:@anthropic-ai/sdk";
const anthropic = new Anthropic();
const m = await anthropic.messages.create({ model: "claude", max_tokens: 9, messages: [{ role: "user", content: "hi" }] });
console.log(m.content[0].text);`, out: "hi\n",
	},
	{
		// The account's name is in the path too, and begins with AC.
		pin: "twilio@6.3.1", host: "api.twilio.com", tokens: []string{"AC_TWILIO_SID", "TWILIO_TOKEN"},
		variables: map[string]string{"AC_TWILIO_SID": "TWILIO_ACCOUNT_SID", "TWILIO_TOKEN": "TWILIO_AUTH_TOKEN"},
		in:        []string{"header:Authorization", "path"}, answer: `{"sid":"SM1","status":"queued"}`,
		code: `import twilio from "npm:twilio";
const sent = await twilio().messages.create({ to: "+15550100", from: "+15550101", body: "hi" });
console.log(sent.status);`, out: "queued\n",
	},
	{
		pin: "@google/genai@3.3.0", host: "generativelanguage.googleapis.com", tokens: []string{"GEMINI_KEY"},
		variables: map[string]string{"GEMINI_KEY": "GEMINI_API_KEY"},
		answer:    `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]}}]}`,
		code: `import { GoogleGenAI } from "npm:@google/genai";
const ai = new GoogleGenAI({});
console.log((await ai.models.generateContent({ model: "gemini-2.5-flash", contents: "hi" })).text);`, out: "hi\n",
	},
	{
		pin: "@slack/web-api@8.2.0", host: "slack.com", tokens: []string{"SLACK_TOKEN"}, answer: `{"ok":true,"team":"acme"}`,
		code: `import { WebClient } from "npm:@slack/web-api";
console.log((await new WebClient(process.env.SLACK_TOKEN).auth.test()).team);`, out: "acme\n",
	},
	{
		pin: "@supabase/supabase-js@2.119.1", host: "acme.supabase.co", tokens: []string{"SUPABASE_KEY"},
		in: []string{"header:Authorization", "header:apikey"}, answer: `[{"id":7}]`,
		code: `import { createClient } from "npm:@supabase/supabase-js";
const { data, error } = await createClient("https://acme.supabase.co", Deno.env.get("SUPABASE_KEY")).from("items").select();
console.log(error ?? data[0].id);`, out: "7\n",
	},
	{
		pin: "@octokit/rest@22.0.1", host: "octokit.wild.test", tokens: []string{"GITHUB_TOKEN"}, answer: `{"login":"octocat"}`,
		code: `import { Octokit } from "npm:@octokit/rest";
const octokit = new Octokit({ auth: process.env.GITHUB_TOKEN, baseUrl: "https://octokit.wild.test" });
console.log((await octokit.rest.users.getAuthenticated()).data.login);`, out: "octocat\n",
	},
	{
		pin: "@notionhq/client@5.26.0", host: "notion.wild.test", tokens: []string{"NOTION_KEY"},
		answer: `{"object":"user","id":"1","name":"acme"}`,
		code: `import { Client } from "npm:@notionhq/client";
console.log((await new Client({ auth: process.env.NOTION_KEY, baseUrl: "https://notion.wild.test" }).users.me({})).name);`, out: "acme\n",
	},
	{
		pin: "@aws-sdk/client-s3@3.1175.0", host: "s3.eu-central-1.amazonaws.com", tokens: []string{"S3_KEY"}, aws: true,
		answer: "one",
		code: `import { GetObjectCommand, S3Client } from "npm:@aws-sdk/client-s3";
const s3 = new S3Client({ region: "eu-central-1", forcePathStyle: true, maxAttempts: 1,
  credentials: { accessKeyId: process.env.S3_KEY, secretAccessKey: "unused" } });
const got = await s3.send(new GetObjectCommand({ Bucket: "b", Key: "k" }));
console.log(await got.Body.transformToString());`, out: "one\n",
	},
	{
		pin: "axios@1.21.1", host: "axios.wild.test", tokens: []string{"AXIOS_KEY"}, answer: `{"a":1}`,
		code: `import axios from "axios";
const answer = await axios.get("https://axios.wild.test/x", { headers: { Authorization: "Bearer " + process.env.AXIOS_KEY } });
console.log(answer.data.a);`, out: "1\n",
	},
	{
		pin: "zod@4.6.7",
		code: `import { z } from "npm:zod";
import * as mini from "npm:zod/mini";
import OpenAI from "npm:openai";
import { zodResponseFormat } from "npm:openai/helpers/zod";
console.log(z.object({ a: z.string() }).safeParse({ a: 1 }).success, typeof mini.string, typeof OpenAI,
  zodResponseFormat(z.object({ a: z.string() }), "x").type);`, out: "false function function json_schema\n",
	},
}

// pinPackages lists the packages of apis/packages.json.
func pinPackages() (pins []string) {
	for _, p := range pinnedPackages {
		pins = append(pins, "npm:"+p.pin)
	}
	return pins
}

// handler returns a handler that answers only requests with a key.
func (p pinned) handler(key *canary.Canary) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var head strings.Builder
		_ = r.Header.Write(&head)
		user, password, _ := r.BasicAuth()
		sent := head.String() + r.URL.String() + user + password
		if !p.aws && !strings.Contains(sent, key.Value()) || p.aws && !strings.Contains(sent, "Credential=AKIDOFTHETEST/") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !p.aws {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = io.WriteString(w, p.answer)
	})
}

// TestPinnedPackages: unmodified packages of npm, pinned by the user, work in code with names for keys. The hosts get the
// keys, the code gets names, and no run asks the registry.
// Promise: first-installed-package
func TestPinnedPackages(t *testing.T) {
	embedded(t)
	known := map[string]*canary.Canary{}
	hosts := map[string]http.Handler{}
	var apis []world.API
	for _, p := range pinnedPackages {
		if p.host == "" {
			continue
		}
		credentials := map[string]any{}
		for _, token := range p.tokens {
			known[token] = canary.New(token)
			credential := map[string]any{"value": known[token].Value()}
			if p.in != nil {
				credential["in"] = p.in
			}
			if v := p.variables[token]; v != "" {
				credential["variable"] = v
			}
			if p.aws {
				credential = map[string]any{"aws": map[string]any{"access_key_id": "AKIDOFTHETEST",
					"secret_access_key": known[token].Value(), "region": "eu-central-1", "services": []string{"s3"}}}
			}
			credentials[token] = credential
		}
		hosts[p.host] = p.handler(known[p.tokens[0]])
		name := strings.NewReplacer("@", "", "/", "-", ".", "-").Replace(p.pin)
		apis = append(apis, world.API{Name: name, Config: map[string]any{
			"description": p.pin, "domains": []string{p.host}, "ca_file": "ca.pem", "credentials": credentials,
		}})
	}
	w := world.Start(t, world.Config{Registry: true, APIs: apis, Hosts: hosts})
	up := w.Upstream.(*upstream.Server)
	for host := range hosts {
		up.Name(host, upstream.Embedded.Public)
	}
	if r := w.MustExecute(t, `import Stripe from "npm:stripe";`); !r.IsError || !strings.Contains(r.Notes, "codeforge package add npm:NAME") {
		t.Errorf("without packages: %s %s", r.Out, r.Notes)
	}
	pin(t, w, pinPackages())
	registry := func() (asked int) {
		for _, s := range up.Seen("") {
			if s.Host == upstream.Registry {
				asked++
			}
		}
		return asked
	}
	if list, err := w.Session().CallTool(t.Context(), &mcp.CallToolParams{Name: "list_apis"}); err != nil ||
		!strings.Contains(list.Content[len(list.Content)-1].(*mcp.TextContent).Text, "npm:stripe@18.1.0, npm:openai") {
		t.Errorf("list_apis: %+v %v", list, err)
	}
	tool := func(want string, args ...string) {
		t.Helper()
		c, err := w.Command(append([]string{"package"}, args...)...)
		testkit.Must(t, err)
		if out, code, err := world.Tool(t.Context(), c); code != 0 || err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %d %v\n%s", args, code, err, out)
		}
	}
	tool("npm:twilio@6.3.1", "list")
	fetched := registry()
	for _, p := range pinnedPackages {
		t.Run(strings.ReplaceAll(p.pin, "/", "-"), func(t *testing.T) {
			r, err := w.Do(t.Context(), w.Session(), world.Run{Code: p.code, Timeout: 60})
			if err != nil || r.Out != p.out || r.Notes != "" {
				t.Errorf("%v\n%.3000s\n%.3000s", err, r.Out, r.Notes)
			}
			for name, c := range known {
				if where := c.Find([]byte(r.JSON)); where != "" {
					t.Errorf("%s is shown: %s", name, where)
				}
			}
			if p.host != "" && (len(r.Receipt.Exchanges) == 0 || r.Receipt.Exchanges[0].Host != p.host || r.Receipt.Exchanges[0].Status != 200) {
				t.Errorf("the receipt: %+v", r.Receipt.Exchanges)
			}
		})
	}
	for _, code := range []string{`import x from "npm:lodash";`, `import x from "lodash";`, `import x from "npm:stripe@17";`,
		`await import("npm:" + "lodash");`} {
		r := w.MustExecute(t, code)
		if !r.IsError || !strings.Contains(r.Notes, "npm:stripe@18.1.0, npm:openai") || !strings.Contains(r.Notes, "codeforge package add npm:NAME") {
			t.Errorf("%s: %s %s", code, r.Out, r.Notes)
		}
	}
	r := w.MustExecute(t, `await import("npm:" + "stripe@17").catch(() => {}); console.log(typeof (await import("npm:" + "zod")).z);`)
	if r.Out != "object\n" {
		t.Errorf("an import after that of another version: %s %s", r.Out, r.Notes)
	}
	defer tool("Removed npm:twilio.\nCode can import the packages of the list now.\n", "rm", "npm:twilio")
	if now := registry(); now != fetched || fetched == 0 {
		t.Errorf("the registry got %d requests by the installation, and %d by runs", fetched, now-fetched)
	}
}

// pin writes the list of packages, and waits until code can import them.
func pin(t *testing.T, w *world.World, pins []string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"packages": pins})
	testkit.Must(t, errors.Join(err, os.WriteFile(filepath.Join(w.Dir, "apis", "packages.json"), text, 0o644))) //nolint:gosec // no secret
	testkit.WaitFor(t, func() bool {
		r, err := w.Do(t.Context(), w.Session(), world.Run{Code: `import "` + pins[0] + `";`})
		return err == nil && !r.IsError
	})
}
