package health

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestProblem: what one process publishes, another one of the same user reads, until it is withdrawn.
func TestProblem(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	if got := readProblem(self); got != "" {
		t.Fatalf("before: %q", got)
	}
	for _, want := range []string{"MCP_PORT: \"http\"; want a whole number\nTZ: wrong", strings.Repeat("x", maxProblem)} {
		withdraw, err := publishProblem(want + strings.Repeat("y", max(0, len(want)-maxProblem+1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := readProblem(self); got != want {
			t.Errorf("got %.80q, want %.80q", got, want)
		}
		withdraw()
		if got := readProblem(self); got != "" {
			t.Errorf("withdrawn: %q", got)
		}
	}
}

// TestCannotStart: the mark keeps the error and its text.
func TestCannotStart(t *testing.T) {
	if err := CannotStart(nil); err != nil {
		t.Errorf("CannotStart(nil) is %v", err)
	}
	cause := errors.New("cause")
	if err := CannotStart(fmt.Errorf("starting: %w", cause)); !errors.Is(err, cause) || err.Error() != "starting: cause" {
		t.Errorf("%v hides its cause", err)
	}
}
