package testkit

import (
	"time"
	"unsafe"
)

// Slept is a time of time.Now after the machine has slept: the wall clock alone has gone on, or was set back.
func Slept(t time.Time, d time.Duration) time.Time {
	after := t
	*(*uint64)(unsafe.Pointer(&after)) += uint64(d/time.Second) << 30 // as package time says of its field wall
	if after.Sub(t) != 0 || after.Round(0).Sub(t.Round(0)) != d {
		panic("time.Time is not what it was")
	}
	return after
}
