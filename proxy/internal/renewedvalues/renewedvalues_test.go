package renewedvalues

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRoom: what one credential may have is bounded in number and in bytes, whatever others have, and comes back when
// its time is over: what belongs to it, such as refresh tokens, counts. One that is crowded is told early.
// Promise: scrubbed-before-use
func TestRoom(t *testing.T) {
	for _, size := range []int{minValue + 20, MaxValue} {
		now := time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)
		v := New(func() time.Time { return now })
		add := func(name string, from, to int) error {
			var list []Value
			for i := from; i < to; i++ {
				text := fmt.Sprintf("%s-%06d-", name, i)
				list = append(list, Value{Name: name, Text: text + strings.Repeat("x", size-len(text)), Inner: i%2 > 0, Until: now.Add(time.Hour)})
			}
			return v.AddValues(list...)
		}
		fits := min(maxValues, maxValueBytes/size)
		for _, step := range []struct {
			from, to int
			crowded  bool
		}{{0, fits/4 - 1, false}, {fits/4 - 1, fits / 4, true}, {fits / 4, fits, true}} {
			if err := add("A_TOKEN", step.from, step.to); err != nil || v.IsCrowded("A_TOKEN") != step.crowded {
				t.Errorf("%d bytes: %d of %d values: %v, crowded is %v", size, step.to, fits, err, !step.crowded)
			}
		}
		if err := add("A_TOKEN", fits, fits+1); !errors.Is(err, ErrFull) {
			t.Errorf("%d bytes: one too many: %v", size, err)
		}
		if err := add("A_TOKEN", 0, 1); err != nil {
			t.Errorf("%d bytes: a known one: %v", size, err)
		}
		if err := add("B_TOKEN", 0, 1); err != nil || v.IsCrowded("B_TOKEN") {
			t.Errorf("%d bytes: of another credential: %v", size, err)
		}
		now = now.Add(2 * time.Hour)
		if err := add("A_TOKEN", fits, fits+1); err != nil || v.Len() != 1 {
			t.Errorf("%d bytes: when their time is over: %v, %d are left", size, err, v.Len())
		}
	}
}

// TestNoRoom: if some values do not fit, the proxy still searches for the others, and known values get their new time.
// Promise: scrubbed-before-use
func TestNoRoom(t *testing.T) {
	now := time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)
	v := New(func() time.Time { return now })
	value := func(n int) Value {
		return Value{Name: "A_TOKEN", Text: fmt.Sprintf("value-%06d-of-a-token", n), Until: now.Add(time.Hour)}
	}
	values := make([]Value, maxValues-1) // all in one call, because each call builds the search again
	for n := range values {
		values[n] = value(n)
	}
	if err := v.AddValues(values...); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if err := v.AddValues(value(maxValues), value(maxValues+1), value(0)); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	now = now.Add(time.Hour - time.Second)
	v.Sweep()
	found := v.LayerOver(nil)
	if !found.Contains(value(maxValues).Text) || found.Contains(value(maxValues+1).Text) || !found.Contains(value(0).Text) || v.Len() != 2 {
		t.Errorf("%d values are known", v.Len())
	}
}
