package strict

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const maxFields = 256

// The reasons for refusing a request head.
var (
	errHeadTooLong  = errors.New("the request head is longer than 64 KiB")
	errLine         = errors.New("a line that does not end in CR LF, or that contains a CR or control character")
	errRequestLine  = errors.New("the request line is not a method, a target and HTTP/1.1, separated by single spaces")
	errTarget       = errors.New("the target is not a path")
	errField        = errors.New("a malformed header field")
	errFields       = errors.New("too many header fields")
	errFold         = errors.New("a folded header line")
	errHost         = errors.New("not exactly one valid Host")
	errLength       = errors.New("more than one Content-Length, or one that is not a number")
	errCoding       = errors.New("a Transfer-Encoding other than chunked")
	errAmbiguous    = errors.New("Content-Length together with Transfer-Encoding")
	errExpectation  = errors.New("an Expect other than 100-continue")
	errTrailerField = errors.New("a field that is not allowed in a trailer")
)

// bodyFraming is the framing of the body, from a checked request head.
type bodyFraming struct {
	chunked bool
	length  int64
}

// parseHead checks a request head, including the empty line. It follows RFC 9112, sections 2 to 6, without the leniency
// that they permit.
func parseHead(raw []byte) (bodyFraming, error) {
	lines, err := splitLines(raw)
	if err != nil {
		return bodyFraming{}, err
	}
	minor, err := parseRequestLine(lines[0])
	if err != nil {
		return bodyFraming{}, err
	}
	if len(lines)-1 > maxFields {
		return bodyFraming{}, errFields
	}
	var h bodyFraming
	var hosts, lengths, codings int
	for _, line := range lines[1:] {
		name, value, err := parseField(line)
		if err != nil {
			return bodyFraming{}, err
		}
		switch {
		case strings.EqualFold(name, "Host"):
			hosts++
			if value == "" || !httpguts.ValidHostHeader(value) {
				return bodyFraming{}, errHost
			}
		case strings.EqualFold(name, "Content-Length"):
			lengths++
			if h.length, err = parseLength(value); err != nil {
				return bodyFraming{}, err
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			codings++
			// With HTTP/1.0, a Transfer-Encoding means faulty framing (RFC 9112, section 6.1).
			if !strings.EqualFold(value, "chunked") || minor == 0 {
				return bodyFraming{}, errCoding
			}
			h.chunked = true
		case strings.EqualFold(name, "Trailer"):
			if err := parseTrailerNames(value); err != nil {
				return bodyFraming{}, err
			}
		case strings.EqualFold(name, "Expect"):
			if !strings.EqualFold(value, "100-continue") {
				return bodyFraming{}, errExpectation
			}
		}
	}
	switch {
	// HTTP/1.0 permits a request without Host, but over plain HTTP only Host names the upstream.
	case hosts != 1:
		return bodyFraming{}, errHost
	case lengths > 1:
		return bodyFraming{}, errLength
	case codings > 1:
		return bodyFraming{}, errCoding
	// RFC 9112, section 6.3: such a request may be an attempt at request smuggling.
	case lengths+codings > 1:
		return bodyFraming{}, errAmbiguous
	}
	return h, nil
}

// splitLines splits at CR LF. It rejects every other control character except tab. It drops the empty line at the end.
func splitLines(raw []byte) ([]string, error) {
	body := bytes.TrimSuffix(raw, []byte("\r\n\r\n"))
	// The head must end with exactly one empty line.
	if len(body) == len(raw) || len(body) == 0 {
		return nil, errLine
	}
	lines := strings.Split(string(body), "\r\n")
	// Some parsers end a line at a bare LF, or read a bare CR as a space (RFC 9112, section 2.2).
	for _, l := range lines {
		for i := range len(l) {
			if l[i] < ' ' && l[i] != '\t' || l[i] == 0x7f {
				return nil, errLine
			}
		}
	}
	return lines, nil
}

// parseRequestLine checks "METHOD /path HTTP/1.x" and returns x: 0 or 1.
func parseRequestLine(line string) (minor int, err error) {
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || len(method) > 32 || !httpguts.ValidHeaderFieldName(method) {
		return 0, errRequestLine
	}
	switch proto {
	case "HTTP/1.1":
		minor = 1
	case "HTTP/1.0":
	default:
		return 0, errRequestLine
	}
	// url.ParseRequestURI keeps a # in the path, but a target has no fragment (RFC 9112, section 3.2.1).
	if !strings.HasPrefix(target, "/") || strings.ContainsAny(target, "#") || !isVisible(target) {
		return 0, errTarget
	}
	if _, err := url.ParseRequestURI(target); err != nil {
		return 0, errTarget
	}
	return minor, nil
}

func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func parseField(line string) (name, value string, err error) {
	if line == "" {
		return "", "", errField
	}
	// RFC 9112, section 5.2: a folded line is obsolete, and parsers disagree about it.
	if line[0] == ' ' || line[0] == '\t' {
		return "", "", errFold
	}
	// A space before the colon stays in the name, which is then invalid. Such spaces have misled routing (RFC 9112,
	// section 5.1).
	name, value, ok := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return "", "", errField
	}
	return name, value, nil
}

// parseLength accepts only decimal digits.
func parseLength(s string) (int64, error) {
	// strconv.ParseInt would accept a sign. Some servers accept the list 5,5 (RFC 9110, section 8.6). An int64 holds 18
	// digits.
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return 0, errLength
	}
	return strconv.ParseInt(s, 10, 64)
}

// parseTrailerNames checks the names of announced trailers.
func parseTrailerNames(list string) error {
	for _, name := range strings.Split(list, ",") {
		if !httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(strings.Trim(name, " \t"))) {
			return errTrailerField
		}
	}
	return nil
}

// parseTrailer checks the fields after a chunked body. It rejects fields that frame, route or authorise a message (RFC
// 9110, section 6.5.1).
func parseTrailer(raw []byte) error {
	lines, err := splitLines(raw)
	if err != nil {
		return err
	}
	if len(lines) > maxFields {
		return errFields
	}
	for _, line := range lines {
		name, _, err := parseField(line)
		if err != nil {
			return err
		}
		if !httpguts.ValidTrailerHeader(name) {
			return errTrailerField
		}
	}
	return nil
}
