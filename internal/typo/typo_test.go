package typo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

func TestDistance(t *testing.T) {
	for _, r := range []struct {
		a, b        string
		limit, want int
	}{
		{"", "", 3, 0}, {"", "ab", 3, 2}, {"host", "host", 3, 0}, {"hots", "host", 3, 1}, {"hst", "host", 3, 1},
		{"hosts", "host", 3, 1}, {"hast", "host", 3, 1}, {"kitten", "sitting", 9, 3}, {"kitten", "sitting", 3, 3},
		{"ca", "abc", 9, 3}, {"abcdef", "badcfe", 9, 3}, {"abcdef", "uvwxyz", 4, 4}, {"abc", "abcdefgh", 4, 4},
		{strings.Repeat("a", 255), strings.Repeat("a", 254), 3, 1}, {strings.Repeat("a", 256), strings.Repeat("a", 256), 3, 3},
	} {
		if got := CountSlips(r.a, r.b, r.limit); got != r.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", r.a, r.b, r.limit, got, r.want)
		}
		if got := CountSlips(r.b, r.a, r.limit); got != r.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", r.b, r.a, r.limit, got, r.want)
		}
	}
}

// plain is Distance without a limit, by its whole matrix.
func plain(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// FuzzDistance: a limit changes nothing but that it is the most that is answered.
func FuzzDistance(f *testing.F) {
	f.Add("domains", "domians", 3)
	f.Fuzz(func(t *testing.T, a, b string, limit int) {
		if limit < 1 || limit > 2*maxLen || len(a) > maxLen || len(b) > maxLen {
			return // outside what is compared
		}
		whole := plain(a, b)
		if got := CountSlips(a, b, limit); got != min(whole, limit) {
			t.Errorf("Distance(%q, %q, %d) = %d, but the distance is %d", a, b, limit, got, whole)
		}
		if apart := minDistance(bagOf(a), bagOf(b)); apart > whole {
			t.Errorf("%q and %q are %d apart, but the distance is %d", a, b, apart, whole)
		}
	})
}

// TestDistances compares all short words of few letters.
func TestDistances(t *testing.T) {
	words := []string{""}
	for i := 0; len(words[i]) < 5; i++ {
		for _, c := range "abc" {
			words = append(words, words[i]+string(c))
		}
	}
	for i, a := range words {
		for _, b := range words[i%7:] {
			if i%3 != 0 && len(b) > 3 {
				continue
			}
			whole := plain(a, b)
			if apart := minDistance(bagOf(a), bagOf(b)); apart > whole {
				t.Fatalf("%q and %q are %d apart, but the distance is %d", a, b, apart, whole)
			}
			for limit := 1; limit < 7; limit++ {
				if got := CountSlips(a, b, limit); got != min(whole, limit) {
					t.Fatalf("Distance(%q, %q, %d) = %d, but the distance is %d", a, b, limit, got, whole)
				}
			}
		}
	}
}

// TestMinDistance: names that differ in numbers or endings are distinguished without computing their distance.
func TestMinDistance(t *testing.T) {
	for _, r := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"host", "host", 0}, {"host", "tohs", 0}, {"hast", "host", 1}, {"hast", "hasst", 1}, {"p.m", "0nm", 2},
		{"api0.example.org", "api101.example.com", 4}, {"api0.example.org", "api222.example.com", 4},
	} {
		if got := minDistance(bagOf(r.a), bagOf(r.b)); got != r.want {
			t.Errorf("%q and %q are %d apart, want %d", r.a, r.b, got, r.want)
		}
		if got := minDistance(bagOf(r.b), bagOf(r.a)); got != r.want {
			t.Errorf("%q and %q are %d apart, want %d", r.b, r.a, got, r.want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"GitHub", "stripe", "strips"}
	for _, r := range []struct {
		s     string
		slips int
		want  string
	}{
		{"github", 0, "GitHub"}, {"gihtub", 1, "GitHub"}, {"gitub", 0, ""}, {"strip", 2, "stripe"}, {"slack", 2, ""}, {"", 2, ""},
	} {
		if got := NearestOf(r.s, r.slips, known); got != r.want {
			t.Errorf("Nearest(%q, %d) = %q, want %q", r.s, r.slips, got, r.want)
		}
	}
}

// TestNear: the nearest of many long candidates is found in time in proportion to their number.
func TestNear(t *testing.T) {
	if got := NearestOf("api.exmaple.com", 3, []string{"api.example.org", "x", "api.example.com", strings.Repeat("a", 100)}); got != "api.example.com" {
		t.Errorf("got %q", got)
	}
	if got := NearestOf("abc", 1, []string{"abcdefgh", "xyz"}); got != "" {
		t.Errorf("got %q", got)
	}
	costtest.RequireLinear(t, 2000, func(n int) func() {
		names := make([]string, n)
		for i := range names {
			names[i] = strings.Repeat("b", 60) + fmt.Sprint(i)
		}
		return func() { NearestOf(strings.Repeat("a", 64), 32, names) }
	})
	costtest.RequireLinear(t, 1<<20, func(n int) func() {
		long := strings.Repeat("a", n)
		return func() { NearestOf(long, 1, []string{long + "b"}) }
	})
}
