package typecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// limit bounds the time of one check, and memory the compiler's memory, in bytes.
	limit  = 3 * time.Second
	memory = 384 << 20
	// look is the interval at which the compiler's memory is measured.
	look = 10 * time.Millisecond
	// maxOutput bounds the output that is read from the compiler, in bytes.
	maxOutput = 512 << 10
	// maxMistakes bounds the mistakes that a run reports.
	maxMistakes = 20
)

// Slot is the slot of an interpreter that waits for code. The code must already be written.
type Slot interface {
	WriteFile(name string, data []byte) error
	StartCompiler(args []string, stdio jail.Stdio) (jail.Compiler, error)
}

// CheckCode returns the mistakes that keep the slot's code from running. An error means that the code was not checked.
func CheckCode(ctx context.Context, s Slot, modules []sandboxapi.Module) ([]sandboxapi.Mistake, error) {
	if !needsCheck(modules) {
		return nil, nil
	}
	for name, data := range compilerFiles(modules) {
		if err := s.WriteFile(name, data); err != nil {
			return nil, fmt.Errorf("writing the types: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := runCompiler(ctx, s, typed)
	if err != nil {
		return nil, err
	}
	mistakes := filterRefused(parseOutput(out), modules)
	if len(mistakes) == 0 {
		return nil, nil
	}
	// The second pass finds the mistakes that the code has without the clients' types. Those may be harmless.
	if out, err = runCompiler(ctx, s, untyped); err != nil {
		return nil, err
	}
	mistakes = subtractMistakes(mistakes, parseOutput(out))
	return mistakes[:min(len(mistakes), maxMistakes)], nil
}

func runCompiler(ctx context.Context, s Slot, configuration string) (string, error) {
	var files [6]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil { //nolint:gosec // there are six
			return "", fmt.Errorf("making pipes: %w", err)
		}
		defer files[i].Close()
		defer files[i+1].Close() //nolint:gosec // as above
	}
	c, err := s.StartCompiler([]string{"-p", configuration, "--pretty", "false"},
		jail.Stdio{In: files[0], Out: files[3], Err: files[5]})
	for _, theirs := range []*os.File{files[0], files[1], files[3], files[5]} {
		_ = theirs.Close()
	}
	if err != nil {
		return "", err
	}
	printed := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(files[2], maxOutput))
		// Read on after maxOutput: a full pipe would stop the compiler.
		_, _ = io.Copy(io.Discard, files[2])
		printed <- string(text)
	}()
	go func() { _, _ = io.Copy(io.Discard, files[4]) }()
	if err := watchCompiler(ctx, c); err != nil {
		return "", err
	}
	out, st := <-printed, c.Status()
	switch {
	case st.Leftover != nil:
		return "", fmt.Errorf("ending the compiler: %w", st.Leftover)
	case st.Code > 2: // 0 without mistakes, 1 or 2 with some
		return "", fmt.Errorf("the compiler ended with code %d", st.Code)
	}
	return out, nil
}

// watchCompiler waits for the compiler. It kills the compiler if it uses too much memory, or when ctx ends.
func watchCompiler(ctx context.Context, c jail.Compiler) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var why error
	for {
		select {
		case <-c.DoneSignal():
			return why
		case <-ctx.Done():
			why = errors.Join(why, context.Cause(ctx))
			c.Kill()
			<-c.DoneSignal()
			return why
		case <-ticker.C:
			if c.Memory() > memory && why == nil {
				why = fmt.Errorf("the compiler held more than %d MiB", memory>>20)
				c.Kill()
			}
		}
	}
}
