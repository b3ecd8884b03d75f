package shim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
)

// good is the body that moby/moby/client sends for the spec.
func good(t testing.TB, s Spec) []byte {
	t.Helper()
	data, err := json.Marshal(container.ExecCreateRequest{
		User: s.User, Cmd: s.Cmd, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Promise: docker-socket
func TestCheckCreate(t *testing.T) {
	s := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	const io = `"AttachStdin":true,"AttachStdout":true,"AttachStderr":true`
	const id = `"User":"7:7","Cmd":["/bin/x","attach"]`
	allowed := map[string]string{
		"as the client sends it":   string(good(t, s)),
		"only what is needed":      `{` + id + `,` + io + `}`,
		"null slices, white space": "\n{" + id + `,` + io + `, "Env" : null, "ConsoleSize": null }` + "\n",
		"an empty Env":             `{` + id + `,` + io + `,"Env":[],"Tty":false,"Privileged":false}`,
		"an escaped key":           `{` + id + `,` + io + `,"Priv\u0069leged":false}`,
	}
	for name, body := range allowed {
		t.Run(name, func(t *testing.T) {
			if err := s.checkCreate([]byte(body)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	refused := map[string]struct{ body, want string }{
		"empty":                {``, "not a JSON object"},
		"null":                 {`null`, "not a JSON object"},
		"an array":             {`[{` + id + `,` + io + `}]`, "not a JSON object"},
		"cut":                  {`{` + id + `,` + io, "the end of the file"},
		"two objects":          {`{` + id + `,` + io + `}{"Privileged":true}`, "more text after the object"},
		"trailing bytes":       {`{` + id + `,` + io + `}x`, "more text after the object"},
		"not UTF-8":            {`{` + id + `,` + io + ",\"\xff\":1}", "not UTF-8"},
		"privileged":           {`{` + id + `,` + io + `,"Privileged":true}`, "Privileged"},
		"escaped privileged":   {`{` + id + `,` + io + `,"Priv\u0069leged":true}`, "Privileged"},
		"lower case key":       {`{` + id + `,` + io + `,"privileged":true}`, "not allowed"},
		"upper case key":       {`{` + id + `,` + io + `,"PRIVILEGED":true}`, "not allowed"},
		"Kelvin sign key":      {`{` + id + `,` + io + `,"Detach\u212Aeys":"x"}`, "not allowed"},
		"a key twice":          {`{` + id + `,` + io + `,"Privileged":false,"Privileged":true}`, "twice"},
		"a key twice, escaped": {`{` + id + `,` + io + `,"Cm\u0064":["/bin/sh"]}`, "twice"},
		"the user twice":       {`{"User":"0",` + id + `,` + io + `}`, "twice"},
		"root":                 {`{"User":"0:0","Cmd":["/bin/x","attach"],` + io + `}`, "User"},
		"no user":              {`{"Cmd":["/bin/x","attach"],` + io + `}`, "User"},
		"the user, no group":   {`{"User":"7","Cmd":["/bin/x","attach"],` + io + `}`, "User"},
		"another command":      {`{"User":"7:7","Cmd":["/bin/sh"],` + io + `}`, "Cmd"},
		"one argument more":    {`{"User":"7:7","Cmd":["/bin/x","attach","-v"],` + io + `}`, "Cmd"},
		"one argument less":    {`{"User":"7:7","Cmd":["/bin/x"],` + io + `}`, "Cmd"},
		"a shell line":         {`{"User":"7:7","Cmd":"/bin/x attach",` + io + `}`, "wrong kind"},
		"no command":           {`{"User":"7:7",` + io + `}`, "Cmd"},
		"an environment":       {`{` + id + `,` + io + `,"Env":["LD_PRELOAD=/tmp/x.so"]}`, "Env"},
		"a directory":          {`{` + id + `,` + io + `,"WorkingDir":"/proc/1/root"}`, "WorkingDir"},
		"detach keys":          {`{` + id + `,` + io + `,"DetachKeys":"ctrl-p"}`, "DetachKeys"},
		"a terminal":           {`{` + id + `,` + io + `,"Tty":true}`, "terminal"},
		"a console size":       {`{` + id + `,` + io + `,"ConsoleSize":[1,2]}`, "terminal"},
		"no stdin":             {`{` + id + `,"AttachStdout":true,"AttachStderr":true}`, "AttachStdin"},
		"no stdout":            {`{` + id + `,"AttachStdin":true,"AttachStderr":true}`, "AttachStdin"},
		"no stderr":            {`{` + id + `,"AttachStdin":true,"AttachStdout":true}`, "AttachStdin"},
		"unknown field":        {`{` + id + `,` + io + `,"Capabilities":["ALL"]}`, "not allowed"},
		"the daemon's field":   {`{` + id + `,` + io + `,"Container":"other"}`, "not allowed"},
		"number for a bool":    {`{` + id + `,` + io + `,"Privileged":0}`, "wrong kind"},
		"deeply nested":        {`{` + id + `,` + io + `,"Env":` + strings.Repeat("[", 20000) + `}`, "at most 10000 levels"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			err := s.checkCreate([]byte(tc.body))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// Promise: docker-socket
func TestCheckStart(t *testing.T) {
	for _, body := range []string{`{}`, `{"Detach":false,"Tty":false}`, `{"Detach":false,"Tty":false,"ConsoleSize":null}`} {
		if err := checkStart([]byte(body)); err != nil {
			t.Errorf("%s refused: %v", body, err)
		}
	}
	for _, body := range []string{
		``, `null`, `{"Detach":true}`, `{"Tty":true}`, `{"detach":false}`, `{"Detach":false,"Detach":false}`,
		`{"ConsoleSize":[1,2]}`, `{"Cmd":["sh"]}`, `{} {}`,
	} {
		if checkStart([]byte(body)) == nil {
			t.Errorf("%s let through", body)
		}
	}
}

// FuzzCheckCreate holds the parser against the engine's: what is let through means the spec to encoding/json as well,
// which is what the engine decodes with.
// Promise: docker-socket
func FuzzCheckCreate(f *testing.F) {
	s := Spec{Container: "box", User: "7:7", Cmd: []string{"/bin/x", "attach"}}
	f.Add(good(f, s))
	f.Add([]byte(`{"User":"7:7","user":"0"}`))
	f.Add([]byte(`{"Cmd":["/bin/x","attach"],"User":"7:7","AttachStdin":true,"AttachStdout":true,"AttachStderr":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s.checkCreate(data) != nil {
			return
		}
		var got container.ExecCreateRequest
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("let through what the engine cannot read: %v", err)
		}
		if got.User != s.User || !slices.Equal(got.Cmd, s.Cmd) || got.Privileged || got.Tty || len(got.Env) > 0 ||
			got.WorkingDir != "" || got.DetachKeys != "" || got.ConsoleSize != nil {
			t.Fatalf("let through %+v", got)
		}
	})
}

// Promise: docker-socket
func TestIDs(t *testing.T) {
	var s idSet
	if s.takeID("a") {
		t.Error("the zero value knows an id")
	}
	s.addID("a")
	if !s.takeID("a") || s.takeID("a") {
		t.Error("an exec starts once")
	}
	for i := range maxIDs + 1 {
		s.addID("b" + strings.Repeat("x", i))
	}
	if s.takeID("b") || len(s.fresh) != maxIDs {
		t.Errorf("the oldest is not forgotten: %d kept", len(s.fresh))
	}
}
