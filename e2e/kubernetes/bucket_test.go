package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// node is the node's address, at which pods reach this process.
const node = "10.99.1.1"

// inBucket: with a bucket, a skill that a model saves through one mcp-server can be imported through another one and
// through their successors. Only mcp-server's containers have the bucket's key. While the bucket is unreachable, runs
// work and saving fails.
func inBucket(t *testing.T, w *world.World) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	const id, key = "AKIDOFTHETEST", "canary-of-the-bucket-Zq81"
	store := testkit.NewObjectStore(t, id, key, "us-east-1")
	store.Bucket("skills")
	address, err := world.Forward(node+":0", store.Address)
	testkit.Must(t, err)
	credentials := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", id, key)
	_, err = world.Kube(ctx, "", "create", "secret", "generic", "skills-key", "-n", w.Cluster.Server, "--from-literal=credentials="+credentials)
	testkit.Must(t, err)
	testkit.Must(t, w.Cluster.Upgrade(ctx, "--set", "skills.store=s3://skills/codeforge,skills.region=us-east-1,skills.secret=skills-key,skills.endpoint=http://"+address))
	testkit.Must(t, pods(ctx, w.Cluster.Server, 3))

	servers := replicas(ctx, t, w)
	saving, other := servers[0], servers[1]
	if got := save(ctx, t, saving, "kept", "", "one"); !strings.Contains(got, "was updated") {
		t.Fatal(got)
	}
	const uses = `import { value } from "/skills/kept.ts"; console.log(value);`
	imported := func(s *mcp.ClientSession, want string) {
		t.Helper()
		var r world.Result
		var err error
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			if r, err = w.Do(ctx, s, world.Run{Code: uses}); err == nil && r.Out == want+"\n" {
				return
			}
		}
		t.Errorf("code imports %q, notes %q, %v; want %s", r.Out, r.Notes, err, want)
	}
	imported(saving, "one")
	imported(other, "one")
	if got := save(ctx, t, other, "kept", "one", "two"); !strings.Contains(got, "was updated") {
		t.Error(got)
	}
	imported(saving, "two")
	for name, pid := range processes(t, w) {
		if holds := search(t, pid, key); holds != (name == "mcp-server") {
			t.Errorf("the container %s has the bucket's key: %v", name, holds)
		}
	}

	_, err = world.Kube(ctx, "", "delete", "pods", "-n", w.Cluster.Server, "-l", "app.kubernetes.io/component=mcp-server", "--grace-period=1")
	testkit.Must(t, err)
	testkit.Must(t, pods(ctx, w.Cluster.Server, 3))
	later := replicas(ctx, t, w)[0]
	imported(later, "two")

	store.Stop()
	outdated := func(want bool) {
		t.Helper()
		testkit.WaitFor(t, func() bool {
			return strings.Contains(tool(ctx, t, later, "get_instructions", nil), "out of date") == want
		})
	}
	outdated(true)
	imported(later, "two")
	if got := save(ctx, t, later, "more", "", "three"); !strings.Contains(got, "did not confirm") {
		t.Errorf("without the bucket: %s", got)
	}
	store.Start()
	outdated(false)
	if got := save(ctx, t, later, "more", "", "three"); !strings.Contains(got, "was updated") {
		t.Errorf("with the bucket again: %s", got)
	}
}

// replicas opens a session with each mcp-server.
func replicas(ctx context.Context, t *testing.T, w *world.World) (list []*mcp.ClientSession) {
	t.Helper()
	ips, err := world.Kube(ctx, "", "get", "pods", "-n", w.Cluster.Server, "-l", "app.kubernetes.io/component=mcp-server", "-o", "jsonpath={.items[*].status.podIP}")
	testkit.Must(t, err)
	for _, ip := range strings.Fields(ips) {
		address, err := world.Forward("127.0.0.1:0", ip+":8080")
		testkit.Must(t, err)
		theirs := *w
		theirs.URL = "http://" + address + "/mcp"
		session, err := theirs.Connect(ctx)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = session.Close() })
		list = append(list, session)
	}
	return list
}

// save saves a skill with a value. If old is not empty, it replaces a version with that value.
func save(ctx context.Context, t *testing.T, s *mcp.ClientSession, name, old, value string) string {
	t.Helper()
	line, search := `export const value = "%s";`, ""
	if old != "" {
		search = fmt.Sprintf(line, old) + "\n"
	} else {
		line = "/** @description A value */\n" + line
	}
	return tool(ctx, t, s, "update_skill", map[string]any{
		"name": name, "patch": "<<<<<<< SEARCH\n" + search + "=======\n" + fmt.Sprintf(line, value) + "\n>>>>>>> REPLACE",
	})
}

// tool calls a tool and returns its text.
func tool(ctx context.Context, t *testing.T, s *mcp.ClientSession, name string, args map[string]any) string {
	t.Helper()
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	testkit.Must(t, err)
	var all strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all.WriteString(text.Text + "\n")
		}
	}
	return all.String()
}
