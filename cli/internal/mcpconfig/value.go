package mcpconfig

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// keyExtractor extracts the keys from a server's values. Each becomes a credential, and its token name replaces it.
type keyExtractor struct {
	api    string
	taken  func(token string) bool
	lookup func(variable string) (string, bool)
	inputs map[string]bool

	list  []apidir.EntryCredential
	where map[string]string // by token: the variable, header or argument that held it
	notes []string
	own   map[string]bool // keys from the user's variables
}

// Typed is the value of a credential that the user must still type.
const Typed = "put_your_key_here"

// reference matches the references of these files: ${VAR}, ${VAR:-default}, ${env:VAR}, ${input:id}, {env:VAR},
// {file:path}.
var reference = regexp.MustCompile(`\$?\{(?:(env|input|file):)?([A-Za-z_][A-Za-z0-9_.:/~-]*?)(?::-([^}]*))?\}`)

// isBare reports whether a match may be any text in braces rather than a reference.
func isBare(found string) bool {
	return !strings.HasPrefix(found, "$") && !strings.Contains(found, ":")
}

// scheme matches the word before a key in a header.
var scheme = regexp.MustCompile(`(?i)^((?:bearer|token|basic|bot|apikey|api-key|key)\s+)(\S.*)$`)

// cleanValue returns a value without its keys. key is the name of the variable, header, parameter or argument. ok is
// false if the value is unknown and not needed.
func (k *keyExtractor) cleanValue(key, value string) (text string, ok bool) {
	if text, is := k.cleanObject(value); is {
		return text, true
	}
	value, missing := k.expandReferences(key, value)
	if missing != "" {
		prefix := ""
		if m := scheme.FindStringSubmatch(value + Typed); m != nil { // the value may end before the key
			prefix = m[1]
		}
		// The value is unknown, so a harmless text stands in, and only the names count.
		if k.inputs[missing] || catalog.IsLikelySecret(missing, "nobody-knows") ||
			catalog.IsLikelySecret(key, "nobody-knows") {
			return prefix + k.addCredential(key, Typed), true
		}
		k.addNote(key + " was " + missing + " of the other program's environment, which is not set here: set it in mcp if " +
			"the server needs it")
		return "", false
	}
	own := k.hasKey(value)
	if m := scheme.FindStringSubmatch(value); m != nil && (own || catalog.IsLikelySecret(key, m[2])) {
		return m[1] + k.addCredential(key, m[2]), true
	}
	if isURL(value) {
		if text := k.cleanURL(value); !k.mayLeak(value, text) {
			return text, true
		}
	}
	if own {
		return k.addCredential(key, value), true
	}
	if text, is := k.cleanObject(value); is {
		return text, true
	}
	if u, err := url.Parse(value); err == nil && u.User != nil && u.Host != "" {
		k.addNote(key +
			" has the password of a connection that is not HTTP: CodeForge cannot swap there, and a server that " +
			"opens it does not work here")
		return k.addCredential(key, value), true
	}
	if catalog.IsLikelySecret(key, value) {
		if !catalog.IsLikelySecret("", value) || !strings.ContainsAny(value, " =,;") {
			return k.addCredential(key, value), true
		}
		return k.cleanWords(key, value), true
	}
	return value, true
}

// cleanObject cleans an object of texts, such as the headers that notion-mcp-server has in one variable.
func (k *keyExtractor) cleanObject(value string) (text string, is bool) {
	var inside map[string]string
	if !strings.HasPrefix(value, "{") || json.Unmarshal([]byte(value), &inside) != nil {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(inside)) {
		inside[name], _ = k.cleanValue(name, inside[name])
	}
	line, _ := json.Marshal(inside) // strings
	return string(line), true
}

// hasKey reports whether a text contains a key from the user's variables.
func (k *keyExtractor) hasKey(text string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(k.own)), func(v string) bool { return strings.Contains(text, v) })
}

// mayLeak reports whether address may have left a part of such a key in an address. address replaces a key only if it
// is a segment of the path or the value of a parameter, and has no character that is escaped there.
func (k *keyExtractor) mayLeak(before, after string) bool {
	for v := range k.own {
		if strings.Contains(before, v) && (strings.Contains(after, v) || url.PathEscape(v) != v) {
			return true
		}
	}
	return false
}

func (k *keyExtractor) cleanWords(key, text string) string {
	separator := func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'=:,;&?/@`, r) }
	var b strings.Builder
	for len(text) > 0 {
		i := strings.IndexFunc(text, separator)
		if i == 0 {
			b.WriteByte(text[0]) // a separator is one byte
			text = text[1:]
			continue
		}
		word := text
		if i > 0 {
			word = text[:i]
		}
		text = text[len(word):]
		if catalog.IsLikelySecret("", word) {
			word = k.addCredential(key, word)
		}
		b.WriteString(word)
	}
	return b.String()
}

// cleanURL returns a URL without its keys in parameters and path segments.
func (k *keyExtractor) cleanURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	if password, has := u.User.Password(); has {
		k.addCredential("password", password)
		u.User = nil
		k.addNote("the address had a user and a password: put them into a header, as the service wants them")
	}
	for _, part := range strings.Split(u.EscapedPath(), "/") {
		if k.own[part] || catalog.IsLikelySecret("", part) {
			token := k.addCredential("path", part, "path")
			return k.cleanURL(strings.Replace(u.String(), part, token, 1))
		}
	}
	// url.Values would sort the parameters and encode them again.
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if (k.own[value] || catalog.IsLikelySecret(name, value)) && k.where[value] == "" {
			pairs[i] = name + "=" + k.addCredential(name, value, "query:"+name)
		}
	}
	u.RawQuery = strings.Join(pairs, "&")
	return u.String()
}

// expandReferences replaces references by their values, and records which come from the user. missing is the name of a
// reference without a value.
func (k *keyExtractor) expandReferences(key, value string) (text, missing string) {
	text = reference.ReplaceAllStringFunc(value, func(found string) string {
		m := reference.FindStringSubmatch(found)
		kind, name, usual := m[1], m[2], m[3]
		switch {
		case isBare(found):
			return found
		case kind == "input" || kind == "file":
			missing = name
		case strings.HasPrefix(name, "workspaceFolder"), strings.HasPrefix(name, "userHome"):
			return found
		default:
			if got, ok := k.lookup(name); ok && got != "" {
				k.addNote(cmp.Or(key, "an argument") + " is your variable " + name)
				if catalog.IsLikelySecret(name, got) && (!isURL(got) || catalog.IsLikelySecret(name, "nobody-knows")) {
					k.own[got] = true // in a URL, address finds the keys
				}
				return got
			}
			if usual == "" {
				missing = name
			}
		}
		return usual
	})
	return text, missing
}

// addCredential stores a key and returns its token name.
func (k *keyExtractor) addCredential(key, value string, surfaces ...string) string {
	const least, most = 8, 8192 // limits of the catalog
	if value != Typed && (len(value) < least || len(value) > most || strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' || r > '~'
	})) {
		k.addNote("the value of " + key +
			" is not a credential that can be found again in answers (8 to 8192 characters of " +
			"ASCII): type another one")
		value = Typed
	}
	for i, c := range k.list {
		if value != Typed && c.Value.Reveal() == value {
			k.list[i].Surfaces = mergeSurfaces(c.Surfaces, surfaces)
			return c.Name
		}
	}
	token := document.TokenName(k.api, "AUTH_TOKEN")
	if len(k.list) > 0 || k.taken(token) {
		short := strings.TrimPrefix(document.TokenName(key, ""), document.TokenName(k.api, ""))
		token = document.TokenName(k.api, strings.Trim(strings.TrimPrefix(short, "API_"), "_"))
	}
	for n := 2; k.taken(token) || k.where[token] != ""; n++ {
		token = document.TokenName(k.api, "KEY_"+string(rune('0'+n%10)))
	}
	k.where[token] = key
	k.list = append(k.list, apidir.EntryCredential{Name: token, Value: secret.New(value), Surfaces: surfaces})
	return token
}

// addLogin adds a credential for a login at a server and returns its token name.
func (k *keyExtractor) addLogin(server string) string {
	token := k.addCredential("Authorization", Typed)
	k.list[len(k.list)-1].Login = server
	return token
}

// mergeSurfaces combines the surfaces of a credential that is in several places. No surface means a header.
func mergeSurfaces(a, b []string) []string {
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	if len(a) == 0 || len(b) == 0 {
		a = append(slices.Clone(a), "header")
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

func (k *keyExtractor) addNote(text string) {
	if !slices.Contains(k.notes, text) {
		k.notes = append(k.notes, text)
	}
}
