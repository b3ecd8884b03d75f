package seccomp

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dangerous lists the calls that no code may make a second time, so that removing one from the filter needs a second,
// deliberate change here.
const dangerous = `
	unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr statmount
	listmount open_tree_attr ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
	inotify_init inotify_init1 shmget shmat msgget msgsnd msgrcv semget semop semtimedop mq_open
	bpf perf_event_open userfaultfd keyctl add_key request_key fanotify_init open_by_handle_at name_to_handle_at
	lookup_dcookie quotactl quotactl_fd syslog acct vmsplice move_pages mbind set_mempolicy migrate_pages
	set_mempolicy_home_node personality nfsservctl remap_file_pages memfd_secret vhangup
	reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff settimeofday clock_settime
	clock_adjtime adjtimex setxattr lsetxattr fsetxattr setxattrat seccomp sethostname setdomainname iopl ioperm modify_ldt uselib ustat sysfs`

// TestDangerous checks that each of them fails with EPERM, and that this filter is the one that is loaded.
// Promise: least-privilege
func TestDangerous(t *testing.T) {
	tried := 0
	for name := range strings.FieldsSeq(dangerous) {
		nr, ok := callNumbers[name]
		if !ok {
			continue // not on this machine
		}
		tried++
		if got := verdict(t, auditArch, nr); got != refusalAction(uint32(unix.EPERM)) {
			t.Errorf("%s: %#x", name, got)
		}
	}
	if tried < 70 {
		t.Errorf("%d of them are known here", tried)
	}
	want, err := EncodeFilter(BuildFilter(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := MachineFilter(Options{}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the filter that is loaded is another: %d bytes, want %d, %v", len(got), len(want), err)
	}
}
