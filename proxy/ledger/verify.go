package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxFindings bounds the findings of Verify: one change can make everything after it wrong.
const maxFindings = 20

// KnownCheckpoint is a checkpoint that was kept outside the ledger.
type KnownCheckpoint struct {
	Head
	// Where names the place, in words: "the checkpoint of run r3f".
	Where string
}

// Report is the result of Verify.
type Report = proxyapi.LedgerReport

// Verify reads a ledger and compares it with its checkpoints and with known ones. Without a key, it uses the ledger's
// key.pub. An error means that it could not read the ledger.
func Verify(src Source, key string, known []KnownCheckpoint) (Report, error) {
	if key == "" {
		f, err := src.Open(pubName)
		if errors.Is(err, os.ErrNotExist) {
			return Report{}, errors.New("there is no ledger: " + pubName + " is missing")
		}
		if err != nil {
			return Report{}, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
		if err != nil {
			return Report{}, err
		}
		key = string(text)
	}
	verifier, err := note.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return Report{}, errors.New("the key is not valid: want the line of " + pubName)
	}
	names, err := src.ListDays()
	if err != nil {
		return Report{}, err
	}
	v := &verification{key: verifier, known: map[int64][]KnownCheckpoint{}, latest: slices.Clone(known)}
	v.report.Findings = []string{}
	for _, k := range known {
		v.known[k.Size] = append(v.known[k.Size], k)
	}
	for _, name := range names {
		if err := v.readFile(src, name); err != nil {
			// The report so far is returned too: it may already name a change.
			return v.report, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	v.checkEnd()
	return v.report, nil
}

type verification struct {
	key    note.Verifier
	known  map[int64][]KnownCheckpoint
	latest []KnownCheckpoint
	report Report

	tree tree
	prev tlog.Hash // the hash of the last record, or zero if it is unknown
	good int64     // the number of records up to the last checkpoint that verified
	lost bool      // a record is wrong, so the tree is unknown until the next checkpoint
	// fits is the last checkpoint that agrees with the tree. Its signature also covers the records of the earlier ones.
	fits *Checkpoint
}

func (v *verification) addFinding(format string, args ...any) {
	if len(v.report.Findings) == maxFindings {
		v.report.Findings = append(v.report.Findings, "and more")
	}
	if len(v.report.Findings) < maxFindings {
		v.report.Findings = append(v.report.Findings, fmt.Sprintf(format, args...))
	}
}

// readFile reads the file of a day.
func (v *verification) readFile(src Source, name string) error {
	f, err := src.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	v.report.Days++
	switch {
	case strings.HasSuffix(name, hashesName):
		return v.readHashes(f)
	case strings.HasSuffix(name, rootsName):
		return v.readRoots(f)
	}
	for lines := newLineReader(f); ; {
		text, err := lines.nextLine()
		if err != nil || text == nil {
			// A signature takes far longer than a record, so only the last fitting one of a file is verified.
			v.checkSignature()
			return err
		}
		if c := parseCheckpoint(text); c != nil {
			v.checkCheckpoint(c)
		} else {
			v.checkRecord(text)
		}
	}
}

// readHashes reads a day whose hashes alone are kept.
func (v *verification) readHashes(f io.Reader) error {
	var h tlog.Hash
	return v.eachBlock(f, h[:], func() {
		v.report.Forgotten++
		v.addLeaf(h)
	})
}

// eachBlock reads a file block by block. The record after such a file cannot refer to an earlier record.
func (v *verification) eachBlock(f io.Reader, block []byte, add func()) error {
	for {
		switch _, err := io.ReadFull(f, block); {
		case errors.Is(err, io.EOF):
			v.prev = tlog.Hash{}
			return nil
		case err != nil:
			return err
		}
		add()
	}
}

// readRoots reads a day of which only the roots are kept.
func (v *verification) readRoots(f io.Reader) error {
	var root [rootSize]byte
	return v.eachBlock(f, root[:], func() {
		height := int(root[0])
		if !v.lost && !v.tree.graftSubtree(height, tlog.Hash(root[1:])) {
			v.addFinding("the kept hash of the records from %d on was changed", v.tree.size)
			v.lost = true
			return
		}
		// The ledger is lost already, and its numbers must not overflow.
		if height > maxHeight || v.tree.size > maxSize {
			return
		}
		n := int64(1) << height
		v.report.Forgotten += n
		v.report.Records += n
		if v.lost {
			v.tree.size += n
			return
		}
		for _, k := range v.known[v.tree.size] {
			v.compareKnown(k, v.tree.currentHead())
		}
	})
}

// checkRecord checks a record against the previous one.
func (v *verification) checkRecord(text []byte) {
	n, prev, ok := parsePlace(text)
	switch {
	case !ok || text[len(text)-1] != '}':
		v.addFinding("record %d was changed: it is no longer a record", v.tree.size)
		v.lost, v.prev = true, tlog.Hash{}
		// Count the broken line as a record, so that the numbers after it still match.
		v.addLeaf(v.prev)
		return
	case n > v.tree.size:
		v.reportMissing(n)
		v.lost = true
	case n < v.tree.size:
		v.addFinding("record %d stands where record %d belongs", n, v.tree.size)
		v.lost, v.prev = true, tlog.Hash{}
		v.report.Records++
		return
	//defence:ledger-hash
	case v.prev != (tlog.Hash{}) && !isNext(prev, v.prev):
		v.addFinding("record %d was changed", n-1)
		v.lost = true
	}
	v.tree.size = n
	v.prev = tlog.RecordHash(text)
	v.addLeaf(v.prev)
}

// addLeaf appends a leaf, and compares the tree with known checkpoints of the new size.
func (v *verification) addLeaf(h tlog.Hash) {
	v.report.Records++
	if v.lost {
		v.tree.size++ // the edge is wrong until the next checkpoint
		return
	}
	v.tree.addLeaf(h)
	for _, k := range v.known[v.tree.size] {
		v.compareKnown(k, v.tree.currentHead())
	}
}

// compareKnown compares a checkpoint from outside with the ledger at the checkpoint's size.
func (v *verification) compareKnown(k KnownCheckpoint, have Head) {
	//defence:ledger-known permits
	if k.Root == have.Root {
		v.report.Compared++
		return
	}
	v.addFinding("with %d records, the ledger is not the one that %s saw: "+
		"it was rewritten, or is another ledger", k.Size, k.Where)
}

func (v *verification) checkCheckpoint(c *Checkpoint) {
	// The fast path: the tree agrees, so the signature can wait for the last such checkpoint.
	//defence:ledger-hash permits
	if !v.lost && c.matchTree(v.key.Name(), &v.tree) {
		v.report.Checkpoints++
		v.good, v.fits = v.tree.size, c
		return
	}
	head, t, err := c.parseNote(v.key.Name())
	if err == nil {
		_, _, err = c.verifyNote(v.key)
	}
	what := c.describeCheckpoint()
	switch {
	case err != nil:
		v.addFinding("%s after record %d does not verify: %v", what, v.tree.size-1, err)
		return
	// The tree is unknown here, but the signed head can still be compared.
	case v.lost:
		for _, k := range v.known[head.Size] {
			v.compareKnown(k, head)
		}
	case head.Size > v.tree.size:
		v.reportMissing(head.Size)
		v.prev = tlog.Hash{}
	case head.Size < v.tree.size:
		v.addFinding("%s stands after record %d, and was made after record %d", what, v.tree.size-1, head.Size-1)
		return
	case head.Size-v.good == 1:
		v.addFinding("record %d was changed", v.good)
	default:
		v.addFinding("one of the records %d to %d was changed", v.good, head.Size-1)
	}
	v.report.Checkpoints++
	v.tree, v.good, v.lost = t, head.Size, false
}

// checkSignature verifies the last checkpoint that fits.
func (v *verification) checkSignature() {
	if v.fits == nil {
		return
	}
	if _, _, err := v.fits.verifyNote(v.key); err != nil {
		v.addFinding("%s does not verify: %v", v.fits.describeCheckpoint(), err)
	}
	v.fits = nil
}

// describeCheckpoint names a checkpoint in a finding.
func (c *Checkpoint) describeCheckpoint() string {
	if c.Run == "" {
		return "a checkpoint"
	}
	return "the checkpoint of run " + c.Run
}

// checkEnd makes the checks that need the whole ledger.
func (v *verification) checkEnd() {
	v.report.Unsigned = max(0, v.tree.size-v.good)
	if v.tree.size > 0 && !v.lost {
		v.report.Head = v.tree.currentHead().String()
	}
	slices.SortFunc(v.latest, func(a, b KnownCheckpoint) int { return int(b.Size - a.Size) })
	//defence:ledger-known
	if len(v.latest) > 0 && v.latest[0].Size > v.tree.size {
		k := v.latest[0]
		v.addFinding("the ledger has %d records, %s says %d: its end is missing", v.tree.size, k.Where, k.Size)
	}
}

// reportMissing reports the records before number n as missing.
func (v *verification) reportMissing(n int64) {
	if n-v.tree.size == 1 {
		v.addFinding("record %d is missing", v.tree.size)
		return
	}
	v.addFinding("the records %d to %d are missing", v.tree.size, n-1)
}

// Query selects records for EachRecord.
type Query struct {
	Since time.Time
	// Run is a run's id or the beginning of an id.
	Run string
}

// EachRecord calls on for the selected records of a ledger, the oldest first. It does not verify the ledger.
func EachRecord(src Source, q Query, on func(Record) error) error {
	names, err := src.ListDays()
	if err != nil {
		return err
	}
	for _, name := range names {
		day, isRecords := strings.CutSuffix(name, recordsName)
		if !isRecords || !q.Since.IsZero() && day < q.Since.UTC().Add(-24*time.Hour).Format(dayLayout) {
			continue
		}
		if err := eachInDay(src, name, q, on); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return nil
}

func eachInDay(src Source, name string, q Query, on func(Record) error) error {
	f, err := src.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := newLineReader(f); ; {
		text, err := lines.nextLine()
		if err != nil || text == nil {
			return err
		}
		if bytes.HasPrefix(text, []byte(checkpointPrefix)) || !bytes.Contains(text, []byte(q.Run)) {
			continue
		}
		r, err := parseRecord(text)
		if err != nil {
			continue // Verify reports it
		}
		if r.At.Before(q.Since) || !strings.HasPrefix(r.RunID(), q.Run) {
			continue
		}
		if err := on(r); err != nil {
			return err
		}
	}
}
