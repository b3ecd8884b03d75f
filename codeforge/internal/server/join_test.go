package server

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
)

// TestJoin: the end of stdin is passed on only after every request is answered.
func TestJoin(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("embedded mode needs Linux")
	}
	d, err := statedir.Create(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	path, release, err := d.Socket(statedir.MCPSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		lines := bufio.NewScanner(c)
		for lines.Scan() { // ends when the other side says that it has no more
			if id := lines.Text(); strings.Contains(id, `"id":`) {
				time.Sleep(50 * time.Millisecond)
				fmt.Fprintln(c, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
				fmt.Fprintln(c, `{"jsonrpc":"2.0","id":`+id[strings.Index(id, `"id":`)+5:strings.Index(id, `,"method"`)]+`,"result":{}}`)
			}
		}
	}()
	in := `{"jsonrpc":"2.0","id":1,"method":"a"}` + "\n" + `{"jsonrpc":"2.0","method":"n"}` + "\n" + `{"jsonrpc":"2.0","id":"x","method":"b"}` + "\n"
	var out bytes.Buffer
	if err := Join(t.Context(), d, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":1,"result"`, `"id":"x","result"`, "notifications/progress"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %q", want, out.String())
		}
	}
}
