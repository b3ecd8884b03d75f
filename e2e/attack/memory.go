package attack

import (
	"fmt"
)

// Of the memory that a run may take: its limit (SANDBOX_MEMORY as it is without a setting), and what it can exceed that
// by between two looks, with the interpreters that wait beside it.
const (
	memoryLimit = 1 << 30
	memorySlack = 640 << 20
)

// overMemory is how a run is told that it was ended for its memory.
const overMemory = "more memory than its limit"

// memory are attempts of code that has left Deno to hold more memory than a run may; those of other code are
// testdata/F/memory.ts.
func memory() []Attack {
	var all []Attack
	for _, how := range []string{
		"of its own", "in children", "in memfds", "in memfds on their way", "in shared pages given back", "in pages of /dev/zero", "in huge pages",
		"in page tables", "in System V segments", "in files without a name", "in attributes of files", "in pipes", "in pairs of sockets", "in sockets to themselves", "in sockets of many tables",
	} {
		name := "memory bomb " + how
		all = append(all, Attack{
			Section: "F", Name: "escaped: " + name, Expected: "refused, or ends at its limit; nothing stays", Escaped: true, Alone: true, Weighed: true,
			Seconds: 90, Judge: weighed(overweight), Code: task("TRIAL", nil, name),
		})
	}
	return all
}

// weighed adds that the run at no time held more than it may, measured from outside, and that nothing of it is left.
func weighed(j Judge) Judge {
	return func(e *Evidence) (string, bool) {
		seen, held := gone(j)(e)
		seen = fmt.Sprintf("%d MiB from outside; %s", e.Weight.Peak>>20, seen)
		if !e.Weight.Measured {
			return "nothing was measured; " + seen, false
		}
		if shared := shmem() - e.Weight.Before; shared > memorySlack {
			return fmt.Sprintf("%d MiB of shared memory stay; %s", shared>>20, seen), false
		}
		return seen, held && e.Weight.Peak < memoryLimit+memorySlack
	}
}

// overweight: the run was ended for its memory, or for files that nobody sees, or what has escaped was refused.
func overweight(e *Evidence) (string, bool) {
	for _, word := range []string{overMemory, "that it had removed"} {
		if seen, held := ended(word)(e); held {
			return seen, true
		}
	}
	return verdicts()(e)
}
