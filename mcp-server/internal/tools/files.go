package tools

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // registers JPEG
	_ "image/png"  // registers PNG
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// runsURI is the start of the URI of a run's file: codeforge://runs/RUN/files/NAME.
	runsURI = "codeforge://runs/"
	// AnswerCopies is the number of copies of its contents that an answer has in memory: the data, base64 and JSON.
	AnswerCopies = 3
	// firstWithLinks is the first protocol version with resource links in results.
	firstWithLinks = "2025-06-18"
	// maxSide bounds the longer side of a shown image, in pixels: models scale a larger one down, and it would cost a
	// client much memory.
	maxSide = 1568
)

// errManyFiles is for a file beyond the memory for answers.
var errManyFiles = errors.New("too many files are read at once: read this one again later")

// runFiles takes the files of a run, for its result.
type runFiles struct {
	surface   *Surface
	recording *history.Recording
	// pictures are the shown images and sounds.
	pictures []mcp.Content
	kept     []operatorapi.RunFile
	leftOut  []string // names, each with the reason
}

// addFileResources lets clients read the files of runs.
func (s *Surface) addFileResources() {
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "run-file", Title: "File of a run", URITemplate: runsURI + "{run}/files/{name}",
		Description: "A file that code wrote to /out",
	}, s.answerFile)
}

// answerFile returns the file of a run of this client.
func (s *Surface) answerFile(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	run, name, _ := strings.Cut(strings.TrimPrefix(uri, runsURI), "/files/")
	name, err := url.PathUnescape(name)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	tenant := ""
	if s.cfg.Tenant != nil {
		tenant = s.cfg.Tenant.Name
	}
	f, err := s.cfg.History.ReadRunFile(ctx, run, name, func(f history.File) error {
		//defence:file-tenant permits
		isOwn := f.Tenant == tenant
		if !isOwn {
			return history.ErrUnknown
		}
		// Before the data are read: many requests at once would otherwise have all of them in memory.
		if membudget.FromContext(ctx).WaitAndTake(ctx, AnswerCopies*f.Size) != nil {
			return errManyFiles
		}
		return nil
	})
	switch {
	case errors.Is(err, history.ErrUnknown), errors.Is(err, history.ErrOff):
		return nil, mcp.ResourceNotFoundError(uri)
	case err != nil:
		return nil, err
	}
	content := &mcp.ResourceContents{URI: uri, MIMEType: f.Type, Blob: f.Data}
	if f.IsText() {
		content.Text, content.Blob = string(f.Data), nil
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{content}}, nil
}

// takeFile takes a file of the run. The data stay in memory until the history has stored them.
func (r *runFiles) takeFile(ctx context.Context, f sandboxapi.File) {
	if err := r.checkAndAdd(ctx, f); err != nil {
		r.leftOut = append(r.leftOut, fmt.Sprintf("%s (%v)", f.Name, err))
	}
}

func (r *runFiles) checkAndAdd(ctx context.Context, f sandboxapi.File) error {
	if f.Dropped {
		return errors.New("CodeForge was busy with other files")
	}
	// A cancelled run has files, too.
	data, err := r.surface.cfg.History.CheckFile(context.WithoutCancel(ctx), f.Data)
	if err != nil {
		return err
	}
	if f.Shown {
		content, end, err := showFile(data)
		if err != nil {
			return err
		}
		r.pictures = append(r.pictures, content)
		r.recording.AddFile(f.Name+end, data) // for the user; the model has it
		return nil
	}
	kept, ok := r.recording.AddFile(f.Name, data)
	if !ok {
		return errors.New("the history takes no files now, or HISTORY is not full")
	}
	r.kept = append(r.kept, kept)
	return nil
}

// describeFiles returns links to the files, and notes. The notes have the names if the client's protocol has no links.
func (r *runFiles) describeFiles(req *mcp.CallToolRequest, run string) (content []mcp.Content, notes []string) {
	_, _, protocol := clientInfo(req.Session)
	content, notes = linkFiles(run, r.kept, protocol)
	if len(r.leftOut) > 0 {
		notes = append(notes, "Not kept or shown: "+strings.Join(r.leftOut, ", ")+".")
	}
	return append(content, r.pictures...), notes
}

// linkFiles returns links to stored files of a run, or a note with their names if the client's protocol has no links.
func linkFiles(run string, files []operatorapi.RunFile, protocol string) (links []mcp.Content, notes []string) {
	var names []string
	for _, f := range files {
		if protocol < firstWithLinks {
			names = append(names, fmt.Sprintf("%s (%s, %d bytes)", f.Name, f.Type, f.Size))
			continue
		}
		links = append(links, &mcp.ResourceLink{
			URI: runsURI + run + "/files/" + url.PathEscape(f.Name), Name: f.Name, MIMEType: f.Type, Size: &f.Size,
		})
	}
	if len(names) > 0 {
		notes = append(notes, "Files of run "+run+": "+strings.Join(names, ", ")+".")
	}
	return links, notes
}

// showFile returns an image or a sound as content, and the end of its file name. It reads only headers.
func showFile(data []byte) (content mcp.Content, end string, err error) {
	of := http.DetectContentType(data)
	switch of {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		w, h, err := imageSize(of, data)
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("its header is not that of %s", of)
		//defence:image-size
		case min(w, h) < 1 || max(w, h) > maxSide:
			return nil, "", fmt.Errorf("%d x %d pixels: a side may have at most %d, so scale it down", w, h, maxSide)
		}
		return &mcp.ImageContent{Data: data, MIMEType: of}, "." + strings.TrimPrefix(of, "image/"), nil
	case "audio/wave":
		return &mcp.AudioContent{Data: data, MIMEType: "audio/wav"}, ".wav", nil
	case "audio/mpeg":
		return &mcp.AudioContent{Data: data, MIMEType: of}, ".mp3", nil
	case "application/ogg":
		return &mcp.AudioContent{Data: data, MIMEType: "audio/ogg"}, ".ogg", nil
	}
	return nil, "", errors.New("want PNG, JPEG, WebP, GIF, WAV, MP3 or Ogg")
}

// imageSize returns the width and height in an image's header.
func imageSize(of string, data []byte) (w, h int, err error) {
	switch of {
	case "image/webp":
		return webpSize(data)
	case "image/gif":
		return gifSize(data)
	}
	c, format, err := image.DecodeConfig(bytes.NewReader(data))
	hasOneSize := hasOneHeader
	if of == "image/jpeg" {
		hasOneSize = hasOneFrame
	}
	if err == nil && ("image/"+format != of || !hasOneSize(data)) {
		err = image.ErrFormat
	}
	return c.Width, c.Height, err
}

// hasOneHeader reports whether a PNG has one header before its pixels. Decoders such as Pillow take the size of the
// last one.
func hasOneHeader(png []byte) bool {
	const signature, around = 8, 12 // bytes; around the data of each chunk are its length, type and checksum
	headers := 0
	for at := signature; at+around <= len(png); {
		switch string(png[at+4 : at+8]) {
		case "IHDR":
			headers++
		case "IDAT", "IEND":
			return headers == 1
		}
		at += around + int(binary.BigEndian.Uint32(png[at:]))
	}
	return false
}

// hasOneFrame reports whether a JPEG has one frame, so one size, before its first scan. Decoders such as Pillow take
// the size of the last one. It accepts only segments that all decoders skip alike.
func hasOneFrame(jpeg []byte) bool {
	frames := 0
	for at := 2; at+4 <= len(jpeg); { // after the start of the image
		switch of := jpeg[at+1]; {
		case jpeg[at] != 0xff:
			return false
		case of == 0xff: // padding
			at++
			continue
		case of == 0xda: // a scan
			return frames == 1
		case of >= 0xc0 && of <= 0xc2:
			frames++
		case of == 0xc4, of == 0xdb, of == 0xdd, of >= 0xe0 && of <= 0xef, of == 0xfe: // tables, metadata
		default:
			return false
		}
		at += 2 + int(binary.BigEndian.Uint16(jpeg[at+2:]))
	}
	return false
}

// gifSize returns the width and height of a GIF's screen. If a frame exceeds the screen, it returns the larger size:
// decoders such as Pillow enlarge the screen for its frame. Data that decoders read differently is an error: bytes
// between blocks, and an empty block where Pillow starts to read blocks again. It could hide a frame.
func gifSize(data []byte) (w, h int, err error) {
	const header, descriptor = 13, 10 // bytes
	if len(data) < header {
		return 0, 0, image.ErrFormat
	}
	le := binary.LittleEndian
	tableSize := func(flags byte) int { // of a table of colours
		if flags&0x80 == 0 {
			return 0
		}
		return 6 << (flags & 7)
	}
	w, h = int(le.Uint16(data[6:])), int(le.Uint16(data[8:]))
	for at := header + tableSize(data[10]); at < len(data); at++ {
		switch data[at] {
		case ';': // the end
			return w, h, nil
		case '!': // an extension
			if !startsPlainExtension(data[at:]) {
				return 0, 0, image.ErrFormat
			}
			at += 2
		case ',': // a frame
			if len(data) < at+descriptor {
				return 0, 0, image.ErrFormat
			}
			d := data[at+1:]
			w = max(w, int(le.Uint16(d))+int(le.Uint16(d[4:])))
			h = max(h, int(le.Uint16(d[2:]))+int(le.Uint16(d[6:])))
			at += descriptor + tableSize(d[8]) + 1
		default:
			return 0, 0, image.ErrFormat
		}
		for at < len(data) && data[at] != 0 { // blocks, each after its length
			at += 1 + int(data[at])
		}
	}
	return w, h, nil
}

// startsPlainExtension reports whether the first block of an extension has data, and so has the block after
// "NETSCAPE2.0".
func startsPlainExtension(data []byte) bool {
	const first, loops = 2, "\xff\x0bNETSCAPE2.0"
	rest, isLoop := bytes.CutPrefix(data[1:], []byte(loops))
	isEmptyLoop := isLoop && len(rest) > 0 && rest[0] == 0
	return len(data) > first && data[first] != 0 && !isEmptyLoop
}

// webpSize returns the width and height of a WebP image: RFC 9649, sections 2.5 to 2.7.
func webpSize(data []byte) (w, h int, err error) {
	if len(data) < 30 {
		return 0, 0, image.ErrFormat
	}
	switch le := binary.LittleEndian; string(data[12:16]) {
	case "VP8 ":
		return int(le.Uint16(data[26:]) & 0x3fff), int(le.Uint16(data[28:]) & 0x3fff), nil
	case "VP8L":
		bits := le.Uint32(data[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, nil
	case "VP8X":
		return int(le.Uint32(data[24:])&0xffffff) + 1, int(le.Uint32(data[26:])>>8) + 1, nil
	}
	return 0, 0, image.ErrFormat
}
