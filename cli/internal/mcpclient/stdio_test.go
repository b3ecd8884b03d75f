package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestStdioBeforeServer: a client that starts before CodeForge gets its answer once CodeForge runs, and the reason for the
// wait in its log. Without CodeForge, the end of stdin ends the wait.
func TestStdioBeforeServer(t *testing.T) {
	c := Config{Socket: filepath.Join(t.TempDir(), "s")}
	var log bytes.Buffer
	if err := ServeStdio(t.Context(), c, strings.NewReader(""), io.Discard, &log); !isAbsent(err) {
		t.Errorf("without CodeForge and without input: %v", err)
	}
	if !strings.Contains(log.String(), "Waiting for it.") {
		t.Errorf("log: %q", log.String())
	}

	in, toStdio := io.Pipe()
	fromStdio, out := io.Pipe()
	stderr, log2 := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeStdio(context.WithoutCancel(t.Context()), c, in, out, log2) }()
	_, err := bufio.NewReader(stderr).ReadString('\n')
	testkit.Must(t, err)
	go toStdio.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}` + "\n")) //nolint:errcheck // the answer shows it

	l, err := net.Listen("unix", c.Socket)
	testkit.Must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})}
	go srv.Serve(l) //nolint:errcheck // ends with Close
	defer srv.Close()
	answer, err := bufio.NewReader(fromStdio).ReadString('\n')
	if err != nil || answer != `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n" {
		t.Errorf("answer %q, %v", answer, err)
	}
	testkit.Must(t, toStdio.Close())
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
