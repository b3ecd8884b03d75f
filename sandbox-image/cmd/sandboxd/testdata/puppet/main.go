// Command puppet replaces the bridge in tests. It executes the commands in its input, as a hostile server would, and
// answers each of them with one line of JSON: [result, error].
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 { // a child
		out, err := runCommand(strings.Join(os.Args[1:], " "))
		fmt.Print(out)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		result, err := runCommand(in.Text())
		text := ""
		if err != nil {
			text = err.Error()
		}
		_ = out.Encode([2]string{result, text})
	}
}

func runCommand(line string) (string, error) {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "echo":
		return rest, nil
	case "env":
		return strings.Join(os.Environ(), "\n"), nil
	case "cwd":
		return os.Getwd()
	case "read":
		data, err := os.ReadFile(rest)
		return string(data), err
	case "list":
		entries, err := os.ReadDir(rest)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " "), err
	case "write":
		path, text, _ := strings.Cut(rest, " ")
		return "", os.WriteFile(path, []byte(text), 0o600)
	case "move": // FROM TO, to a directory of its own
		from, to, _ := strings.Cut(rest, " ")
		return "", errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.Rename(from, to))
	case "fill": // PATH BYTES
		path, n, _ := strings.Cut(rest, " ")
		return "", fillFile(path, n)
	case "close": // closes a directory to everybody but its owner
		return "", errors.Join(os.MkdirAll(rest, 0o700), os.Chmod(rest, 0))
	case "allocate":
		return allocateMemory(rest)
	case "exit":
		code, _ := strconv.Atoi(rest)
		os.Exit(code)
	case "stderr":
		fmt.Fprintln(os.Stderr, rest)
		return "", nil
	case "flood":
		return "", floodOutput()
	case "sleep":
		time.Sleep(time.Hour)
	case "start": // another process of this program, which goes on when this one ends
		cmd := exec.Command(bridgePath(), strings.Fields(rest)...) //nolint:gosec,noctx // it outlives this process
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return "", cmd.Start()
	case "run": // a program, to its end
		f := strings.Fields(rest)
		cmd := exec.Command(f[0], f[1:]...) //nolint:gosec,noctx // that is what it is for
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return string(out), err
	case "bomb":
		n := 0
		for ; n < 2000; n++ {
			if _, err := runCommand("start sleep"); err != nil {
				return strconv.Itoa(n), err
			}
		}
		return strconv.Itoa(n), nil
	case "listen":
		l, err := net.Listen("tcp4", rest) //nolint:gosec,noctx // that is what it is for
		if err != nil {
			return "", err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "hello")
				_ = c.Close()
			}
		}()
		return l.Addr().String(), nil
	case "dial":
		c, err := net.DialTimeout("tcp4", rest, 2*time.Second)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		data, err := io.ReadAll(c)
		return string(data), err
	case "call":
		return "", systemCall(rest)
	}
	return "", fmt.Errorf("no such command: %s", command)
}

// bridgePath returns the path of the bridge.
func bridgePath() string {
	for _, path := range []string{"/usr/bin/mcp-bridge", "/usr/local/bin/mcp-bridge"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "/usr/bin/mcp-bridge"
}

func fillFile(path, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return nil
}

var kept [][]byte

// allocateMemory takes memory and writes to it.
func allocateMemory(size string) (string, error) {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return "", err
	}
	for ; n > 0; n -= 1 << 20 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	return "", nil
}

func floodOutput() error {
	block := bytes.Repeat([]byte{'x'}, 1<<20)
	for {
		if _, err := os.Stderr.Write(block); err != nil {
			return err
		}
	}
}

// systemCall makes a call that the filter refuses.
func systemCall(name string) error {
	switch name {
	case "ptrace":
		return unix.PtraceAttach(os.Getppid())
	case "newuser":
		return unix.Unshare(unix.CLONE_NEWUSER)
	case "unix":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	case "memfd":
		_, err := unix.MemfdCreate("x", 0)
		return err
	case "mount":
		return unix.Mount("x", "/home", "tmpfs", 0, "")
	case "setuid":
		return unix.Setuid(0)
	}
	return errors.New("no such call")
}
