package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// recorder starts an mcp-server whose runs and skills are in a bucket, and whose code prints what it is. It returns a
// client of its operator's API.
func recorder(t *testing.T, store *testkit.ObjectStore, more map[string]string) (*program, operatorapi.Client) {
	t.Helper()
	env := store.Environment()
	env["SKILLS_BUCKET"], env["HISTORY_BUCKET"] = "s3://skills/team", "s3://skills/team"
	maps.Copy(env, more)
	p := start(t, 2, env, "--history", t.TempDir())
	p.sandbox.SetScript(func(_ context.Context, r runapi.RunRequest, emit func(runapi.Event)) runapi.Exit {
		emit(runapi.Event{Stdout: r.Code})
		return runapi.Exit{Reason: runapi.Exited, WallMS: 5, MaxRSS: 1}
	})
	p.proxy.Receipt = func(r controlapi.Registration) controlapi.Receipt {
		x := controlapi.Exchange{
			Outcome: controlapi.OutcomeServed,
			ID:      "x-" + r.Run, Run: r.Run, At: time.Now(), Host: "api.stripe.com", APIs: []string{"stripe"},
			Swapped: []controlapi.Swap{{Name: "STRIPE_AUTH_TOKEN", In: "header"}},
		}
		return controlapi.Receipt{Run: r.Run, Exchanges: []controlapi.Exchange{x}, Count: controlapi.Count{Exchanges: 1, Swapped: 1}}
	}
	return p, operatorapi.Client{HTTP: p.onSocket()}
}

// found waits until exactly one run has a word, and returns all that is kept of it.
func found(t *testing.T, op operatorapi.Client, word string) historyapi.Detail {
	t.Helper()
	var page historyapi.Page
	testkit.WaitFor(t, func() (ok bool) {
		var err error
		page, err = op.Runs(t.Context(), historyapi.Filter{Grep: word}, "")
		return err == nil && len(page.Runs) == 1 && page.Runs[0].State == historyapi.OK
	})
	d, err := op.Run(t.Context(), page.Runs[0].ID)
	testkit.Must(t, err)
	return d
}

// isGone waits until no run has a word.
func isGone(t *testing.T, op operatorapi.Client, word string) {
	t.Helper()
	testkit.WaitFor(t, func() bool {
		page, err := op.Runs(t.Context(), historyapi.Filter{Grep: word}, "")
		return err == nil && len(page.Runs) == 0
	})
}

// TestRunsStore: a run through one mcp-server is listed by another with its code, output and receipt, also by one that
// comes later; what is removed in one is removed in all; runs go on while the bucket is away. Nothing of it, in the bucket
// neither, has the bucket's key.
// Promise: shared-runs
func TestRunsStore(t *testing.T) {
	store := testkit.NewObjectStore(t, "AKIDOFTHETEST", storeKey, "us-east-1")
	store.Bucket("skills")
	one, first := recorder(t, store, nil)
	two, second := recorder(t, store, nil)
	execute := func(p *program, code string) {
		t.Helper()
		if _, got := call(t, p.connect(t, nil), "execute_code", map[string]any{"code": code, "apis": []string{"stripe"}}); got[0] != code {
			t.Errorf("%q", got)
		}
	}
	const code = "// Late invoices\nconsole.log('zebrawort')"
	execute(one, code)
	began := time.Now()
	d := found(t, second, "zebrawort")
	t.Logf("listed by the other one after %s", time.Since(began).Round(100*time.Millisecond))
	if !d.Kept || d.Code.Head != code || d.Output.Head[0].Text != code || d.Answer.Head != code || len(d.Exchanges) != 1 || d.Client != "test" ||
		d.Exchanges[0].Swapped[0].Name != "STRIPE_AUTH_TOKEN" || d.Title != "Late invoices" || len(d.Narrowed) != 1 {
		t.Errorf("%+v", d)
	}
	if n, err := second.RemoveRuns(t.Context(), historyapi.Filter{Run: d.ID}); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	isGone(t, first, "zebrawort")

	store.Stop()
	execute(two, "// while it is away: quaggaroot")
	var status historyapi.Status
	testkit.WaitFor(t, func() bool {
		status, _ = second.History(t.Context())
		return status.Bucket != nil && status.Bucket.Problem != ""
	})
	if b := status.Bucket; b.Waiting != 1 || b.Address != "s3://skills/team" || status.Problem != "" {
		t.Errorf("%+v %+v", status, b)
	}
	store.Start()
	found(t, first, "quaggaroot")
	testkit.Must(t, two.stop())
	three, third := recorder(t, store, nil) // its file is empty
	found(t, third, "quaggaroot")
	for i, p := range []*program{one, two, three} {
		if strings.Contains(p.log.String(), storeKey) {
			t.Errorf("the key is in the log of %d", i)
		}
	}
	if n, found := objectsWith(t, store, storeKey), objectsWith(t, store, "quaggaroot"); n > 0 || found != 2 {
		t.Errorf("%d objects have the key, %d the code", n, found)
	}
}

// objectsWith counts the objects that contain a text, compressed or not.
func objectsWith(t *testing.T, store *testkit.ObjectStore, text string) (n int) {
	t.Helper()
	testkit.Must(t, filepath.WalkDir(store.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if r, gerr := gzip.NewReader(bytes.NewReader(data)); gerr == nil && err == nil {
			data, err = io.ReadAll(r)
		}
		if strings.Contains(string(data), text) {
			n++
		}
		return err
	}))
	return n
}

// TestRunsStoreRefused: a bucket that cannot be used keeps the program from starting, and so does one without a folder;
// with HISTORY=off it is not asked.
// Promise: shared-runs
func TestRunsStoreRefused(t *testing.T) {
	store := testkit.NewObjectStore(t, "AKIDOFTHETEST", storeKey, "us-east-1")
	env := store.Environment()
	env["HISTORY_BUCKET"] = "s3://skills"
	args := []string{"--listen", "127.0.0.1:0", "--sandbox", "unix:/nowhere/s", "--control", "/nowhere/c", "--skills", t.TempDir()}
	for want, more := range map[string][]string{
		"HISTORY_BUCKET: listing s3://skills/: there is no bucket skills: make it": {"--history", t.TempDir()},
		"HISTORY_BUCKET: want --history with it":                                   nil,
	} {
		var log testkit.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience) // if it starts
		err := run(ctx, append(args, more...), func(k string) string { return env[k] }, &log)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), storeKey) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	env["HISTORY"] = "off"
	p := start(t, 1, env, "--history", t.TempDir())
	op := operatorapi.Client{HTTP: p.onSocket()}
	if s, err := op.History(t.Context()); err != nil || s.Bucket != nil {
		t.Errorf("%+v %v", s, err)
	}
}
