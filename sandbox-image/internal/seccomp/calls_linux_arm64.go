package seccomp

import "golang.org/x/sys/unix"

// thisMachine describes arm64.
func thisMachine() Machine { return Machine{Arch: unix.AUDIT_ARCH_AARCH64, Calls: callNumbers(nil)} }
