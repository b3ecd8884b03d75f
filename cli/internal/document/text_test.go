package document

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

// TestWords: the words beyond the summary, each once, without markup, and no more than there is room for.
func TestWords(t *testing.T) {
	for _, row := range []struct {
		summary string
		texts   []string
		want    string
	}{
		{"Create a droplet", []string{"To create a new Droplet, which is a **virtual machine**, send a request. See <a href=\"https://x\">this</a>.", "A droplet is a server"}, "new virtual machine send server"},
		{"", nil, ""},
		{"", []string{"it's \u202eRTL \u0007 x2 naïve"}, "rtl naïve"},
		{"", []string{strings.Repeat("x", 25) + " fine"}, "fine"},
	} {
		if got := SearchWords(row.summary, row.texts...); got != row.want {
			t.Errorf("%q: got %q, want %q", row.texts, got, row.want)
		}
	}
	var long strings.Builder
	for i := range 1000 {
		long.WriteString(strings.Repeat(string(rune('a'+i%26)), 3+i/26%20) + " ")
	}
	got := SearchWords("", long.String(), long.String(), long.String(), long.String(), long.String())
	if len(got) > operation.MaxWords || len(strings.Fields(got)) < 30 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// TestOutdated: what descriptions of real documents say of themselves, and what they say of something else.
func TestOutdated(t *testing.T) {
	for _, text := range []string{
		"*Deprecated: new integrations should prefer the `/status_updates` route*",
		"This feature was introduced in GitLab 8.15. This endpoint is deprecated and will be removed in GitLab 9.0.",
		"Duplicate. DEPRECATED and WILL BE REMOVED in 9.0",
		"watch changes to an object of kind ConfigMap. deprecated: use the 'watch' parameter with a list operation instead",
		"Note: As of July 2020, the `/item/public_token/create` endpoint is deprecated. Instead, use `/link/token/create`",
		"Marked a user as active. Deprecated and non-functional.", "`RenewToken` is deprecated. For information about",
		"Deprecated version of [RetrieveInventoryAdjustment](https://developer.example)", "Deprecated. Use /strings instead.",
		"**Note: This API has been deprecated and is no longer supported due to updates**", "List users (deprecated)", "[DEPRECATED] x",
		"Lists all.\n\nDeprecated", "This method is no longer supported.",
	} {
		if !IsDeprecated(text) {
			t.Errorf("not outdated: %s", text)
		}
	}
	for _, text := range []string{
		"", "The `rate` object is deprecated. If you're writing new API client code", "**Deprecation notice**: The `tool_name` field is deprecated",
		"Please note that pagination of the contacts has been deprecated.", "The `position` parameter is deprecated.",
		"The optional expiry for the old key is deprecated for this endpoint, so", "Linodes created with now-deprecated Types are entitled",
		"The field is planned to be deprecated on September 22", "Formatting the `created_at` values as Unix timestamps is deprecated.",
		"Lists deprecated plans.", "Lists plans. Deprecated plans are marked.", "In the legacy architecture", "use the [Get a folder](#x) endpoint instead",
	} {
		if IsDeprecated(text) {
			t.Errorf("outdated: %s", text)
		}
	}
}
