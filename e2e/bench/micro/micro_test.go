package micro

import "testing"

func TestParse(t *testing.T) {
	got := parse([]byte(`goos: linux
BenchmarkReader/patterns=8/json-2         	    8600	    112808 ns/op	9295.34 MB/s	     112 B/op	       0 allocs/op
BenchmarkMatch 	 1000000	       138.0 ns/op	      48 B/op	       1 allocs/op
PASS
`))
	want := []Benchmark{
		{Name: "Reader/patterns=8/json-2", NsPerOp: 112808, MBPerSecond: 9295.34, BytesPerOp: 112},
		{Name: "Match", NsPerOp: 138, BytesPerOp: 48, Allocs: 1},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("parse gives %+v, want %+v", got, want)
	}
}
