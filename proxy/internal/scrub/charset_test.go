package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
)

// sets are character sets by a label that servers use.
var sets = map[string]encoding.Encoding{
	"utf-8": unicode.UTF8, "UTF8": unicode.UTF8, "iso-8859-1": charmap.ISO8859_1, "windows-1251": charmap.Windows1251, "koi8_r": charmap.KOI8R, "us-ascii": unicode.UTF8,
	"utf-16": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "UTF-16 ": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"utf-16-le": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "utf_16_be": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"UTF-16BE": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), "utf-32": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM),
	"utf-32-be": utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM), "utf-32le": utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM),
	"cp037": charmap.CodePage037, "IBM037": charmap.CodePage037, "ebcdic-cp-us": charmap.CodePage037, "ibm1047": charmap.CodePage1047, "cp1140": charmap.CodePage1140,
	"iso-2022-jp": japanese.ISO2022JP, "hz-gb-2312": simplifiedchinese.HZGB2312, "shift_jis": japanese.ShiftJIS, "euc-jp": japanese.EUCJP,
	"big5": traditionalchinese.Big5, "gbk": simplifiedchinese.GBK, "gb18030": simplifiedchinese.GB18030, "euc-kr": korean.EUCKR,
	"MS949": korean.EUCKR, "cp949": korean.EUCKR, "x-windows-949": korean.EUCKR, "cp932": japanese.ShiftJIS, "cp950": traditionalchinese.Big5, "cp65001": unicode.UTF8, "win-1251": charmap.Windows1251,
}

// inside are forms that a server may write a credential in before it encodes its text.
var inside = []string{"raw", "json", "php json", "unicode", "html", "query", "base64", "basic", "hex", "url of json"}

// give makes a response of a body, at once or byte by byte, and reads what comes through.
func give(t *testing.T, data []byte, whole bool, header ...string) (string, *http.Response, error) {
	t.Helper()
	length := int64(-1)
	if whole {
		length = int64(len(data))
	}
	resp := respond(length, &pieces{data, 1 + 99*(len(data)%2)}, header...)
	if _, err := New(creds()).ScrubResponse(resp, Options{}); err != nil {
		return "", resp, err
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(got), resp, err
}

// known are the ways in which a reader may find a credential in bytes: it knows every character set.
func known(t *testing.T, got string) string {
	t.Helper()
	texts := map[string]string{"as it is": got, "without zeros": strings.ReplaceAll(got, "\x00", "")}
	for label, enc := range sets {
		if text, err := enc.NewDecoder().String(got); err == nil {
			texts["from "+label] = text
		}
		if text, err := encoding.ReplaceUnsupported(enc.NewEncoder()).String(got); err == nil {
			texts["to "+label] = text
		}
	}
	for way, text := range texts {
		for form, write := range echoes {
			if strings.Contains(text, strings.Trim(write(canary), `"`)) {
				return form + " " + way
			}
		}
	}
	return ""
}

// TestCharsets: whatever set a server's answer is in, and whatever form a credential has in it, it does not come
// through.
// Promise: scrubbed-responses
func TestCharsets(t *testing.T) {
	for label, enc := range sets {
		for _, form := range inside {
			for _, whole := range []bool{true, false} {
				page, err := enc.NewEncoder().Bytes([]byte(`{"key": "` + echoes[form](canary) + `", "more": "text"}`))
				if err != nil {
					t.Fatal(err)
				}
				got, resp, err := give(t, page, whole, "Content-Type", "application/json; charset="+label)
				if err != nil || !strings.Contains(got, "STRIPE_AUTH_TOKEN") || known(t, got) != "" {
					t.Errorf("%s in %q: %q, %v: %s", form, label, got, err, known(t, got))
				}
				if kind := resp.Header.Get("Content-Type"); strings.Contains(got, "\x00") || !strings.Contains(kind, "utf-8") && !strings.Contains(kind, label) {
					t.Errorf("%s in %q is %q with Content-Type %q", form, label, got, kind)
				}
			}
		}
	}
}

// TestCharsetText: transcoding does not change the text.
func TestCharsetText(t *testing.T) {
	for label, enc := range sets {
		text := "some text, with \\ and ~ and lines\n"
		if strings.ContainsAny(label[:1], "sbge") && label != "ebcdic-cp-us" || label == "iso-2022-jp" || label == "hz-gb-2312" {
			text += "日本"
		}
		coded, err := enc.NewEncoder().String(strings.Repeat(text, 1000))
		if err != nil {
			t.Fatal(label, err)
		}
		want, _ := enc.NewDecoder().String(coded)
		got, resp, err := give(t, []byte(coded), false, "Content-Type", `text/plain;charset="`+label+`"; x=y`)
		if got = strings.TrimPrefix(got, "\ufeff"); err != nil || got != want {
			t.Errorf("%s: %.80q, %v", label, got, err)
		}
		if kind := resp.Header.Get("Content-Type"); !strings.Contains(kind, "x=y") {
			t.Errorf("%s: Content-Type became %q", label, kind)
		}
	}
}

// TestCharsetDeclared: every way to declare a set counts, and what cannot be decoded is refused.
// Promise: scrubbed-responses
func TestCharsetDeclared(t *testing.T) {
	utf16 := func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") + "\x00" }
	hidden := `{"key":"` + echoes["unicode"](canary) + `"}`
	ebcdic, _ := charmap.CodePage037.NewEncoder().String(`<?xml version="1.0"?><k>` + echoes["html"](canary) + "</k>")
	be32, _ := sets["utf-32-be"].NewEncoder().String(hidden)
	jis := func(s string) string { return strings.ReplaceAll(s, "live", "\x1b(Jlive\x1b(B") } // Roman, but for \ and ~ the same
	for name, tc := range map[string]struct {
		body  string
		types []string
		want  error // nil: transcoded and scrubbed
	}{
		"quoted":                     {utf16(hidden), []string{`text/plain; charset="utf-16le"`}, nil},
		"odd case and spaces":        {utf16(hidden), []string{"text/plain ;\tCHARSET = UTF-16LE ; x=y"}, nil},
		"single quotes":              {utf16(hidden), []string{"text/plain; charset='utf-16le'"}, nil},
		"extended":                   {utf16(hidden), []string{"text/plain; charset*=us-ascii''utf-16le"}, nil},
		"twice the same":             {utf16(hidden), []string{"text/plain; charset=utf-16le; charset=UTF-16LE"}, nil},
		"in the second header":       {utf16(hidden), []string{"text/plain", "text/plain; charset=utf-16le"}, nil},
		"twice":                      {utf16(hidden), []string{"text/plain; charset=utf-8; charset=utf-16le"}, charset.ErrUnknown},
		"in two headers":             {utf16(hidden), []string{"text/plain; charset=utf-16be", "text/plain; charset=utf-16le"}, charset.ErrUnknown},
		"no byte order":              {utf16(hidden), []string{"text/plain; charset=utf-16"}, charset.ErrUnknown},
		"mark against the label":     {"\xfe\xff" + hidden, []string{"text/plain; charset=utf-16le"}, charset.ErrUnknown},
		"mark, no label":             {"\xff\xfe" + utf16(hidden), []string{"text/plain"}, nil},
		"mark, another label":        {"\xff\xfe" + utf16(hidden), []string{"text/plain; charset=utf-8"}, nil},
		"mark, no type":              {"\xfe\xff\x00" + strings.TrimSuffix(utf16(hidden), "\x00"), nil, nil},
		"JSON in UTF-16":             {utf16(hidden), []string{"application/problem+json"}, nil},
		"JSON in UTF-32":             {be32, []string{"application/json; charset=utf-8"}, nil},
		"XML in EBCDIC":              {ebcdic, []string{"text/xml"}, nil},
		"type of an image":           {utf16("x" + canary), []string{"image/png"}, nil},
		"meta with shifts":           {`<html><META charset="iso-2022-jp">` + jis(canary), []string{"text/html"}, nil},
		"http-equiv with shifts":     {`<meta http-equiv=Content-Type content="text/html;charset=iso-2022-jp">` + jis(canary), []string{"text/html"}, nil},
		"XML with shifts":            {`<?xml version="1.0" encoding='ISO-2022-JP'?>` + jis(canary), []string{"application/xml"}, nil},
		"CSS with shifts":            {`@charset "iso-2022-jp"; ` + jis(canary), []string{"text/css"}, nil},
		"label of shifts":            {jis(canary), []string{"text/plain; charset=iso-2022-jp"}, nil},
		"meta UTF-16 in ASCII":       {`<meta charset=utf-16>` + canary, []string{"text/html"}, nil},
		"XML UTF-16 in ASCII":        {`<?xml version="1.0" encoding="utf-16"?>` + canary, []string{"text/xml; charset=utf-8"}, nil},
		"meta UTF-7":                 {`<meta charset=utf-7>` + canary, []string{"text/html"}, charset.ErrUnknown},
		"XML UTF-7":                  {`<?xml version="1.0" encoding="UTF-7"?>`, []string{"text/xml"}, charset.ErrUnknown},
		"mark of UTF-7":              {"+/v8-" + canary, []string{"text/plain"}, charset.ErrUnknown},
		"mark of SCSU":               {"\x0e\xfe\xff" + canary, []string{"text/plain"}, charset.ErrUnknown},
		"a label in a multipart sub": {utf16("x" + canary), []string{"multipart/mixed; boundary=x"}, nil},
	} {
		for _, whole := range []bool{true, false} {
			var header []string
			for _, v := range tc.types {
				header = append(header, "Content-Type", v)
			}
			got, _, err := give(t, []byte(tc.body), whole, header...)
			if !errors.Is(err, tc.want) || known(t, got) != "" || tc.want == nil && !strings.Contains(strings.ReplaceAll(got, "\x00", ""), "STRIPE_AUTH_TOKEN") {
				t.Errorf("%s, length known %t: %q, %v: %s", name, whole, got, err, known(t, got))
			}
		}
	}
	for _, label := range []string{"utf-7", "UNICODE-1-1-UTF-7", "x-unicode-2-0-utf-7", "scsu", "bocu-1", "cp500", "cp875", "cp1026", "ebcdic-cp-he", "iso-2022-kr", "iso-2022-cn", "iso-2022-jp-2", "idna", "rot13", "x-mystery", "utf-9", "*", "utf-16,utf-8x"} {
		if _, _, err := give(t, []byte(canary), true, "Content-Type", "text/plain; charset="+label); !errors.Is(err, charset.ErrUnknown) {
			t.Errorf("%s: %v", label, err)
		}
	}
}

// TestBinaryText: bytes that are no text stay as they are where a type, or none, says that they may be text. Their zeros
// are not those of UTF-16 or UTF-32.
// Promise: scrubbed-responses
func TestBinaryText(t *testing.T) {
	frame := func(flag byte, text string) string {
		return string(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(text)))) + text
	}
	framed := frame(0, `{"a":12}`) + frame(0, `{"b":"`+strings.Repeat("x", 300)+`"}`) + frame(2, "{}")
	for name, body := range map[string]string{
		"messages":           framed,
		"messages, 8 KiB":    frame(0, `{"a":"`+strings.Repeat("x", 0x2000-8)+`"}`),
		"messages, 31 KiB":   frame(0, `{"a":"`+strings.Repeat("x", 0x7B00)+`"}`),
		"the end of a call":  frame(2, `{"error":{"code":"not_found"}}`),
		"trailers of a call": frame(0x80, "grpc-status:0\r\n"),
		"MP4, 24 bytes":      "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom",
		"MP4, 32 bytes":      "\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41",
		"WebAssembly":        "\x00asm\x01\x00\x00\x00\x01\x07\x01\x60",
		"an icon":            "\x00\x00\x01\x00\x01\x00\x10\x10\x00\x00",
		"a cursor":           "\x00\x00\x02\x00\x01\x00\x20\x20\x00\x00",
		"TrueType":           "\x00\x01\x00\x00\x00\x0f\x00\x80\x00\x03",
		"numbers of 16 bits": "\x01\x00\x02\x00\x03\x00\xff\xff\x00\xd8",
		"numbers of 32 bits": "\x2a\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00",
		"zeros":              strings.Repeat("\x00", 100),
		"one zero":           "\x00",
	} {
		for _, kind := range []string{"", "text/plain", "application/connect+json", "application/grpc-web+json", "text/html"} {
			for _, whole := range []bool{true, false} {
				var header []string
				if kind != "" {
					header = []string{"Content-Type", kind}
				}
				if got, _, err := give(t, []byte(body), whole, header...); err != nil || got != body {
					t.Errorf("%s as %q: %.60q became %.60q, %v", name, kind, body, got, err)
				}
			}
		}
	}
	for _, text := range []string{"{}", "a", "[\"\U0001F600\"]", "{\r\n\t1", "a獭b", " \"é"} { // texts still are
		for _, label := range []string{"UTF-16BE", "utf-16-le", "utf-32-be", "utf-32le"} {
			coded, _ := sets[label].NewEncoder().String(text)
			if got, _, err := give(t, []byte(coded), false, "Content-Type", "application/json"); err != nil || got != text {
				t.Errorf("%q in %s: %q, %v", text, label, got, err)
			}
		}
	}
}

// TestCharsetWrongLabel: the decoding by a wrong label can be undone, so the raw bytes are scrubbed too.
// Promise: scrubbed-responses
func TestCharsetWrongLabel(t *testing.T) {
	for label := range sets {
		for name, enc := range map[string]encoding.Encoding{"ASCII": unicode.UTF8, "UTF-16": sets["UTF-16BE"], "UTF-32": sets["utf-32le"], "EBCDIC": charmap.CodePage037} {
			page, _ := enc.NewEncoder().Bytes([]byte(" !" + canary + "!!!!"))
			got, _, err := give(t, page, true, "Content-Type", "text/plain; charset="+label)
			if where := known(t, got); where != "" {
				t.Errorf("%s under the label %s: %q, %v: %s", name, label, got, err, where)
			}
		}
	}
}

// TestOtherSets: forms in other character sets are found without a label.
// Promise: every-echoed-form
func TestOtherSets(t *testing.T) {
	for label, enc := range sets {
		page, _ := enc.NewEncoder().Bytes([]byte("binary" + canary))
		for _, data := range [][]byte{page, []byte("  " + base64.StdEncoding.EncodeToString(page)), []byte(base64.RawURLEncoding.EncodeToString(append([]byte("x"), page...)))} {
			if strings.Contains(label, "32") && !bytes.Contains(data, []byte{0}) || enc == charmap.CodePage037 || enc == charmap.CodePage1047 || enc == charmap.CodePage1140 {
				if !bytes.Equal(data, page) {
					continue // UTF-32 and EBCDIC in base64 are not found
				}
			}
			got, _, err := give(t, data, true, "Content-Type", "application/octet-stream")
			if err != nil || len(got) >= len(data) {
				t.Errorf("%s: %q became %q, %v", label, data, got, err)
			}
		}
	}
}

// FuzzCharset: no bytes under any label cause a panic, or show a credential that the scrubbed raw bytes do not.
func FuzzCharset(f *testing.F) {
	var labels []string
	for label := range sets {
		labels = append(labels, label)
	}
	f.Add([]byte("\xff\xfex\x00"+canary), uint8(3), uint8(1))
	f.Add([]byte(`<meta charset="iso-2022-jp">`+canary), uint8(0), uint8(7))
	s := New(creds())
	f.Fuzz(func(t *testing.T, data []byte, which, size uint8) {
		header := []string{"Content-Type", fmt.Sprintf("text/html; charset=%s", labels[int(which)%len(labels)])}
		if which >= 200 {
			header = nil
		}
		resp := respond(-1, &pieces{data, int(size)}, header...)
		if _, err := s.ScrubResponse(resp, Options{}); err != nil {
			return
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil && !errors.Is(err, charset.ErrUnknown) {
			t.Fatal(err)
		}
		if bytes.Contains(got, []byte(canary)) {
			t.Fatalf("%q under %v gives %q", data, header, got)
		}
	})
}
