package wake

import (
	"testing"
	"time"
)

func TestCost(t *testing.T) {
	same, two, err := Cost()
	if err != nil {
		t.Fatal(err)
	}
	if same <= 0 || same > time.Second || two < 0 || two > time.Second {
		t.Errorf("%s on one processor, %s on two", same, two)
	}
	t.Logf("%s on one processor, %s on two", same, two)
}
