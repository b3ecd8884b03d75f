package proc

import (
	"strings"
	"testing"
)

// TestParseStatus: each field of a status is read, and a text that lacks one is refused.
func TestParseStatus(t *testing.T) {
	const text = "State:\tS (sleeping)\nPPid:\t7\nThreads:\t3\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n" +
		"CapInh:\t1\nCapPrm:\t2\nCapEff:\t4\nCapBnd:\t8\nCapAmb:\t10\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	s, err := parseStatus(text)
	if err != nil || s.State != 'S' || s.Parent != 7 || s.Threads != 3 || s.UID != [4]int{1, 2, 3, 4} || s.GID != [4]int{5, 6, 7, 8} ||
		len(s.Groups) != 2 || s.Caps != 0x17 || s.Bounding != 8 || !s.NoNewPrivs || s.Seccomp != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for line := range strings.Lines(text) {
		if _, err := parseStatus(strings.Replace(text, line, "", 1)); err == nil {
			t.Errorf("without %q: no error", line)
		}
	}
	for _, line := range []string{"PPid:\t7", "Threads:\t3", "1\t2\t3\t4", "5\t6\t7\t8", "9 10", "CapEff:\t4", "CapBnd:\t8", "Seccomp:\t2"} {
		for _, end := range []string{"", " x"} { // the last value is missing, or one more is not a number
			if bad := line[:len(line)-1] + end; line != "9 10" || end != "" {
				if _, err := parseStatus(strings.Replace(text, line, bad, 1)); err == nil {
					t.Errorf("%q: no error", bad)
				}
			}
		}
	}
}
