package cli

import (
	"slices"
	"testing"
)

func TestParseSteps(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "1": {1}, "1-3,5": {1, 2, 3, 5}, " 2 , 4-4": {2, 4}} {
		if got, err := parseSteps(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "3-1", "a", "1,", "1-", "1-99999999", "1;2", "1-2-3"} {
		if got, err := parseSteps(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
