package multisearch

import (
	"bytes"
	"io"
)

// Reader replaces the patterns of a Set in the text of its source, in constant memory. Its error is sticky. If the
// source fails, the held bytes are discarded.
type Reader struct {
	set   *Set
	src   io.Reader
	with  func(id int) (string, error)
	buf   *[]byte
	emit  int // the bytes before it have left
	scan  int // no core begins before it
	cut   int // the cores before it are decided
	line  int // the position after the last line feed
	end   int
	final bool
	all   searches // the searches of the buffer since the last fill
	first starters // see escaped
	zero  int      // see search
	m     match
	of    *Set // the set of m
	found bool
	name  string // the rest of a replacement
	err   error
}

// NewReader returns a Reader of src. with returns the replacement of a match; its error ends the stream before the
// match.
func (s *Set) NewReader(src io.Reader, with func(id int) (string, error)) *Reader {
	return &Reader{set: s, src: src, with: with}
}

// Read reads with matches replaced. It returns as soon as any byte may leave.
func (r *Reader) Read(p []byte) (int, error) {
	if r.set == nil {
		return r.src.Read(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	// As bufio does: a source may return no bytes and no error a few times.
	for empty := 0; empty < 100; {
		if n := r.copyDecided(p); n > 0 {
			return n, nil
		}
		if r.err != nil {
			r.releaseBuffer()
			return 0, r.err
		}
		if empty++; r.fillBuffer() > 0 {
			empty = 0
		}
	}
	return 0, io.ErrNoProgress
}

// Stop returns the buffer to the pool. Later reads fail.
func (r *Reader) Stop() {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	r.releaseBuffer()
}

func (r *Reader) releaseBuffer() {
	if r.set != nil && r.buf != nil {
		r.all.releaseNotes()
		r.set.pool.Put(r.buf)
		r.all, r.buf = searches{}, nil
	}
	r.emit, r.scan, r.cut, r.end, r.found, r.name = 0, 0, 0, 0, false, ""
	r.first, r.zero = starters{}, 0
}

// copyDecided copies decided bytes and replacements to p.
func (r *Reader) copyDecided(p []byte) int {
	n := 0
	for n < len(p) {
		if r.name != "" {
			c := copy(p[n:], r.name)
			n, r.name = n+c, r.name[c:]
			continue
		}
		until := r.findDecidedEnd()
		if r.emit < until {
			c := copy(p[n:], (*r.buf)[r.emit:until])
			n, r.emit = n+c, r.emit+c
			continue
		}
		if !r.found {
			break
		}
		name, err := r.with(r.of.pats[r.m.pat].ID)
		if err != nil {
			r.err = err
			// No byte from the match on may leave.
			r.cut, r.scan, r.found = r.emit, r.emit, false
			break
		}
		r.name, r.found = r.of.encodeReplacement(r.m, name), false
		// The matched bytes never leave.
		r.emit, r.scan = r.m.end, r.m.end
	}
	return n
}

// findDecidedEnd returns the end of the bytes that may leave the buffer: the next match, or else the cut. One byte
// before the cut stays, because it may become the edge of a match that begins at the cut.
func (r *Reader) findDecidedEnd() int {
	if !r.found && r.scan < r.cut {
		r.m, r.of, r.found = r.all.nextMatch(r.scan)
		if !r.found {
			r.scan = r.cut
		}
	}
	switch {
	case r.found:
		return max(r.m.start, r.emit)
	case r.final || r.cut == r.line:
		return max(r.cut, r.emit)
	}
	return max(r.cut-1, r.emit)
}

// countHeld returns how many of the last bytes must wait for later bytes.
func (s *Set) countHeld() int {
	//defence:hold-back instead 0
	return s.MaxHeld()
}

// fillBuffer reads once from the source, moves the cut, and returns the number of bytes read.
func (r *Reader) fillBuffer() int {
	if r.buf == nil {
		r.buf = r.set.pool.Get().(*[]byte)
	}
	buf := *r.buf
	if r.all[0].escaped.state != stateUnknown {
		r.first = r.all[0].escaped.first
	}
	r.zero = r.all[0].zero
	// One byte is kept, to recognise the beginning of a word.
	gone := r.emit - 1
	// Moving costs time, so it waits until half of the buffer is used up.
	if gone > 0 && (r.emit == r.end || len(buf)-r.end < bufferSize/2) {
		copy(buf, buf[gone:r.end])
		r.emit, r.scan, r.cut, r.end = r.emit-gone, r.scan-gone, r.cut-gone, r.end-gone
		r.line = max(r.line-gone, 0)
		for i := range r.first {
			r.first[i] = max(r.first[i]-gone, 0)
		}
		r.zero = max(r.zero-gone, 0)
	}
	n, err := r.src.Read(buf[r.end:])
	// Ask for the newest set after the read. A value is published before a server can know it, so it is found in these
	// bytes.
	top := r.set.loadTop()
	if r.set.lines {
		// A line feed before near makes no difference. Searching forwards is faster than searching backwards.
		near := max(r.end, r.end+n-r.set.MaxHeld()-1)
		if recent := buf[near : r.end+n]; bytes.IndexByte(recent, '\n') >= 0 {
			r.line = near + bytes.LastIndexByte(recent, '\n') + 1
		}
	}
	r.end += n
	switch err {
	case nil:
		r.cut = max(r.scan, r.line, r.end-r.set.countHeld())
	case io.EOF:
		// No later byte can complete a match.
		r.err, r.final, r.cut = err, true, r.end
	// The source has failed: no byte that is still held may leave.
	default:
		r.err = err
		r.cut = max(r.scan, r.line, r.end-r.set.countHeld())
	}
	r.all.releaseNotes()
	r.all = r.set.newSearches(top, buf[:r.end], r.cut)
	for i := range r.all {
		r.all[i].escaped.first, r.all[i].zero = r.first, r.zero
	}
	return n
}
