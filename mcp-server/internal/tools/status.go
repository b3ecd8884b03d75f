package tools

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/hostname"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxStatuses is the largest number of pairs of host and status in a result.
const maxStatuses = 4

// checksStatus matches code that looks at the status of responses in general.
var checksStatus = regexp.MustCompile(`\.ok\b|\.status(?:_code)?\b|raise_for_status`)

// checksServerErrors matches code that treats the statuses from 500 together.
var checksServerErrors = regexp.MustCompile(`>=?\s*(?:500|499)\b`)

var (
	importsClient = regexp.MustCompile(`["']/apis/[\w-]+\.ts["']`)
	// missesErrors matches code that sends requests without a typed client, or catches errors.
	missesErrors = regexp.MustCompile(`\bfetch\b|\.raw\(|catch|allSettled|parallel|/skills/|node:|WebSocket|XMLHttp`)
)

// hintFailedResponses returns the hint on error responses that the code may have taken for data: the code and its
// output do not name the status. Code that checks statuses most likely expects a 404, but loses data if it gets a 429.
func (r runRendering) hintFailedResponses() []readertext.Text {
	// A typed client repeats a failed request, or throws. Only code that catches the error loses data.
	if importsClient.MatchString(r.code) && !missesErrors.MatchString(r.code) {
		return nil
	}
	type key struct {
		host   string
		status int
	}
	responses, failed := map[string]int{}, map[key]int{}
	for _, x := range r.outcome.Receipt.Exchanges {
		if _, err := hostname.ParsePattern(x.Host); err != nil || x.Outcome != proxyapi.OutcomeServed ||
			x.CalledTool() != "" {
			continue
		}
		responses[x.Host]++
		if x.Status >= http.StatusBadRequest {
			failed[key{x.Host, x.Status}]++
		}
	}
	maps.DeleteFunc(failed, func(k key, _ int) bool { return r.isHandled(k.host, k.status) })
	if len(failed) == 0 {
		return nil
	}
	// The most frequent failures come first, because only maxStatuses are named.
	groups := slices.SortedFunc(maps.Keys(failed), func(a, b key) int {
		return cmp.Or(failed[b]-failed[a], strings.Compare(a.host, b.host), a.status-b.status)
	})
	var list []string
	var limited, broken, other bool
	for i, k := range groups {
		limited = limited || k.status == http.StatusTooManyRequests
		broken = broken || k.status >= http.StatusInternalServerError
		other = other || k.status < http.StatusInternalServerError && k.status != http.StatusTooManyRequests
		if i < maxStatuses {
			list = append(list, fmt.Sprintf("%d of %d responses of %s had status %d",
				failed[k], responses[k.host], k.host, k.status))
		}
	}
	text := strings.Join(list, ", ")
	if n := len(groups) - maxStatuses; n > 0 {
		text += fmt.Sprintf(", and %d more statuses were errors", n)
	}
	if n := r.outcome.Receipt.Omitted; n > 0 {
		text += fmt.Sprintf(" (%d more responses are not counted)", n)
	}
	text += ". Neither the code nor its output mentions this: data may be missing."
	if limited {
		text += " After 429, wait for Retry-After, then send the request again."
	}
	if broken {
		text += " After 5xx repeat a request that only reads."
	}
	if other {
		text += " Check " + r.languageWord("response.ok", "the status") + " before you use a body."
	}
	return []readertext.Text{readertext.NewText("%TEXT", "%TEXT", text)}
}

// readsParts matches Python code that reads bodies in pieces.
var readsParts = regexp.MustCompile(`\.read1?\(\s*\w|copyfileobj`)

// hintBrokenResponses returns the hint on a response that broke off, if the code may have taken it for a whole one.
// Deno's fetch then fails. Python's http.client raises an error in read(). A loop over lines, and read(n) of a body
// with a known length, end without an error.
func (r runRendering) hintBrokenResponses(printed string) []readertext.Text {
	isHandled := strings.Contains(r.code, "IncompleteRead") && !readsParts.MatchString(r.code)
	if !r.language.IsPython() || isHandled || strings.Contains(printed, "IncompleteRead") {
		return nil
	}
	for _, x := range r.outcome.Receipt.Exchanges {
		_, err := hostname.ParsePattern(x.Host)
		if err != nil || x.Outcome != proxyapi.OutcomeFailed || x.Status == 0 || x.CalledTool() != "" {
			continue
		}
		return []readertext.Text{readertext.NewText("A response of %HOST broke off after %N bytes: data may be missing. "+
			"A loop over its lines and read(n) can end without an error; read() raises http.client.IncompleteRead.",
			"%HOST", x.Host, "%N", strconv.FormatInt(x.BytesDown, 10))}
	}
	return nil
}

// checksCalls matches code that looks at failed calls of tools.
var checksCalls = regexp.MustCompile(`catch|reject|reason|except|McpError|allSettled|\.raw\(`)

// hintFailedCalls returns the hint on failed calls of tools in a run that succeeded and did not look at them. parallel
// returns failures beside results.
func (r runRendering) hintFailedCalls() []readertext.Text {
	if r.outcome.Exit.Code != 0 || checksCalls.MatchString(r.code) {
		return nil
	}
	calls, failed := 0, 0
	for _, x := range r.outcome.Receipt.Exchanges {
		if call := x.CalledTool(); call != "" && !strings.HasPrefix(call, "$") {
			calls++
			if x.Code != "" {
				failed++
			}
		}
	}
	if failed == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of %d calls of tools failed, and the code does not look at failures. parallel returns "+
		`{status: "rejected", reason} for such a call.`, failed, calls)
	return []readertext.Text{readertext.NewText("%TEXT", "%TEXT", text)}
}

// isHandled reports whether the code most likely expects a status: the code, its output or another hint names it.
func (r runRendering) isHandled(host string, status int) bool {
	number := strconv.Itoa(status)
	word := regexp.MustCompile(`\b` + number + `\b`)
	stdout, _ := r.stdout.Text(r.limit)
	stderr, _ := r.stderr.Text(r.limit)
	// A bare number in stdout is often data, so it counts only beside a word that makes it a status.
	said := regexp.MustCompile(`(?i)(?:status|error|http|code|fail|got|->)[\w"']{0,8}[ :=(]{0,3}` + number +
		`\b|\b` + number + ` ` + http.StatusText(status))
	mayExpect := status < http.StatusInternalServerError && status != http.StatusTooManyRequests &&
		status != http.StatusRequestTimeout
	return word.MatchString(r.code) || word.MatchString(stderr) || said.MatchString(stdout) ||
		mayExpect && checksStatus.MatchString(r.code) ||
		status >= http.StatusInternalServerError && checksServerErrors.MatchString(r.code) ||
		slices.ContainsFunc(r.outcome.Receipt.Hints, func(h proxyapi.Hint) bool {
			return h.Code == proxyapi.HintRejected && h.Host == host && strings.Contains(h.Text, number)
		})
}
