package cli

// terminalDevice is the terminal of the process, even if standard input is something else.
const terminalDevice = "CONIN$"
