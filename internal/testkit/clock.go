package testkit

import (
	"time"
	"unsafe"
)

// AfterSleep returns t after the machine has slept for d: only the wall clock has advanced, or was set back.
func AfterSleep(t time.Time, d time.Duration) time.Time {
	after := t
	*(*uint64)(unsafe.Pointer(&after)) += uint64(d/time.Second) << 30 // see the field wall in package time
	if after.Sub(t) != 0 || after.Round(0).Sub(t.Round(0)) != d {
		panic("time.Time is not what it was")
	}
	return after
}
