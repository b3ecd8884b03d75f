package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// usualLimit and maxLimit bound a page. maxSpans bounds the exchanges of a small picture.
	usualLimit = 100
	maxLimit   = 1000
	maxSpans   = 40
	// maxWords bounds the words of a search.
	maxWords = 16
)

// condition is a growing SQL condition.
type condition struct {
	text []string
	args []any
}

// addCondition adds a condition. Each ? in it stands for one of args.
func (w *condition) addCondition(text string, args ...any) {
	for _, a := range args {
		text = strings.Replace(text, "?", w.addArgument(a), 1)
	}
	w.text = append(w.text, text)
}

func (w *condition) addArgument(arg any) string {
	w.args = append(w.args, arg)
	return "$" + strconv.Itoa(len(w.args))
}

func (w *condition) String() string {
	if len(w.text) == 0 {
		return "1 = 1"
	}
	return strings.Join(w.text, " AND ")
}

func (w *condition) addPeriod(since, until time.Time) {
	if !since.IsZero() {
		w.addCondition("number >= ?", since.UnixMicro())
	}
	if !until.IsZero() {
		w.addCondition("number < ?", until.UnixMicro())
	}
}

// addPrefix requires that a column starts with a text.
func (w *condition) addPrefix(column, text string) {
	if text != "" {
		// A range instead of LIKE: it uses the index, and % in the text has no effect.
		w.addCondition(column+" >= ? AND "+column+" < ?", text, text+"\U0010FFFF")
	}
}

// addEqual requires a value in a column, unless the value is empty.
func (w *condition) addEqual(column, value string) {
	if value != "" {
		w.addCondition(column+" = ?", value)
	}
}

// addFact requires that a run has a fact.
func (w *condition) addFact(kind, value string) {
	if value != "" {
		w.addCondition("number IN (SELECT number FROM fact WHERE kind = ? AND value = ?)", kind, value)
	}
}

// readPage reads a page of a table's JSON, latest or oldest first, and returns the cursor of the next page.
func readPage[T any](
	ctx context.Context, q rowSource, table string, w condition, cursor string, limit int, oldest bool,
	number func(T) int64,
) (list []T, next string, err error) {
	comparison, order := "<", "DESC"
	if oldest {
		comparison, order = ">", "ASC"
	}
	if cursor != "" {
		n, err := strconv.ParseInt(cursor, 10, 64)
		if err != nil {
			return []T{}, "", fmt.Errorf("cursor %q: want that of a page", safetext.CutText(cursor, 40, ""))
		}
		w.addCondition("number "+comparison+" ?", n)
	}
	if limit <= 0 {
		limit = usualLimit
	}
	limit = min(limit, maxLimit)
	// One row more than the page shows, to learn whether there is a next page.
	query := "SELECT data FROM " + table + " WHERE " + w.String() + " ORDER BY number " + order + " LIMIT " +
		w.addArgument(limit+1)
	list, err = readRows[T](ctx, q, query, w.args...)
	if len(list) > limit {
		list = list[:limit]
		next = strconv.FormatInt(number(list[limit-1]), 10)
	}
	return list, next, err
}

// ListRuns lists runs, latest first. An empty cursor starts with the latest.
func (s *Store) ListRuns(ctx context.Context, f operatorapi.RunFilter, cursor string) (operatorapi.Page, error) {
	var w condition
	w.addPeriod(f.Since, f.Until)
	// A prefix is enough, because people copy short IDs.
	w.addPrefix("id", f.Run)
	w.addEqual("client", f.Client)
	w.addEqual("session", f.Session)
	w.addEqual("tenant", f.Tenant)
	w.addFact("api", f.API)
	w.addFact("host", f.Host)
	w.addFact("skill", f.Skill)
	switch f.State {
	case "denied":
		w.addCondition("denied > 0")
	default:
		w.addEqual("state", f.State)
	}
	var out operatorapi.Page
	number := func(r operatorapi.Run) int64 { return r.Number }
	// The search needs the connection first: the two databases have different syntax.
	db, err := s.readConn(ctx)
	if err == nil && f.Grep != "" {
		w.addWords(db.Postgres, f.Grep)
	}
	if err == nil {
		out.Runs, out.Next, err = readPage(ctx, db, "run", w, cursor, f.Limit, false, number)
	}
	for i := range out.Runs {
		if f.Spans && err == nil {
			err = readSpans(ctx, db, &out.Runs[i])
		}
	}
	return out, s.checkReadError(err)
}

// addWords requires all words of a text in a run. Each word matches the start of one word, or of several words in a
// row. Words without a letter or digit are not indexed, and do not count.
func (w *condition) addWords(postgres bool, text string) {
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return strings.TrimSpace(extractWords(word)) == ""
	})
	words = words[:min(len(words), maxWords)]
	if postgres {
		for _, word := range words {
			w.addCondition("number IN (SELECT rowid FROM words WHERE text @@ to_tsquery('simple', ?))",
				strings.Join(strings.Fields(extractWords(word)), " <-> ")+":*")
		}
		return
	}
	for i, word := range words {
		// Quoted, so that operators of FTS5 in the text have no effect.
		words[i] = `"` + strings.ReplaceAll(word, `"`, `""`) + `"*`
	}
	if len(words) > 0 {
		w.addCondition("number IN (SELECT rowid FROM words WHERE words MATCH ?)", strings.Join(words, " AND "))
	}
}

// maxIndexed bounds the text of a run that Postgres indexes, in bytes. A tsvector has room for 1 MiB.
const maxIndexed = 512 << 10

// extractWords returns the letters and digits of a text, with spaces between words. Postgres would treat an address or
// a path as one word.
func extractWords(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return ' '
	}, safetext.CutText(text, maxIndexed, ""))
}

// rowSource is the store's database, or a transaction.
type rowSource interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func eachRow(ctx context.Context, q rowSource, on func(row *sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := on(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eachStoredRow is the function each on the store's database.
func (s *Store) eachStoredRow(ctx context.Context, on func(row *sql.Rows) error, query string, args ...any) error {
	db, err := s.readConn(ctx)
	if err == nil {
		err = eachRow(ctx, db, on, query, args...)
	}
	return s.checkReadError(err)
}

// readRows reads rows of one JSON column.
func readRows[T any](ctx context.Context, q rowSource, query string, args ...any) ([]T, error) {
	out := []T{}
	err := eachRow(ctx, q, func(row *sql.Rows) error {
		var data string
		if err := row.Scan(&data); err != nil {
			return err
		}
		var v T
		err := json.Unmarshal([]byte(data), &v)
		out = append(out, v)
		return err
	}, query, args...)
	return out, err
}

// readSpans reads the first exchanges of a run.
func readSpans(ctx context.Context, q rowSource, run *operatorapi.Run) error {
	list, err := readRows[proxyapi.Exchange](ctx, q, `SELECT data FROM exchange WHERE run = $1 ORDER BY number LIMIT $2`,
		run.ID, maxSpans)
	for _, x := range list {
		begin := float64(x.At.Sub(run.Began).Microseconds()) / 1000
		run.Spans = append(run.Spans, operatorapi.ExchangeSpan{Begin: begin, End: begin + x.Milliseconds, Outcome: x.Outcome})
	}
	return err
}

// FindRun returns everything stored about a run, by its ID or a prefix. "" means the latest run. ErrUnknown means that
// there is no such run.
func (s *Store) FindRun(ctx context.Context, id string) (operatorapi.Detail, error) {
	return s.RunAfter(ctx, id, 0)
}

// findTime bounds one look of WaitForRun.
const findTime = 5 * time.Second

// WaitForRun finds a run like FindRun, but waits until the run has ended or ctx ends. If ctx ends first, it returns the
// unfinished run.
func (s *Store) WaitForRun(ctx context.Context, id string) (operatorapi.Detail, error) {
	for {
		// The cursor is from before the look, so that WaitForRun does not miss an end right after the look.
		cursor := s.CurrentCursor()
		// The look ignores the end of ctx, so that a caller that does not wait gets the present state.
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTime)
		d, err := s.FindRun(short, id)
		cancel()
		if err != nil || !d.IsUnfinished() {
			return d, err
		}
		for isNews := false; !isNews; {
			events, err := s.Follow(ctx, cursor)
			if err != nil {
				return d, nil //nolint:nilerr // the wait is over
			}
			cursor = events[len(events)-1].Cursor
			isNews = slices.ContainsFunc(events, func(e operatorapi.HistoryEvent) bool {
				return e.Kind == operatorapi.EventGap || e.Kind == operatorapi.EventRun && e.RunID == id
			})
		}
	}
}

// RunAfter is FindRun for a reader that already has the exchanges up to number after. While the run is in progress, it
// returns only later exchanges.
func (s *Store) RunAfter(ctx context.Context, id string, after int64) (operatorapi.Detail, error) {
	var out operatorapi.Detail
	db, err := s.readConn(ctx)
	if err != nil {
		return out, err
	}
	var w condition
	w.addPrefix("id", id)
	var data, hints string
	var packed []byte
	err = db.QueryRowContext(ctx, "SELECT run.data, hints, content.data FROM run LEFT JOIN content USING (number) WHERE "+
		w.String()+" ORDER BY number DESC LIMIT 1", w.args...).Scan(&data, &hints, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return out, ErrUnknown
	}
	if err != nil {
		return out, s.checkReadError(err)
	}
	if err := errors.Join(json.Unmarshal([]byte(data), &out.Run), json.Unmarshal([]byte(hints), &out.Hints)); err != nil {
		return out, fmt.Errorf("reading run %s: %w", id, err)
	}
	if packed != nil {
		var c runContent
		if err := unpackValue(packed, &c); err != nil {
			return out, err
		}
		out.Kept, out.Code, out.Output, out.Answer, out.Exit = true, c.Code, c.Output, c.Answer, c.Exit
	}
	if out.Files, err = listRunFiles(ctx, db, out.Number); err != nil {
		return out, s.checkReadError(err)
	}
	// The end of a run may add earlier exchanges, so a finished run is returned as a whole.
	if !s.fillLive(&out) {
		after = 0
	}
	out.Exchanges, err = readRows[operatorapi.Exchange](ctx, db,
		"SELECT data FROM exchange WHERE run = $1 AND number > $2 ORDER BY number", out.ID, after)
	if err != nil {
		return out, s.checkReadError(err)
	}
	slices.SortStableFunc(out.Exchanges, func(a, b operatorapi.Exchange) int { return a.At.Compare(b.At) })
	if out.Ended.IsZero() && out.Count.Exchanges == 0 { // mcp-server ended before it had counted the exchanges
		for _, x := range out.Exchanges {
			out.Count.AddExchange(x.Exchange)
		}
	}
	return out, nil
}

// fillLive adds the code, the output and the counts of a run in progress. It reports whether the run is in progress.
func (s *Store) fillLive(out *operatorapi.Detail) bool {
	s.mu.Lock()
	r := s.live[out.ID]
	s.mu.Unlock()
	if r == nil {
		return false
	}
	// The recording changes while the run goes on, so its fields are copied under its lock.
	r.mu.Lock()
	out.Count, out.Omitted = r.count, max(0, r.kept-maxOfRun)
	c := runContent{Code: cutMiddle(r.code), Output: r.output.collectedOutput()}
	r.mu.Unlock()
	if s.cfg.Mode == Full {
		c = c.cleanTexts(s.cfg.Clean).cutMargins()
		out.Kept, out.Code, out.Output = true, c.Code, c.Output
	}
	return true
}

// ListExchanges lists exchanges, including those of MCP servers and installations, latest or oldest first.
func (s *Store) ListExchanges(
	ctx context.Context, f operatorapi.ExchangeFilter, cursor string,
) (operatorapi.ExchangePage, error) {
	var w condition
	w.addPeriod(f.Since, f.Until)
	w.addPrefix("run", f.Run)
	w.addEqual("api", f.API)
	w.addEqual("host", f.Host)
	w.addEqual("outcome", f.Outcome)
	if f.Name != "" {
		w.addCondition("number IN (SELECT number FROM swap WHERE name = ?)", f.Name)
	}
	var out operatorapi.ExchangePage
	number := func(x operatorapi.Exchange) int64 { return x.Number }
	db, err := s.readConn(ctx)
	if err == nil {
		out.Exchanges, out.Next, err = readPage(ctx, db, "exchange", w, cursor, f.Limit, f.Oldest, number)
	}
	return out, s.checkReadError(err)
}

// maxTexts bounds the exchanges of a run that a search covers.
const maxTexts = 200

// exchangeTexts returns the searchable texts of a run's exchanges.
func exchangeTexts(ctx context.Context, tx *writeTransaction, run string) ([]string, error) {
	list, err := readRows[proxyapi.Exchange](ctx, tx, "SELECT data FROM exchange WHERE run = $1 LIMIT $2", run, maxTexts)
	var out []string
	for _, x := range list {
		out = append(out, x.URL, x.Code)
	}
	return out, err
}

// putWords adds a run to the full-text index. The run must not be in it yet. Without content, only its receipt is
// indexed.
func putWords(ctx context.Context, tx *writeTransaction, run operatorapi.Run, texts []string, c *runContent) error {
	var b strings.Builder
	fmt.Fprintln(&b, run.ID, run.Title, run.Client, run.Language, run.State, run.Reason)
	seen := map[string]bool{}
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			fmt.Fprintln(&b, text)
		}
	}
	if c != nil {
		b.WriteString(c.joinTexts())
	}
	if tx.target.Postgres {
		// 'simple' does no stemming: code and URLs are no English text.
		_, err := tx.ExecContext(ctx, `INSERT INTO words VALUES ($1, to_tsvector('simple', $2))
			ON CONFLICT (rowid) DO UPDATE SET text = excluded.text`, run.Number, extractWords(b.String()))
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO words (rowid, text) VALUES ($1, $2)", run.Number, b.String())
	return err
}
