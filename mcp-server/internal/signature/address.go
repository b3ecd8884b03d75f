package signature

import "regexp"

// addresses are what descriptions say that are written to steer a model instead of telling it what a tool does: forms
// known from published attacks. It is no boundary, which the sandbox, the pins and the user's configuration are: it
// keeps the usual forms out of a model's sight.
var addresses = regexp.MustCompile(`(?i)` +
	`<\s*/?\s*(?:important|system|instructions?|admin|assistant|user|secret|hidden|tool_?(?:call|result|use)?|function_calls?|s|inst)\b[^>]{0,40}>` +
	`|\[/?(?:inst|system|important)\]|<\|[a-z_]{2,20}\|>|<!--` +
	`|(?:^|[\n.:;)])\s*(?:system|assistant|human|user|developer)\s*:` +
	`|\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|other|all|any|your|system|safety)\b[^.\n]{0,30}` +
	`\b(?:instructions?|prompts?|rules|messages?|tools?|guidelines|polic(?:y|ies)|restrictions)\b` +
	`|\b(?:do not|don't|never|without)\b[^.\n]{0,20}\b(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|notify(?:ing)?|show(?:ing)?|reveal(?:ing)?|ask(?:ing)?)\b` +
	`[^.\n]{0,30}\b(?:the user|user|human|anyone|this)\b` +
	`|\b(?:before|after|when|whenever)\b[^.\n]{0,30}\b(?:using|calling|use|call|invoking)\b[^.\n]{0,30}\b(?:any|every|all|other|another|this)\b[^.\n]{0,20}\btools?\b` +
	`|\b(?:you|the (?:assistant|model|agent|llm|ai))\b[^.\n]{0,12}\b(?:must|should always|have to|are required to|are now|shall)\b` +
	`|\balways\b[^.\n]{0,30}\b(?:call|use|invoke|run|prefer|include|append|pass)\b[^.\n]{0,40}\b(?:first|instead|this tool|before)\b` +
	`|\.ssh\b|\bid_(?:rsa|ed25519)\b|/etc/passwd|\bmcp\.json\b|\.env\b[^.\n]{0,30}\b(?:content|file|read)|\.aws/credentials` +
	`|\b(?:system|hidden|initial) prompt\b|\bconversation history\b|\bjailbreak|\bDAN mode\b`)

// maxAddressed bounds how much of a description is searched, in bytes: more than ever is shown.
const maxAddressed = 1 << 10

// Addressing reports whether a description is most likely written to steer the model that reads it. Characters that do
// not show count as not there.
func Addressing(description string) bool {
	description = description[:min(len(description), 4*maxAddressed)]
	clean := Clean(description, maxAddressed)
	description = description[:min(len(description), maxAddressed)]
	return addresses.MatchString(description) || clean != description && addresses.MatchString(clean)
}
