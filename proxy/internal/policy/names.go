package policy

import (
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// nameClaim is the effect of a field's name on its value.
type nameClaim int

const (
	noClaim   nameClaim = iota
	verbClaim           // the value is the real method if it is a standard one: the name "method" has many other meanings
	fullClaim           // every value counts as the real method
)

// overrideNames are the names that servers read as the request's real method, reduced to letters and digits. They count
// in headers, queries, forms, JSON and multipart bodies alike:
//
//	X-HTTP-Method-Override   Rack, Rails, Symfony, Laravel, Django, WordPress, ASP.NET, Express, Firebase, Google's APIs
//	X-HTTP-Method            OData, SharePoint, SAP, Express
//	X-Method-Override        IBM's servers, Express
//	X-Tunneled-Method        Catalyst, Plack
//	alf_method               Alfresco
//	__METHOD_OVERRIDE__      Flask
//
// The rest are variations that servers and gateways in use know.
var overrideNames = []string{
	"xhttpmethodoverride", "httpmethodoverride", "xhttpmethod", "xmethodoverride", "methodoverride", "xoriginalmethod",
	"xoriginalhttpmethod", "xforwardedmethod", "xtunneledmethod", "tunneledmethod", "xhttpverb", "xhttpverboverride",
	"xverboverride", "verboverride", "alfmethod", "xoverridemethod", "overridemethod", "xhttpoverride", "httpoverride",
}

// verbNames are such names too. Without a prefix (Facebook's Graph, Restlet), they count only if the value is a
// standard method. With punctuation before the name, any value counts: _method (Rack, Rails, PHP's frameworks, Spring,
// Parse), _HttpMethod (Salesforce's Apex), $httpMethod (Google). x_method is not such a name: a payment API uses it for
// the means of payment.
var verbNames = []string{
	"method", "httpmethod", "verb", "httpverb", "requestmethod", "restmethod",
	"xmethod", "xverb", "xrequestmethod", "xrestmethod",
}

// findClaim returns the claim of a name as the most lenient server reads it. Such a server decodes the name once or
// several times and cuts it at a NUL. It ignores case and punctuation, and takes the elements of lists and objects.
func findClaim(name string) nameClaim {
	best := noClaim
	// Servers may decode a name more than once.
	for range 3 {
		best = max(best, findClaimAsRead(name))
		if cut, _, found := strings.Cut(name, "\x00"); found {
			best = max(best, findClaimAsRead(cut))
		}
		next := decodeEscapes(name)
		if next == name {
			break
		}
		name = next
	}
	return best
}

// maxUnclosed is the longest rest of a name in which findClaimAsRead reads every unclosed bracket as an underscore. In
// a longer rest, it reads only the first bracket in this way.
const maxUnclosed = 256

func findClaimAsRead(name string) nameClaim {
	best, first := noClaim, true
	unclosed := len(name) - 1 - strings.LastIndexByte(name, ']') // the length of a rest without closing brackets
	for name != "" {
		part := name
		if i := strings.IndexAny(name, "[]"); i < 0 {
			name = ""
		} else {
			isOpening := name[i] == '['
			if part, name = name[:i], name[i+1:]; i > 0 && name != "" && len(name) <= unclosed {
				best = max(best, findWordClaim(part+"_"+name)) // PHP turns an unclosed bracket into an underscore
				if isOpening {
					unclosed = min(unclosed, maxUnclosed) // otherwise the work for a name would be quadratic
				}
			}
		}
		c := findWordClaim(part)
		if c == verbClaim && !first {
			c = noClaim // as in shipping[method]
		}
		best, first = max(best, c), first && part == ""
	}
	return best
}

// findWordClaim returns the claim of a name without brackets. Any characters before the letters, except spaces, count
// as punctuation.
func findWordClaim(word string) nameClaim {
	word = strings.TrimLeft(word, " \t\r\n\v\f\u00a0")
	var buf [24]byte // more than any of the names
	letters := buf[:0]
	for i := range len(word) {
		if !isAlphanumeric(word[i]) {
			continue
		}
		if len(letters) == len(buf) {
			return noClaim
		}
		letters = append(letters, word[i]|0x20) // a digit has this bit
	}
	// Most names end in another letter: this spares them the search of the lists.
	switch {
	case len(letters) == 0 || strings.IndexByte("deb", letters[len(letters)-1]) < 0: // method, override, verb
		return noClaim
	case slices.Contains(overrideNames, string(letters)):
		return fullClaim
	case !slices.Contains(verbNames, string(letters)):
		return noClaim
	case isAlphanumeric(word[0]):
		return verbClaim
	}
	return fullClaim
}

func isAlphanumeric(b byte) bool { return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' }

// decodeEscapes removes one layer of percent-encoding, including that of IIS (%u005f). It keeps a percent sign that
// begins no escape, because servers decode the rest all the same.
func decodeEscapes(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	var b strings.Builder
	for s != "" {
		n := 1
		switch {
		case s[0] == '+':
			b.WriteByte(' ')
		case s[0] == '%' && len(s) >= 6 && s[1]|0x20 == 'u' && isHexText(s[2:6]):
			c, _ := strconv.ParseUint(s[2:6], 16, 16)
			b.WriteRune(rune(c))
			n = 6
		case s[0] == '%' && len(s) >= 3 && isHexText(s[1:3]):
			c, _ := strconv.ParseUint(s[1:3], 16, 8)
			b.WriteByte(byte(c))
			n = 3
		default:
			b.WriteByte(s[0])
		}
		s = s[n:]
	}
	return b.String()
}

func isHexText(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// blankChars lists the characters that servers cut off the ends of a value.
const blankChars = " \t\r\n\v\f\x00"

// isPadding reports whether the kept part of a longer value is blank: a method may follow in the part that is not
// checked.
func isPadding(kept string, most int) bool {
	if len(kept) < most {
		return false
	}
	if i := strings.LastIndexByte(kept, '%'); i >= len(kept)-len("%u0000") {
		kept = kept[:i] // perhaps an incomplete escape
	}
	return strings.Trim(decodeEscapes(decodeEscapes(kept)), blankChars+"\"'") == ""
}

// findVerb returns the standard method that a value names, encoded or not, or "".
func findVerb(value string) string {
	for range 3 {
		if v := strings.Trim(value, blankChars+"\"'"); len(v) <= len("OPTIONS") &&
			slices.Contains(standardMethods, strings.ToUpper(v)) {
			return strings.ToUpper(v)
		}
		value = decodeEscapes(value)
	}
	return ""
}

// appendClaimed appends the method that a field claims, if any.
func appendClaimed(list []string, name, value string) []string {
	switch findClaim(name) {
	case fullClaim:
		list = append(list, value)
	case verbClaim:
		if v := findVerb(value); v != "" {
			list = append(list, v)
		}
	}
	return list
}

// HeaderOverrides lists the methods that a request's headers claim. PHP treats cookies as parameters ($_REQUEST)
// without a php.ini, as in its container images. Flight and others take the method from there.
func HeaderOverrides(h http.Header) []string {
	var out []string
	for name, values := range h {
		inURL := strings.HasSuffix(name, "-Url") || strings.HasSuffix(name, "-Uri")
		for _, v := range values {
			out = appendClaimed(out, name, v)
			if strings.EqualFold(name, "Cookie") {
				for pair := range splitCookies(v) {
					out = append(out, ParameterOverrides(strings.TrimLeft(pair, blankChars))...)
				}
			}
			// IIS and Symfony take the URL from X-Original-URL.
			if _, query, found := strings.Cut(v, "?"); inURL && found {
				out = append(out, ParameterOverrides(query)...)
			}
		}
	}
	return out
}

// splitCookies yields the pairs of a Cookie header.
func splitCookies(v string) iter.Seq[string] {
	return strings.FieldsFuncSeq(v, func(r rune) bool { return r == ';' || r == ',' })
}

// ParameterOverrides lists the methods that the parameters of a query or form claim. Both & and ; separate parameters.
func ParameterOverrides(query string) []string {
	var out []string
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		out = appendClaimed(out, name, decodeEscapes(value))
		if isHeadersName(name) {
			for line := range strings.FieldsFuncSeq(decodeEscapes(decodeEscapes(value)),
				func(r rune) bool { return r == '\r' || r == '\n' }) {
				header, content, _ := strings.Cut(line, ":")
				out = appendClaimed(out, header, strings.Trim(content, blankChars))
			}
		}
	}
	return out
}

// PathOverrides lists the methods that a path claims to servers that turn the decoded path into a query, as rewrite
// rules of nginx and Apache do.
func PathOverrides(escaped string) []string {
	var out []string
	for range 4 {
		if i := strings.IndexAny(escaped, "?&;"); i >= 0 {
			out = append(out, ParameterOverrides(escaped[i+1:])...)
		}
		next := decodeEscapes(escaped)
		if next == escaped {
			break
		}
		escaped = next
	}
	return out
}

// isHeadersName reports whether a parameter is $httpHeaders, from which Google's APIs take headers of the request.
func isHeadersName(name string) bool {
	letters := strings.Map(func(r rune) rune {
		if r > '~' || !isAlphanumeric(byte(r)) {
			return -1
		}
		return r
	}, decodeEscapes(decodeEscapes(name)))
	return strings.EqualFold(letters, "httpheaders")
}
