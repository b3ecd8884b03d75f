package egress_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// words are the texts that mutations insert, by the syntax that gives them a meaning.
var words = map[string][]string{
	"json": {
		`"`, `'`, `\`, `,`, `:`, `{`, `}`, `[`, `]`, `/*`, `*/`, `//`, `#`, "\n", "\r", " ", "\t", "\x00", "\x0b",
		"\ufeff", "\u2028", `\u0022`, `\u0000`, `\x22`, `\"`, `\\`, "`", `NaN`, `null`, `1`, `0x1`, `+`, `-`, `;`, `=`,
		`<!--`, "\xff", "\xc3", `"client_secret":`, `"comment":`, `client_secret`, `"NAME"`, `NAME`, `"":`,
		`"_method":"DELETE"`, `,"a":1`,
	},
	"form": {
		"&", ";", "=", "%", "+", "[", "]", ".", " ", "\n", "\r\n", "\t", "\x00", "%00", "%26", "%3d", "%3b", "%5b",
		"%20", "%zz", "%a", "%ff", "\xff", "%u0026", "%c1%9f", "#", "?", "/", "\\", "..", ";a=", "&a=",
		"client_secret=", "comment=", "key=", "q=", "NAME", "[]", "[a]", "{", `"`, "\ufeff", "_method=DELETE",
		"method=DELETE", "_charset_=utf-16&", "utf8=%26%2310003%3B&",
	},
	"multipart": {
		`"`, `'`, `;`, `=`, `\`, `*`, `,`, ` `, "\t", "\r\n", "\n", "\r", "\x00", "\xff", "\ufeff", "(", ")", ":", "%22",
		"`", "-", "--", "--xyz", "--xyz--", "\r\n--xyz\r\n", "\r\n--xyz--\r\n",
		`name=`, `name="comment"`, `; name="comment"`, `; name*=utf-8''comment`, `; name*0="comment"`,
		`filename=`, `; filename="a"`, `; filename*=utf-8''a`, "form-data", `name="client_secret"`, "NAME", "DELETE",
		"\r\nContent-Disposition: form-data; name=\"comment\"", "\r\nContent-Type: text/plain; charset=utf-16le", "\r\n ",
		"\r\nContent-Transfer-Encoding: base64", "\r\nContent-Type: application/octet-stream",
		"_charset_", "_method", ".method", "[a]", "[]",
	},
	"head": {
		" ", "\t", ",", ";", `"`, `'`, `\`, "=", ":", "*", "%00", "\xff",
		"; charset=utf-16le", "; charset=utf-7", "; charset=cp037",
		"; boundary=aaa", "; boundary*=utf-8''aaa", "; boundary=xyz",
		"\r\nContent-Type: application/json", "\r\nContent-Type: text/plain",
		"\r\nContent-Type: application/x-www-form-urlencoded", "\r\nContent-Type: multipart/form-data; boundary=xyz",
		"\r\nContent_Type: application/x-www-form-urlencoded", "\r\nX-HTTP-Method-Override: DELETE",
		"\r\nConnection: Content-Type",
		"\r\nContent-Encoding: identity", "NAME", "_", "-", "/", "//", "..", "?", "&", "+",
	},
}

// dictionary returns the texts to insert into a case of a group.
func dictionary(group string) []string {
	switch group {
	case "json", "deep":
		return words["json"]
	case "multipart":
		return words["multipart"]
	case "override":
		return slices.Concat(words["json"], words["form"], words["multipart"])
	}
	return words["form"]
}

// Mutate changes a case, or combines two, in one to four small steps.
func Mutate(rng *rand.Rand, cases []Case) Case {
	c := cases[rng.IntN(len(cases))]
	from := c.Group + "/" + c.Name
	if other := cases[rng.IntN(len(cases))]; other.Group == c.Group && len(c.body) > 0 && len(other.body) > 0 {
		c.body = slices.Concat(c.body[:rng.IntN(len(c.body))], other.body[rng.IntN(len(other.body)):])
		from += " and " + other.Name
	}
	for range 1 + rng.IntN(4) {
		if len(c.body) == 0 || rng.IntN(4) == 0 {
			c.head = mutateHead(rng, c)
		} else {
			c.body = change(rng, c.body, dictionary(c.Group))
		}
	}
	return Case{Group: "mutated", Name: from, API: c.API, Differs: c.Differs, head: c.head, body: c.body}
}

// mutateHead mutates a head, except the method, the version and the end.
func mutateHead(rng *rand.Rand, c Case) []byte {
	line, fields, _ := bytes.Cut(c.head, []byte("\r\n"))
	method, rest, _ := bytes.Cut(line, []byte(" "))
	cut := bytes.LastIndex(rest, []byte(" HTTP/1."))
	if cut < 1 { // an earlier change broke the line
		return c.head
	}
	target, version := rest[:cut], rest[cut:]
	if len(fields) < 3 || rng.IntN(2) == 0 {
		target = slices.Concat([]byte("/"), change(rng, target[1:], slices.Concat(words["form"], words["head"])))
	} else {
		fields = append(change(rng, bytes.TrimSuffix(fields, []byte("\r\n")), words["head"]), "\r\n"...)
	}
	return slices.Concat(method, []byte(" "), target, version, []byte("\r\n"), fields)
}

// change makes one small change.
func change(rng *rand.Rand, b []byte, dictionary []string) []byte {
	word := []byte(dictionary[rng.IntN(len(dictionary))])
	if len(b) == 0 {
		return word
	}
	at := spot(rng, b)
	end := min(len(b), at+1+rng.IntN(8))
	switch rng.IntN(8) {
	default:
		return slices.Insert(slices.Clone(b), at, word...)
	case 0:
		return slices.Delete(slices.Clone(b), at, end)
	case 1:
		return slices.Concat(b[:at], word, b[min(at+1, len(b)):])
	case 2: // a piece repeated elsewhere
		return slices.Insert(slices.Clone(b), spot(rng, b), b[at:min(len(b), at+1+rng.IntN(40))]...)
	case 3: // a byte escaped
		if at == len(b) {
			return b
		}
		forms := []string{"%%%02x", `\u%04x`, `\x%02x`, `\%c`}
		return slices.Concat(b[:at], fmt.Appendf(nil, forms[rng.IntN(len(forms))], b[at]), b[at+1:])
	case 4: // another case
		return slices.Concat(b[:at], bytes.ToUpper(b[at:end]), b[end:])
	}
}

// spot returns a position in b, mostly next to a character with a meaning.
func spot(rng *rand.Rand, b []byte) int {
	if rng.IntN(4) > 0 {
		var places []int
		for i, c := range b {
			if strings.IndexByte("\"'\\,:{}[]&;=%\r\n -/?*", c) >= 0 {
				places = append(places, i, i+1)
			}
		}
		if len(places) > 0 {
			return places[rng.IntN(len(places))]
		}
	}
	return rng.IntN(len(b) + 1)
}

// Minimise removes parts of a case while bad stays true. It calls bad at most tries times.
func Minimise(c Case, tries int, bad func(Case) bool) Case {
	for size := max(len(c.body), len(c.head)) / 2; size > 0 && tries > 0; size /= 2 {
		for at := 0; at+size <= len(c.body) && tries > 0; tries-- {
			smaller := c
			smaller.body = slices.Concat(c.body[:at], c.body[at+size:])
			if bad(smaller) {
				c = smaller
			} else {
				at += size
			}
		}
		line := bytes.Index(c.head, []byte("\r\n")) + 2
		for at := line; at+size <= len(c.head)-2 && tries > 0; tries-- {
			smaller := c
			smaller.head = slices.Concat(c.head[:at], c.head[at+size:])
			if bad(smaller) {
				c = smaller
			} else {
				at += size
			}
		}
	}
	return c
}
