package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const bucketKey = "canary-of-the-bucket-Zq81"

// TestBucketSettings: the settings of buckets are in mcp-server's environment, and in that of the check of all settings,
// and the file with the key is mounted in mcp-server alone. A half of them keeps everything from starting.
// Promise: shared-skills
func TestBucketSettings(t *testing.T) {
	some := []string{"SKILLS_BUCKET=s3://team/forge"}
	all := append(some, "HISTORY_BUCKET=s3://team/forge", "BUCKET_ENDPOINT=http://s3.test", "BUCKET_REGION=us-east-1",
		"BUCKET_CREDENTIALS_FILE="+filepath.Join(root, "README.md"), "BUCKET_CA_FILE="+filepath.Join(root, "README.md"))
	text, err := stack.ComposeWith(t.Context(), all, "config", "--format", "json")
	testkit.Must(t, err)
	var conf struct {
		Services map[string]struct {
			Environment map[string]*string
			Secrets     []struct{ Source string }
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &conf))
	for name, s := range conf.Services {
		set := 0
		for key, value := range s.Environment {
			if strings.Contains(key, "BUCKET") && value != nil && *value != "" {
				set++
			}
		}
		want := 0
		if name == "mcp-server" || name == "settings" {
			want = len(all)
		}
		if set != want {
			t.Errorf("%s has %d settings of buckets, want %d", name, set, want)
		}
		for _, secret := range s.Secrets {
			if strings.HasPrefix(secret.Source, "bucket-") && name != "mcp-server" {
				t.Errorf("%s has %s", name, secret.Source)
			}
		}
	}
	out, err := stack.ComposeWith(t.Context(), some, "run", "--rm", "--no-deps", "settings")
	if err == nil || !strings.Contains(out, "BUCKET_CREDENTIALS_FILE: not set; want") {
		t.Errorf("half of the settings: %v: %s", err, out)
	}
}

// TestBucket: with a bucket, what a model saves and what code did is there, and code imports it; the key is in no
// container but mcp-server's, and there in no environment and no log.
// Promise: shared-skills
func TestBucket(t *testing.T) {
	store := testkit.NewObjectStore(t, "AKIDOFTHETEST", bucketKey, "us-east-1")
	store.Bucket("team")
	gateway := docker(t, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", compose.Project+"_egress-net")
	address, err := world.Forward(strings.TrimSpace(gateway)+":0", store.Address)
	testkit.Must(t, err)
	env := store.Environment()
	testkit.Must(t, os.Chmod(env["BUCKET_CREDENTIALS_FILE"], 0o644)) //nolint:gosec // read by mcp-server's user
	maps.Copy(env, map[string]string{
		"BUCKET_ENDPOINT": "http://" + address, "SKILLS_BUCKET": "s3://team/forge", "HISTORY_BUCKET": "s3://team/forge",
	})
	var settings []string
	for k, v := range env {
		settings = append(settings, k+"="+v)
	}
	up := strings.Fields("up -d --no-build --no-deps --wait --wait-timeout 120 mcp-server")
	t.Cleanup(func() {
		if out, err := stack.Compose(context.Background(), up...); err != nil {
			t.Error(err, out)
		}
	})
	if out, err := stack.ComposeWith(t.Context(), settings, up...); err != nil {
		t.Fatal(err, out)
	}
	s, err := connect(t.Context())
	testkit.Must(t, err)
	defer s.Close()
	patch := "<<<<<<< SEARCH\n=======\n/** @description A value */\nexport const value = 'of the bucket';\n>>>>>>> REPLACE"
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "update_skill", Arguments: map[string]any{"name": "shared", "patch": patch}})
	if err != nil || res.IsError {
		t.Fatalf("%+v %v", res, err)
	}
	if r := execute(t, `import { value } from "/skills/shared.ts"; console.log(value)`); r.Text != "of the bucket\n" {
		t.Errorf("%+v", r)
	}
	testkit.WaitFor(t, func() bool { // a skill and a run
		skill, _ := filepath.Glob(filepath.Join(store.Dir, "team/forge/shared.ts"))
		runs, _ := filepath.Glob(filepath.Join(store.Dir, "team/forge/history/runs/*"))
		return len(skill) == 1 && len(runs) > 0
	})
	status, err := stack.Exec(t.Context(), "", "mcp-server", "codeforge", "status")
	if err != nil || !strings.Contains(status, "skills are shared through s3://team/forge") || !strings.Contains(status, "runs are shared through s3://team/forge") {
		t.Errorf("%v: %s", err, status)
	}
	for _, service := range slices.Concat(services, []string{"settings"}) {
		id := stack.Container(service)
		for what, data := range map[string][]byte{
			"inspect": []byte(docker(t, "inspect", id)), "log": []byte(docker(t, "logs", id)), "files": output(t, "docker", "export", id),
		} {
			if bytes.Contains(data, []byte(bucketKey)) {
				t.Errorf("%s: %s has the key", service, what)
			}
		}
		if service == "settings" { // has ended
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", inspect(t, service).State.Pid))
		if err != nil || bytes.Contains(environ, []byte(bucketKey)) || bytes.Contains(environ, []byte("SKILLS_BUCKET")) != (service == "mcp-server") {
			t.Errorf("%s: its environment has what is not for it: %v", service, err)
		}
	}
}
