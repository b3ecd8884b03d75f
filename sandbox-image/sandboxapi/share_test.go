package sandboxapi

import (
	"bufio"
	"bytes"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestFileShare: while the files of one owner take long to handle, another owner's file is not dropped.
// Promise: tenant-shares
func TestFileShare(t *testing.T) {
	if isDropped(t) {
		t.Error("the file of another owner was dropped")
	}
}

// isDropped reports whether a large file is dropped while mallory's large files are handled.
func isDropped(t *testing.T) (dropped bool) {
	t.Helper()
	var wire bytes.Buffer
	testkit.Must(t, writeEvent(&wire, Event{File: &File{Name: "a", Data: make([]byte, MaxOut)}}))
	read := func(owner string, on func(Event)) {
		testkit.Must(t, readEvent(bufio.NewReader(bytes.NewReader(wire.Bytes())), owner, on))
	}
	began, release := make(chan struct{}, 4), make(chan struct{})
	var all sync.WaitGroup
	for range cap(began) {
		all.Go(func() {
			read("mallory", func(e Event) {
				if began <- struct{}{}; !e.File.Dropped {
					<-release
				}
			})
		})
	}
	<-began
	read("alice", func(e Event) { dropped = e.File.Dropped })
	close(release)
	all.Wait()
	return dropped
}
