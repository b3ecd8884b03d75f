package version

import (
	"os/exec"
	"reflect"
	"testing"
)

// TestSetByLinker builds a program the way releases are built: a renamed variable would leave them all at "dev".
func TestSetByLinker(t *testing.T) {
	path := reflect.TypeFor[marker]().PkgPath() + ".Version"
	out, err := exec.CommandContext(t.Context(), "go", "run", "-ldflags", "-X "+path+"=9.8.7-test", "./testdata/print").CombinedOutput()
	if err != nil || string(out) != "9.8.7-test" {
		t.Errorf("built with -X %s=9.8.7-test it prints %q, %v", path, out, err)
	}
}

type marker struct{}
