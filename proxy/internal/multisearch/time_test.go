package multisearch

import (
	"fmt"
	"strings"
	"testing"
)

// met counts the probes of a text that hit what only a pattern has: from there on the time of a search depends on
// secrets.
func met(s *Set, text string) (n int) {
	buf := []byte(text)
	for i := range s.tables {
		t := &s.tables[i]
		for p := 0; p+t.block <= len(buf); p++ {
			for _, pl := range t.at.lookUpKey(t.loadBlock(buf, p)) {
				known := s.pats[pl.patternIndex()].Text
				if off := t.blockOffset(len(known), pl.blockNumber()); known[off:off+t.block] == text[p:p+t.block] {
					n++
				}
			}
		}
	}
	x := search{set: s, buf: buf, cut: len(buf)}
	for p := range buf {
		w := x.computeWord(p) & s.esc.spelling.mask
		for _, pl := range s.esc.spelling.at.lookUpKey(w) {
			if strings.HasPrefix(s.pats[pl.pat].Text[pl.off:], unword(w, s.esc.spelling.n)) {
				n++
			}
		}
	}
	return n
}

func unword(w uint64, n int) string {
	var b []byte
	for i := range n {
		b = append(b, byte(w>>(8*i)))
	}
	return string(b)
}

// TestNoTimeOracle: a guess at the first half of any form, right or wrong, in any notation, hits nothing that a search
// treats differently. The whole form does, or the test would be blind.
// Promise: no-oracle
func TestNoTimeOracle(t *testing.T) {
	for _, value := range []string{"sk_live_51HxZqPm7vTbW3nKd9LcYf2RgJs4", "ghp_r8Kd2LmZ0qXw7TnBv5YcJ3sHf9GpA1uE6iRt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.s5kQx-8vNq3rT7wYzB1cD4eF6gH9jK2m"} {
		set := New(append(ListForms(value, 1), ListForms("Wq7ZtNc4-XbKp2Vm9RdLs6HfJ3Gy8Te5Ua1Oi", 2)...))
		for _, p := range ListForms(value, 1) {
			half := p.Text[:len(p.Text)/2]
			for n := 1; n <= len(half); n++ {
				for _, text := range []string{strings.Repeat(half[:n], 3), strings.Repeat(half[:n]+"!", 3), "%" + fmt.Sprintf("%02x", half[0]) + half[1:n], "x" + half[:n-1] + fmt.Sprintf("&#%d;", half[n-1]) + "y"} {
					if met(set, text) == 0 {
						continue
					}
					t.Fatalf("%d bytes of the form %.20q of %.12q are met in %.60q", n, p.Text, value, text)
				}
			}
			if met(set, "x"+p.Text+"y") == 0 {
				t.Errorf("the form %.20q is not met", p.Text)
			}
		}
	}
}
