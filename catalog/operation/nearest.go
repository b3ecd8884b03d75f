package operation

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// NearestOperation returns the operation that a request most likely meant, or "".
func (r *Routes) NearestOperation(method, path string) string {
	if r == nil {
		return ""
	}
	return NearestKey(method, path, len(r.keys), func(i int) string { return r.keys[i] })
}

// farthest is the largest distance of the nearest operation. See pathDistance.
const farthest = 1.3

// maxWork bounds the comparisons of NearestOperation, in pairs of characters. An author could otherwise choose paths
// and templates that take long.
const maxWork = 1 << 23

// NearestKey returns the key, such as "GET /v1/refunds/{id}", that a request most likely meant, or "". If there are
// very many keys, it compares only the first ones.
func NearestKey(method, path string, keys int, key func(int) string) string {
	best, least := "", farthest
	asked := strings.Split(strings.Trim(path, "/"), "/")
	if len(path) > MaxPath || len(asked) > maxSegments {
		return ""
	}
	work := maxWork
	for i := 0; i < keys && work > 0; i++ {
		m, template, _ := strings.Cut(key(i), " ")
		d := pathDistance(asked, template, least, &work)
		// The request may lack the base path.
		if _, rest, ok := strings.Cut(strings.TrimPrefix(template, "/"), "/"); ok {
			d = min(d, 0.5+pathDistance(asked, rest, least, &work))
		}
		if m != method {
			d += 0.3
		}
		if d < least {
			best, least = key(i), d
		}
	}
	return best
}

// pathDistance measures the difference between a path and a template. A segment more or less counts 1, another word up
// to 2, and a value for a parameter a little. It deducts its work from work.
func pathDistance(asked []string, template string, limit float64, work *int) float64 {
	d, i := 0.0, 0
	for segment := range strings.SplitSeq(strings.Trim(template, "/"), "/") {
		*work -= 16 + len(segment)
		switch {
		case i >= len(asked):
			d++
		case segment == asked[i]:
		case strings.Contains(segment, "{") && matchesParts(splitParameters(segment), asked[i]):
			d += 0.05
		case strings.Contains(segment, "{"):
			d++
		default:
			// Above the limit the exact distance does not matter.
			d += wordDistance(segment, asked[i], limit-d, work)
		}
		if d >= limit {
			return d
		}
		i++
	}
	if i < len(asked) {
		d += float64(len(asked) - i)
	}
	return d
}

// wordDistance returns the difference of two words, from 0 to 2. At the limit it may return less than the difference.
func wordDistance(a, b string, limit float64, work *int) float64 {
	most := max(len(a), len(b))
	slips := min(most, int(limit*float64(most)/2)+1)
	if len(a)-len(b) >= slips || len(b)-len(a) >= slips {
		return 2 * float64(slips) / float64(most)
	}
	*work -= min(len(a), 255) * min(len(b), 255)
	return 2 * float64(typo.CountSlips(strings.ToLower(a), strings.ToLower(b), slips)) / float64(most)
}

// MatchesTemplate reports whether a path matches a template. It is for hints; Routes decides which requests are
// allowed.
func MatchesTemplate(template, path string) bool {
	template, path = strings.Trim(template, "/"), strings.Trim(path, "/")
	for {
		want, rest, more := strings.Cut(template, "/")
		got, behind, goes := strings.Cut(path, "/")
		switch {
		case strings.HasPrefix(want, "{") && strings.HasSuffix(want, "+}"):
			return true
		case want != got && (!strings.Contains(want, "{") || !matchesParts(splitParameters(want), got)):
			return false
		case !more || !goes:
			return more == goes
		}
		template, path = rest, behind
	}
}
