//go:build !windows

package cli

// terminalDevice is the terminal of the process, whatever its standard input is.
const terminalDevice = "/dev/tty"
