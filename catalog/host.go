package catalog

import "github.com/codeforge-mcp/codeforge/internal/hostname"

// Host is a normalised host name; see hostname.Parse.
type Host = hostname.Host

// HostPattern is an exact host name or a one-label wildcard, normalised. The zero pattern matches nothing.
type HostPattern = hostname.Pattern

// ParseHost normalises a host name once, or refuses it; see hostname.Parse.
func ParseHost(s string) (Host, error) { return hostname.Parse(s) }

// ParseHostPattern reads one entry of "domains"; see hostname.ParsePattern.
func ParseHostPattern(s string) (HostPattern, error) { return hostname.ParsePattern(s) }
