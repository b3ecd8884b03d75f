package minted

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRoom: what one credential may have is bounded in number and in bytes, whatever others have, and comes back when
// its time is over. One that is crowded is told early.
func TestRoom(t *testing.T) {
	for _, size := range []int{minValue + 20, MaxValue} {
		now := time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)
		v := New(func() time.Time { return now })
		add := func(name string, i int) error {
			text := fmt.Sprintf("%s-%06d-", name, i)
			return v.Add(Value{name, text + strings.Repeat("x", size-len(text)), now.Add(time.Hour)})
		}
		fits := min(most, mostBytes/size)
		for i := range fits {
			if crowded := v.Crowded("A_TOKEN"); crowded != (i >= fits/4) {
				t.Fatalf("%d bytes: with %d of %d values crowded is %v", size, i, fits, crowded)
			}
			if err := add("A_TOKEN", i); err != nil {
				t.Fatalf("%d bytes: value %d of %d: %v", size, i, fits, err)
			}
		}
		if err := add("A_TOKEN", fits); !errors.Is(err, ErrFull) {
			t.Errorf("%d bytes: one too many: %v", size, err)
		}
		if err := add("A_TOKEN", 0); err != nil {
			t.Errorf("%d bytes: a known one: %v", size, err)
		}
		if err := add("B_TOKEN", 0); err != nil || v.Crowded("B_TOKEN") {
			t.Errorf("%d bytes: of another credential: %v", size, err)
		}
		now = now.Add(2 * time.Hour)
		if err := add("A_TOKEN", fits); err != nil || v.Len() != 1 {
			t.Errorf("%d bytes: when their time is over: %v, %d are left", size, err, v.Len())
		}
	}
}
