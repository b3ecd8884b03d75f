package convert_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

func TestEach(t *testing.T) {
	t.Parallel()
	if got := convert.Each([]int{3, 1, 2}, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Errorf("got %q", got)
	}
	if got := convert.Each(nil, strconv.Itoa); got == nil || len(got) != 0 {
		t.Errorf("got %#v of no element", got)
	}
}
