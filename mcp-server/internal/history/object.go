package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// The objects of a bucket. The key of a run is the time of its upload and its id, so keys are listed in the order of
// their uploads.
const (
	runsFolder    = "runs"    // by key, an object
	contentFolder = "content" // by key, the data of content
	goneSuffix    = ".gone"   // ends the key of a removal, in runsFolder
	keyTime       = "20060102T150405.000000"
	keyDay        = "20060102"
	// objectSchema is the version of the objects' schema: a store skips newer ones.
	objectSchema = 1
	// maxObject bounds an object in bytes, maxUnpacked a decompressed run, maxContent decompressed content, maxBulk the
	// bulk of either: several are in memory at a time.
	maxObject   = 2 << 20
	maxUnpacked = 4 << 20
	maxContent  = 4 << 20
	maxBulk     = 400_000
	// maxRow bounds the JSON of a run or of an exchange in bytes, maxHints that of a run's hints.
	maxRow   = 64 << 10
	maxHints = 1 << 20
	// maxGone bounds the runs of one removal.
	maxGone = 1000
	// maxCount bounds counts of other machines, so that no sum overflows: it is more bytes than any exchange has.
	maxCount = 1 << 40
	// maxSkew is how far other machines' clocks may be off.
	maxSkew = time.Hour
)

// object is a run without its content, or a removal of runs.
type object struct {
	Schema    int               `json:"schema"`
	Run       json.RawMessage   `json:"run,omitempty"`       // historyapi.Run
	Hints     json.RawMessage   `json:"hints,omitempty"`     // of its receipt
	Exchanges []json.RawMessage `json:"exchanges,omitempty"` // historyapi.Exchange
	Content   bool              `json:"content,omitempty"`   // is in contentFolder
	Gone      []string          `json:"gone,omitempty"`
}

// replay is an object that another store uploaded, decoded and checked.
type replay struct {
	key       string
	gone      []string // for a removal: the runs' ids, and nothing else is set
	run       historyapi.Run
	hints     []controlapi.Hint
	exchanges []historyapi.Exchange
	content   *content // nil if it is not kept
	known     bool     // the store had the run
	// hasContent means that the run was uploaded with content.
	hasContent bool
}

// newKey is the key of a run, or of a removal, that is uploaded now.
func newKey(id string) string { return time.Now().UTC().Format(keyTime) + "-" + id }

// parseKey returns the time and the id in a key. The id of a removal is empty.
func parseKey(key string) (at time.Time, id string, ok bool) {
	text, id, ok := strings.Cut(key, "-")
	at, err := time.Parse(keyTime, text)
	if !ok || err != nil || len(text) != len(keyTime) {
		return at, "", false
	}
	if strings.HasSuffix(id, goneSuffix) {
		return at, "", true
	}
	return at, id, validID(id)
}

// validID reports whether a text may be the id of a run.
func validID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// fetch reads a run or a removal from the bucket. The error is a *bucket.UnreachableError, bucket.ErrNotFound, or what
// is wrong with the object.
func (h *share) fetch(ctx context.Context, key string) (*replay, error) {
	data, _, err := h.runs.Get(ctx, key, maxObject)
	if err != nil {
		return nil, err
	}
	r, err := openObject(data, key, time.Now().Add(-h.store.cfg.limits.receiptAge))
	if err != nil || !r.hasContent || h.store.cfg.Mode != Full {
		return r, err
	}
	data, _, err = h.contents.Get(ctx, key, maxObject)
	if errors.Is(err, bucket.ErrNotFound) {
		return r, nil // it was kept for a shorter time
	}
	if err == nil {
		r.content = &content{}
		err = unpackBounded(data, r.content, maxContent)
	}
	if err == nil && !r.content.timed() {
		err = errWrongCount
	}
	return r, err
}

// unpackBounded is unpack for data from another store: an error if it decompresses to more than most bytes.
func unpackBounded(data []byte, v any, most int64) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(plain)) > most {
		err = errors.New("it is too large")
	}
	if err == nil && bulk(plain) > maxBulk {
		err = errors.New("it has too many parts")
	}
	if err == nil {
		err = json.Unmarshal(plain, v)
	}
	return err
}

// bulk estimates the memory that the values in a JSON text take besides their characters, in units of twenty bytes. An
// object may decode into hundreds of bytes, and so may any element of an array: null and values of a wrong type too.
func bulk(text []byte) (n int) {
	in := false
	var nested []byte
	for i := 0; i < len(text); i++ {
		inArray := len(nested) > 0 && nested[len(nested)-1] == '['
		switch b := text[i]; {
		case b == '"':
			in = !in
		case in && b == '\\':
			i++
		case in:
		case b == '[', b == '{':
			if b == '[' || !inArray { // what is in an array was counted before it
				n += 20
			}
			nested = append(nested, b)
		case b == ']', b == '}':
			nested = nested[:max(0, len(nested)-1)]
		case b == ',' && inArray:
			n += 20
		case b == ',':
			n++
		}
	}
	return n
}

// openObject decodes and checks an object. The error says how it differs from its key or from what a store writes.
func openObject(data []byte, key string, oldest time.Time) (*replay, error) {
	var o object
	if err := unpackBounded(data, &o, maxUnpacked); err != nil {
		return nil, err
	}
	_, id, _ := parseKey(key)
	r := &replay{key: key, gone: o.Gone, hasContent: o.Content}
	if o.Schema > objectSchema {
		return r, fmt.Errorf("%w: its schema is %d, and this one knows %d", errNewer, o.Schema, objectSchema)
	}
	if id == "" {
		return r, r.checkGone()
	}
	if len(o.Gone) > 0 || len(o.Exchanges) > maxOfRun || len(o.Run) > maxRow || len(o.Hints) > maxHints {
		return r, errors.New("it has more than a run has")
	}
	err := json.Unmarshal(o.Run, &r.run)
	if err == nil && o.Hints != nil {
		err = json.Unmarshal(o.Hints, &r.hints)
	}
	r.exchanges = make([]historyapi.Exchange, len(o.Exchanges))
	for i, x := range o.Exchanges {
		if err == nil && len(x) > maxRow {
			err = errors.New("an exchange is too large")
		}
		if err == nil {
			err = json.Unmarshal(x, &r.exchanges[i])
		}
	}
	if err != nil {
		return r, err
	}
	return r, r.check(id, oldest)
}

// check checks a run.
func (r *replay) check(id string, oldest time.Time) error {
	newest := time.Now().Add(maxSkew)
	run := r.run
	if run.ID != id {
		return errors.New("it is another run than its name says")
	}
	if run.Began.Before(oldest.Add(-maxSkew)) || run.Began.After(newest) || run.Ended.After(newest) {
		return errors.New("its time is wrong")
	}
	switch run.State {
	case historyapi.OK, historyapi.Failed, historyapi.Stopped, historyapi.Frozen:
		if run.Ended.Before(run.Began.Add(-maxSkew)) {
			return errors.New("its time is wrong")
		}
	case historyapi.Lost:
	default:
		return errors.New("it is not over")
	}
	c := run.Count
	if !counted(int64(c.Exchanges), int64(c.Denied), int64(c.Failed), int64(c.Swapped), int64(c.Sanitized),
		int64(c.Redacted), c.BytesUp, c.BytesDown, run.Shown, run.WaitedMS, run.WallMS, run.CPUMS, run.MaxRSS,
		run.StdoutBytes, run.StderrBytes, int64(run.CodeBytes), int64(run.Omitted)) {
		return errWrongCount
	}
	for _, x := range r.exchanges {
		if x.ID == "" || x.Run != id {
			return errors.New("it has exchanges of others")
		}
		if err := checkExchange(x.Exchange); err != nil {
			return err
		}
		for _, c := range x.Caused {
			if err := checkExchange(c); err != nil {
				return err
			}
			if len(c.Caused) > 0 {
				return errors.New("what an exchange has caused has caused others")
			}
		}
		if x.At.Before(run.Began.Add(-maxSkew)) || x.At.After(newest) {
			return errors.New("the time of an exchange is wrong")
		}
	}
	return nil
}

var errWrongCount = errors.New("it counts what cannot be")

// checkExchange checks what of an exchange is summed up, or shown as it is.
func checkExchange(x controlapi.Exchange) error {
	ok := counted(x.BytesUp, x.HeadUp, x.BytesDown, int64(x.Sanitized), int64(x.Redacted), int64(x.Unlisted))
	for _, ms := range []float64{x.Milliseconds, x.HeldMS, x.FirstMS} {
		ok = ok && 0 <= ms && ms <= maxCount
	}
	for _, s := range slices.Concat(x.Swapped, x.Scrubbed) {
		ok = ok && counted(int64(s.Count))
	}
	if !ok {
		return errWrongCount
	}
	switch x.Outcome {
	case controlapi.OutcomeServed, controlapi.OutcomeDenied, controlapi.OutcomeFailed, controlapi.OutcomeAborted,
		controlapi.OutcomePlanned:
		return nil
	}
	return errors.New("an exchange has no outcome that there is")
}

// timed reports whether the times of what was printed can be.
func (c *content) timed() bool {
	return c == nil || !slices.ContainsFunc(slices.Concat(c.Output.Head, c.Output.Tail), func(p historyapi.Print) bool {
		return !counted(p.MS)
	})
}

// counted reports whether all may be counts.
func counted(counts ...int64) bool {
	return !slices.ContainsFunc(counts, func(n int64) bool { return n < 0 || n > maxCount })
}

// checkGone checks a removal.
func (r *replay) checkGone() error {
	if len(r.gone) == 0 || len(r.gone) > maxGone {
		return errors.New("it removes no run, or too many")
	}
	for _, id := range r.gone {
		if !validID(id) {
			return errors.New("it removes what is not a run")
		}
	}
	return nil
}

// packRun makes the object of a run. Exchanges that do not fit are counted as omitted.
func packRun(run string, hints string, exchanges []json.RawMessage, content bool) ([]byte, error) {
	o := object{Schema: objectSchema, Run: json.RawMessage(run), Hints: json.RawMessage(hints), Content: content}
	o.Exchanges = slices.DeleteFunc(exchanges, func(x json.RawMessage) bool { return len(x) > maxRow })
	for omitted := len(exchanges) - len(o.Exchanges); ; {
		if omitted > 0 {
			var r historyapi.Run
			if err := json.Unmarshal(o.Run, &r); err != nil {
				return nil, err
			}
			r.Omitted += omitted
			var err error
			if o.Run, err = json.Marshal(r); err != nil {
				return nil, err
			}
		}
		data, err := pack(o)
		if err != nil || len(data) <= maxObject && o.size() <= maxUnpacked && o.bulk() <= maxBulk {
			return data, err
		}
		if len(o.Exchanges) == 0 {
			return nil, errors.New("a run is too large for the bucket")
		}
		omitted = (len(o.Exchanges) + 1) / 2
		o.Exchanges = o.Exchanges[:len(o.Exchanges)-omitted]
	}
}

// size is an upper bound of the object's decompressed size in bytes.
func (o *object) size() int {
	n := len(o.Run) + len(o.Hints) + 100
	for _, x := range o.Exchanges {
		n += len(x) + 1
	}
	return n
}

// bulk is no less than that of an object when it is unpacked.
func (o *object) bulk() int {
	n := bulk(o.Run) + bulk(o.Hints) + 100
	for _, x := range o.Exchanges {
		n += bulk(x) + 1
	}
	return n
}
