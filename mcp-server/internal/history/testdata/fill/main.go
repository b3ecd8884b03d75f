// Command fill fills a store of runs through its own writer, as a busy week does, for tests of its readers:
// fill FOLDER RUNS EXCHANGES. The file then belongs to the owner of the folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

// batch is the number of runs after which fill waits for the writer: fewer than its queue takes.
const batch = 200

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("want FOLDER RUNS EXCHANGES")
	}
	runs, err := strconv.Atoi(args[1])
	exchanges, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	s := history.OpenStore(history.Config{Dir: args[0], Mode: history.Full, Log: slog.New(slog.DiscardHandler)})
	for i := range runs {
		store(s, i, (i+1)*exchanges/runs-i*exchanges/runs)
		if i%batch == 0 {
			_, _ = s.Status(ctx) // waits for the writer; problems are reported below
		}
	}
	st, err := s.Status(ctx)
	s.Close(ctx)
	if err != nil || st.Runs < int64(runs) || st.Dropped > 0 || st.Problem != "" {
		return fmt.Errorf("of %d runs %d are stored, %d records were dropped: %s %w", runs, st.Runs, st.Dropped, st.Problem, err)
	}
	return give(args[0])
}

var apis = []string{"stripe", "github", "slack", "linear", "maps"}

// store stores a run.
func store(s *history.Store, i, exchanges int) {
	id := fmt.Sprintf("rfill%06d", i)
	code := fmt.Sprintf("// Report %d of the customers\n%s", i, strings.Repeat("const answer = await fetch(url, { headers });\n", 20))
	r := s.BeginRecording(operatorapi.Run{ID: id, Client: "filler", Language: sandboxapi.LanguageTypeScript}, code)
	r.RecordSlot(1, uint64(i)) //nolint:gosec // positive
	r.RecordOutput(strings.Repeat(fmt.Sprintf("line %d of the output\n", i), 20), "")
	rec := proxyapi.Receipt{Run: id}
	for n := range exchanges {
		x := exchange(id, i, n)
		s.RecordExchange(x)
		rec.Exchanges = append(rec.Exchanges, x)
		rec.Count.AddExchange(x)
	}
	exit := sandboxapi.Exit{Reason: sandboxapi.Exited, Code: i % 7 / 6, WallMS: 300, CPUMS: 20, MaxRSS: 40 << 20}
	r.RecordEnd(history.RunEnd{Exit: exit, Receipt: rec, Answer: "an answer"})
}

// exchange is one of a run's: every 50th is refused.
func exchange(run string, i, n int) proxyapi.Exchange {
	api := apis[(i+n)%len(apis)]
	x := proxyapi.Exchange{
		ID: fmt.Sprintf("%s-%d", run, n), Run: run, At: time.Now().UTC(), Method: []string{"GET", "POST"}[n%2],
		URL: fmt.Sprintf("https://api.%s.com/v1/things/%d", api, n), Host: "api." + api + ".com", APIs: []string{api},
		Outcome: proxyapi.OutcomeServed, Status: 200, BytesUp: 10, HeadUp: 100, BytesDown: 1000, Milliseconds: 40,
		Swapped: []proxyapi.Swap{{Name: strings.ToUpper(api) + "_TOKEN", In: "header:Authorization"}},
	}
	if (i+n)%50 == 49 {
		x.Outcome, x.Status, x.Code, x.Swapped, x.BytesDown = proxyapi.OutcomeDenied, 403, "method_restricted", nil, 0
	}
	return x
}

// give gives the files of a folder to the folder's owner.
func give(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("no owner")
	}
	files, err := filepath.Glob(filepath.Join(dir, database.Name+"*"))
	for _, f := range files {
		err = errors.Join(err, os.Lchown(f, int(st.Uid), int(st.Gid)))
	}
	return err
}
