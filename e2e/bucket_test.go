package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const bucketKey = "canary-of-the-bucket-Zq81"

// buildObjectStore builds the S3 server, as long as there is a network. Without one, NewObjectStore says so.
func buildObjectStore(root string) { _ = testkit.BuildObjectStore(root) }

// sharing is a CodeForge whose skills and runs are in a bucket.
type sharing struct {
	*world.Process
	world   *world.World
	dir     string
	session *mcp.ClientSession
}

func startSharing(t *testing.T, user world.User, store *testkit.ObjectStore) sharing {
	t.Helper()
	env := store.Environment()
	key, err := os.ReadFile(env["BUCKET_CREDENTIALS_FILE"])
	testkit.Must(t, err)
	env["BUCKET_CREDENTIALS_FILE"], env["SKILLS_BUCKET"], env["HISTORY_BUCKET"] = "key", "s3://team/forge", "s3://team/forge"
	dir, err := world.NewDir(user, nil, env)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	info, err := os.Stat(dir)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "key"), key, 0o600))
	testkit.Must(t, os.Chown(filepath.Join(dir, "key"), int(info.Sys().(*syscall.Stat_t).Uid), -1))
	p, err := world.StartUp(user, dir, 3)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	up, err := p.Ready(60 * time.Second)
	testkit.Must(t, err)
	s := sharing{Process: p, dir: dir, world: &world.World{Mode: world.Embedded, User: user, URL: up.URL + "/mcp"}}
	s.session, err = s.world.Connect(t.Context())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = s.session.Close() })
	return s
}

// run is what code prints.
func (s sharing) run(t *testing.T, code string) string {
	t.Helper()
	r, err := s.world.Do(t.Context(), s.session, world.Run{Code: code})
	testkit.Must(t, err)
	return r.Out
}

// tool is what codeforge prints.
func (s sharing) tool(t *testing.T, args ...string) string {
	t.Helper()
	out, code, err := world.Tool(within(t, 60), world.Command{User: s.world.User, Dir: s.dir, Args: args})
	if err != nil || code != 0 {
		t.Errorf("codeforge %s ended with %d, %v:\n%s", strings.Join(args, " "), code, err, out)
	}
	return out
}

// TestBuckets: two CodeForges share skills and runs through a bucket. Its key is in no environment, no file of the state
// directory, no line of the logs and no object, and nothing about the bucket is in an environment but mcp-server's. While
// the bucket is away, status and doctor say so, and runs go on.
// Promise: shared-skills
func TestBuckets(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			store := testkit.NewObjectStore(t, "AKIDOFTHETEST", bucketKey, "us-east-1")
			store.Bucket("team")
			one, two := startSharing(t, user, store), startSharing(t, user, store)
			patch := "<<<<<<< SEARCH\n=======\n/** @description A value */\nexport const value = 'of the first';\n>>>>>>> REPLACE"
			_, err := one.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "update_skill", Arguments: map[string]any{"name": "shared", "patch": patch}})
			testkit.Must(t, err)
			testkit.WaitFor(t, func() bool {
				return two.run(t, `import { value } from "/skills/shared.ts"; console.log(value)`) == "of the first\n"
			})
			if got := one.run(t, `await Deno.writeTextFile("/skills/mine.ts", "x").catch((e) => console.log(e.name))`); !strings.Contains(got, "NotCapable") && !strings.Contains(got, "NotFound") && !strings.Contains(got, "PermissionDenied") {
				t.Errorf("code writes a skill: %q", got)
			}
			one.run(t, "console.log('zebrawort')")
			testkit.WaitFor(t, func() bool { return strings.Contains(two.tool(t, "runs", "--grep", "zebrawort"), " ok") })
			for _, want := range []string{"skills are shared through s3://team/forge\n", "runs are shared through s3://team/forge\n"} {
				testkit.WaitFor(t, func() bool { return strings.Contains(two.tool(t, "status"), want) }) // once all is loaded
			}
			for _, s := range []sharing{one, two} {
				hiding(t, s)
			}
			objects(t, store.Dir)
			for place, want := range map[string]bool{"history/.bucket/shared.ts": true, "skills/.bucket": false} { // which code could make a link
				if _, err := os.Lstat(filepath.Join(one.dir, ".codeforge", place)); (err == nil) != want {
					t.Errorf("%s: %v", place, err)
				}
			}

			store.Stop()
			testkit.WaitFor(t, func() bool {
				out := one.tool(t, "status")
				return strings.Count(out, "; problem: ") == 2 && strings.Contains(out, "the server does not answer")
			})
			if out := one.tool(t, "status", "--json"); !strings.Contains(out, `"address": "s3://team/forge"`) {
				t.Errorf("status --json:\n%s", out)
			}
			if out := one.tool(t, "doctor", "--offline"); !strings.Contains(out, "bucket of skills") || !strings.Contains(out, "bucket of runs") {
				t.Errorf("doctor:\n%s", out)
			}
			if got := one.run(t, `import { value } from "/skills/shared.ts"; console.log(value)`); got != "of the first\n" {
				t.Errorf("without the bucket: %q", got)
			}
			testkit.WaitFor(t, func() bool { return strings.Contains(one.tool(t, "status"), " waiting to be put there") })
			for _, s := range []sharing{one, two} {
				hiding(t, s)
			}
		})
	}
}

// hiding looks for the key where it must not be.
func hiding(t *testing.T, s sharing) {
	t.Helper()
	if strings.Contains(s.Output(), bucketKey) {
		t.Error("the key is in the log")
	}
	for _, name := range []string{"codeforge", "egress-proxy", "sandboxd", "mcp-server", "deno"} {
		pids := world.Below(s.Cmd.Process.Pid, name)
		if len(pids) == 0 && name != "deno" {
			t.Errorf("there is no %s", name)
		}
		for _, pid := range pids {
			environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil {
				continue // it has ended
			}
			if has := strings.Contains(string(environ), "BUCKET_"); name != "codeforge" && has != (name == "mcp-server") {
				t.Errorf("%s has settings of the bucket: %v", name, has)
			}
			if strings.Contains(string(environ), bucketKey) {
				t.Errorf("the environment of %s has the key", name)
			}
		}
	}
	objects(t, filepath.Join(s.dir, ".codeforge"))
}

// objects looks for the key in the files below a folder.
func objects(t *testing.T, dir string) {
	t.Helper()
	n := 0
	testkit.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // gone
		}
		n++
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), bucketKey) {
			t.Errorf("%s has the key", path)
		}
		return nil
	}))
	if n < 3 {
		t.Errorf("%s has %d files", dir, n)
	}
}
