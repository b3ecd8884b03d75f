package confine

import (
	"fmt"
	"os"
	"syscall"
)

// program is the name under which the program that imports this package starts itself again.
const program = "sandboxd"

// Start starts "sandboxd enter", which carries out the plan. files are its descriptors from 0 on.
func (p ProcessSpec) Start(files []*os.File, attr syscall.SysProcAttr) (*os.Process, error) {
	return os.StartProcess("/proc/self/exe", append([]string{program}, p.CommandLine()...), &os.ProcAttr{
		// With one processor, the Go runtime starts fewer threads, and does not read the limits of cgroups.
		Files: files, Sys: &attr,
		Env: append(os.Environ(), "GOMAXPROCS=1"), //nolint:forbidigo // passed on unread
	})
}

// init carries out "sandboxd enter" and "sandboxd stage". Go initializes packages by their import paths, so it has not
// yet initialized net/http and most others. main would start a fifth later, and each run starts one such process.
func init() {
	if len(os.Args) < 2 || os.Args[0] != program {
		return
	}
	var err error
	switch os.Args[1] {
	case "enter":
		var plan ProcessSpec
		if plan, err = ParsePlan(os.Args[2:]); err == nil {
			err = plan.EnterAndExec()
		}
	case "stage":
		err = ServeStage(os.Args[2:], os.Stdin, os.Stdout)
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, program+":", err)
		os.Exit(1) //nolint:forbidigo // in place of main
	}
	os.Exit(0) //nolint:forbidigo // as above
}
