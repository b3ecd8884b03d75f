package proc

import "testing"

// TestMapHolds: all ids must be there, in one line.
func TestMapHolds(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"         0          0 4294967295\n", true},
		{"0 100000 65536\n", true},
		{"         0       1000          1\n", false},
		{"0 1000 1\n1 100000 65536\n", true},
		{"0 1000 1\n1 100000 20099\n", true},
		{"0 1000 1\n1 100000 20098\n", false},
		{"0 0 20050\n20050 20050 100\n", false},
		{"20000 0 100\n", true},
		{"20000 0 99\n", false},
		{"20001 1 100000\n", false},
		{"", false},
		{"garbage\n", false},
		{"0 0\nx y z\n", false},
	} {
		if got := HasIDRange(c.text, 20000, 20099); got != c.want {
			t.Errorf("MapHolds(%q) = %v, want %v", c.text, got, c.want)
		}
	}
}
