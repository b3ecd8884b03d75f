package slot

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain is also the child of TestInheritedByChild: it prints what it was given.
func TestMain(m *testing.M) {
	if os.Getenv("SLOT_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	files, err := InheritedFiles(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, f := range files {
		data, err := io.ReadAll(f.File)
		fmt.Println(f.Slot, f.Kind, f.File.Name(), string(data), err)
	}
}

// TestInheritedByChild hands real descriptors to a real process.
func TestInheritedByChild(t *testing.T) {
	names := []string{FileName(3, HTTPS), FileName(0, NetNS), FileName(99, DNSUDP)}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(ChildEnviron(names), "SLOT_TEST_CHILD=1")...)
	for _, name := range names {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.WriteString(w, "I am "+name); err != nil {
			t.Fatal(err)
		}
		w.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	want := []string{
		"3 https slot3-https I am slot3-https <nil>",
		"0 netns slot0-netns I am slot0-netns <nil>",
		"99 dns-udp slot99-dns-udp I am slot99-dns-udp <nil>",
	}
	if err != nil || strings.TrimSpace(string(out)) != strings.Join(want, "\n") {
		t.Errorf("the child saw:\n%s%v", out, err)
	}
}
