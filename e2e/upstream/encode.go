package upstream

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compress applies the codings of a Content-Encoding value in order ("gzip,br"). Two are not real codings: "unknown" is
// XOR, "labelled-gzip" is plain text with a gzip label.
func compress(codings string, body []byte) (out []byte, label string, err error) {
	out = body
	var labels []string
	for _, c := range strings.Split(codings, ",") {
		c = strings.TrimSpace(c)
		switch c {
		case "", "none":
			continue
		case "identity":
			labels = append(labels, c)
			continue
		case "unknown":
			out = xor(out)
			labels = append(labels, "x-hidden")
			continue
		case "labelled-gzip":
			labels = append(labels, "gzip")
			continue
		case "unlabelled-gzip":
			c = "gzip"
		case "gzip-members":
			if out, err = members(out); err != nil {
				return nil, "", err
			}
			labels = append(labels, "gzip")
			continue
		case "gzip-upper":
			labels = append(labels, "GZIP")
			c = "gzip"
		case "x-gzip":
			labels = append(labels, c)
			c = "gzip"
		case "deflate-raw":
			labels = append(labels, "deflate")
		default:
			labels = append(labels, c)
		}
		if out, err = squeeze(c, out); err != nil {
			return nil, "", err
		}
	}
	return out, strings.Join(labels, ", "), nil
}

// squeeze applies one coding.
func squeeze(coding string, body []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, err := encoder(coding, &buf)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err = w.Close()
	return buf.Bytes(), err
}

// encoder is a writer that compresses into w.
func encoder(coding string, w io.Writer) (io.WriteCloser, error) {
	switch coding {
	case "gzip":
		return gzip.NewWriter(w), nil
	case "deflate":
		return zlib.NewWriter(w), nil
	case "deflate-raw":
		return flate.NewWriter(w, flate.DefaultCompression)
	case "br":
		return brotli.NewWriter(w), nil
	case "zstd":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("no coding %q", coding)
}

// members is gzip with the body in two members, cut in the middle.
func members(body []byte) ([]byte, error) {
	a, err := squeeze("gzip", body[:len(body)/2])
	if err != nil {
		return nil, err
	}
	b, err := squeeze("gzip", body[len(body)/2:])
	return append(a, b...), err
}

func xor(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ 0x5a
	}
	return out
}
