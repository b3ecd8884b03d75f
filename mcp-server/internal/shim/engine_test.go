package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
)

// engineSocket is where the tests look for a Docker engine.
const engineSocket = "/var/run/docker.sock"

// startBox starts a container that does nothing, and returns its name.
func startBox(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("docker", "version", "--format", "{{.Server.Version}}").CombinedOutput()
	if _, serr := os.Stat(engineSocket); err != nil || serr != nil {
		reason := fmt.Sprintf("no Docker engine at %s: %s", engineSocket, bytes.TrimSpace(out))
		testkit.SkipBecause(t, reason)
	}
	name := fmt.Sprintf("cfdock-shim-%d-%d", os.Getpid(), time.Now().UnixNano())
	docker(t, "run", "-d", "--rm", "--name", name, "--network", "none", "debian:bookworm-slim", "sleep", "300")
	t.Cleanup(func() { docker(t, "rm", "-f", name) })
	return name
}

// docker runs the docker command.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// dial makes the real client of a shim.
func dial(t *testing.T, socket string) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// inspectExec asks the engine itself about an exec.
func inspectExec(t *testing.T, id string) client.ExecInspectResult {
	t.Helper()
	api := dial(t, engineSocket)
	_, err := api.Ping(t.Context(), client.PingOptions{NegotiateAPIVersion: true})
	testkit.Must(t, err)
	got, err := api.ExecInspect(t.Context(), id, client.ExecInspectOptions{})
	testkit.Must(t, err)
	return got
}

// options is the exec that the spec allows.
func options(s Spec) client.ExecCreateOptions {
	return client.ExecCreateOptions{User: s.User, Cmd: s.Cmd, AttachStdin: true, AttachStdout: true, AttachStderr: true}
}

// TestExec drives the real client through the shim to the real engine: version, create, start, both directions,
// half close.
func TestExec(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "12345:54321", Cmd: []string{"sh", "-c", "echo $(id -u) $(id -g) >&2; cat"}}
	api := dial(t, serve(t, "unix://"+engineSocket, spec))
	ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
	defer cancel()

	p, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil || p.APIVersion == "" || p.OSType != "linux" {
		t.Fatalf("ping: %+v, %v", p, err)
	}
	made, err := api.ExecCreate(ctx, name, options(spec))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	sent := bytes.Repeat([]byte("0123456789abcdef\x10\x11\n"), 1<<16) // with Docker's detach keys in it
	go func() {
		_, _ = stream.Conn.Write(sent)
		_ = stream.CloseWrite()
	}()
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, stream.Reader); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), sent) {
		t.Errorf("%d bytes came back of %d", stdout.Len(), len(sent))
	}
	if got := strings.TrimSpace(stderr.String()); got != "12345 54321" {
		t.Errorf("ran as %q", got)
	}
	if got := inspectExec(t, made.ID); got.Running || got.ExitCode != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{}); err == nil {
		t.Error("an exec was started twice")
	}
	if _, err := api.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); err == nil {
		t.Error("the container could be inspected")
	}
}

// TestForeignExec asks for an exec that exists and was made by somebody else.
// Promise: docker-socket
func TestForeignExec(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "1:1", Cmd: []string{"cat"}}
	direct, through := dial(t, engineSocket), dial(t, serve(t, "unix://"+engineSocket, spec))
	ctx := context.Background()
	if _, err := direct.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		t.Fatal(err)
	}
	made, err := direct.ExecCreate(ctx, name, client.ExecCreateOptions{Cmd: []string{"touch", "/pwned"}, Privileged: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := through.ExecAttach(ctx, made.ID, client.ExecAttachOptions{}); err == nil {
		t.Error("a foreign exec was started")
	}
	if _, err := through.ExecInspect(ctx, made.ID, client.ExecInspectOptions{}); err == nil {
		t.Error("an exec was inspected")
	}
	if got, err := direct.ExecInspect(ctx, made.ID, client.ExecInspectOptions{}); err != nil || got.Running || got.PID != 0 {
		t.Errorf("the foreign exec: %+v, %v", got, err)
	}
}

// TestPipelined sends a second request behind the start, where a plain pipe would hand it to the engine.
// Promise: docker-socket
func TestPipelined(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "1:1", Cmd: []string{"tee", "/tmp/stdin"}}
	socket := serve(t, "unix://"+engineSocket, spec)
	api := dial(t, socket)
	ctx := context.Background()
	made, err := api.ExecCreate(ctx, name, options(spec))
	if err != nil {
		t.Fatal(err)
	}
	second := post("/v1.41/containers/"+name+"/stop?t=0", "")
	start := post("/v1.41/exec/"+made.ID+"/start", `{}`, "Connection: Upgrade", "Upgrade: tcp")
	answer := send(t, socket, start+second)
	if !strings.HasPrefix(answer, "HTTP/1.1 403 ") || strings.Count(answer, "HTTP/1.1 ") != 1 {
		t.Errorf("answered %q", answer)
	}
	if got := inspectExec(t, made.ID); got.PID != 0 {
		t.Errorf("the exec ran: %+v", got)
	}
	if got := docker(t, "inspect", "-f", "{{.State.Running}}", name); got != "true" {
		t.Errorf("running: %s", got)
	}

	// After the upgrade a request is nothing but stdin.
	made, err = api.ExecCreate(ctx, name, options(spec))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := io.WriteString(stream.Conn, second); err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseWrite()
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, stream.Reader); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != second {
		t.Errorf("the exec read %q", stdout.String())
	}
	if got := docker(t, "inspect", "-f", "{{.State.Running}}", name); got != "true" {
		t.Errorf("running: %s", got)
	}
}

// TestCallerGone drops the connection: the exec's stdin ends, so the exec does.
func TestCallerGone(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "1:1", Cmd: []string{"cat"}}
	api := dial(t, serve(t, "unix://"+engineSocket, spec))
	ctx := context.Background()
	made, err := api.ExecCreate(ctx, name, options(spec))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if !inspectExec(t, made.ID).Running {
			break
		}
		if time.Since(began) > testkit.Patience {
			t.Fatal("the exec still runs")
		}
	}
}

// TestNoContainer asks for the right exec while the container is missing or stopped: the engine's reason comes back.
func TestNoContainer(t *testing.T) {
	_ = startBox(t)
	spec := Spec{Container: "cfdock-no-such-container", User: "1:1", Cmd: []string{"cat"}}
	api := dial(t, serve(t, "unix://"+engineSocket, spec))
	_, err := api.ExecCreate(context.Background(), spec.Container, options(spec))
	if err == nil || !strings.Contains(err.Error(), "No such container") {
		t.Errorf("got %v", err)
	}
}

// TestManyStreams opens streams up to the bound; one more is refused and its exec can still be started later.
func TestManyStreams(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "1:1", Cmd: []string{"cat"}}
	api := dial(t, serve(t, "unix://"+engineSocket, spec))
	ctx := context.Background()
	open := func() (client.HijackedResponse, error) {
		made, err := api.ExecCreate(ctx, name, options(spec))
		if err != nil {
			t.Fatal(err)
		}
		got, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
		return got.HijackedResponse, err
	}
	var last client.HijackedResponse
	for range maxStreams {
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		last = stream
	}
	if _, err := open(); err == nil {
		t.Error("one stream too many was opened")
	}
	last.Close()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		stream, err := open()
		if err == nil {
			stream.Close()
			break
		}
		if time.Since(began) > testkit.Patience {
			t.Fatalf("no stream after one was closed: %v", err)
		}
	}
}

// TestShutdown ends the shim while a stream is open: the caller sees the end, and Serve returns (see serve).
func TestShutdown(t *testing.T) {
	name := startBox(t)
	spec := Spec{Container: name, User: "1:1", Cmd: []string{"cat"}}
	srv, err := New(Config{Engine: "unix://" + engineSocket, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/s"
	l, err := unixsocket.Listen(t.Context(), path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	api := dial(t, path)
	made, err := api.ExecCreate(ctx, name, options(spec))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testkit.Patience):
		t.Fatal("Serve does not return")
	}
	_ = stream.Conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	if _, err := stream.Reader.ReadByte(); err == nil {
		t.Error("the stream is still open")
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream did not end")
	}
}
