package catalog

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// apiDigest identifies the content of one API, including credential values.
type apiDigest [sha256.Size]byte

// keyRounds makes a guess at the shared secret slow: it is a password, which may be short.
const keyRounds = 200_000

// sharedSecret is empty unless several proxies share a secret.
var sharedSecret string

// SetSharedSecret derives the key of versions from a secret of several proxies, so that equal catalogs have equal
// versions at all proxies with the secret. An empty secret keeps the random key. Call it before the first catalog is
// loaded.
func SetSharedSecret(secret string) { sharedSecret = secret }

// digestKey is a random key for the life of the process, unless several proxies share one. Versions can be compared
// across loads, and reveal nothing about the credentials.
var digestKey = sync.OnceValue(func() []byte {
	if sharedSecret != "" {
		// mcp-server sees versions. If it knew the whole catalog, it could compare them with guesses at the secret.
		key, err := pbkdf2.Key(sha256.New, sharedSecret, []byte("the key of catalog versions"), keyRounds, sha256.Size)
		if err != nil {
			panic(fmt.Sprintf("deriving the key of catalog versions: %v", err)) // only invalid sizes fail
		}
		return key
	}
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		panic(fmt.Sprintf("reading randomness for the catalog's version: %v", err))
	}
	return key
})

// hashField writes one length-prefixed string, so that different lists of fields never give the same bytes.
func hashField(h hash.Hash, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
}

// contentDigest returns the digest of everything in the API.
func (a *API) contentDigest() apiDigest {
	// Without a key, the version would confirm a guess at a credential.
	h := hmac.New(sha256.New, digestKey())
	// The format %q of a list quotes each text, so that different lists never give the same bytes.
	add := func(texts ...string) { hashField(h, fmt.Sprintf("%q", texts)) }
	add(a.Name, a.Description, a.Reference, string(a.CAs), a.Types.Digest(), a.OperationsFile.Digest(), a.Stale,
		fmt.Sprint(a.Active, a.AllowHTTP, a.Compress, a.KeepETag, a.MessageFraming, a.Internal, a.Methods.Allowed != nil),
		a.Idempotency, a.Limits.String())
	add(convert.Each(a.Hosts, HostPattern.String)...)
	add(a.Methods.Restricted...)
	add(a.Methods.Allowed...)
	add(convert.Each(a.AllowPrivate, netip.Prefix.String)...)
	for _, c := range a.Credentials {
		add("credential", c.Name, c.Value.Reveal(), c.Placeholder, c.Variable)
		c.writeMint(func(s string) { add(s) })
		add(convert.Each(c.Surfaces, Surface.String)...)
	}
	if a.Limits != nil && a.Limits.Sum != nil {
		// The sentence of the limits does not quote them, so two limits may have one sentence.
		add("sum", a.Limits.Sum.Field, a.Limits.Sum.Path)
	}
	for _, r := range slices.Concat(a.Rules, a.ToolRules) {
		add("rule", fmt.Sprintf("%d %d %t %q %q %q %q", len(a.Rules), r.Then, r.ByAny, r.Methods, r.Path, r.Tools, r.GraphQL))
		for _, f := range r.Body {
			add(fmt.Sprintf("%q %v %v %q", f.Field, f.Min, f.Max, f.OneOf))
		}
	}
	if a.ClientCert != nil {
		add("certificate", string(a.ClientCert.Cert), a.ClientCert.Key.Reveal())
	}
	// The format %#v prints maps in the order of their keys, and masks secrets.
	if a.Server != nil {
		add("server", fmt.Sprintf("%#v", *a.Server))
	}
	if a.Operations != nil {
		add("operations", fmt.Sprintf("%#v", *a.Operations))
	}
	return apiDigest(h.Sum(nil))
}

// VersionOf identifies the content of some APIs, including their credentials.
func VersionOf(apis []*API) string { return versionOf(apis, nil) }

// versionOf identifies a set of APIs and further texts: the other closed host patterns and the packages.
func versionOf(apis []*API, further []string) string {
	h := hmac.New(sha256.New, digestKey())
	for _, a := range apis {
		_, _ = h.Write(a.digest[:])
	}
	// A change of the closed hosts is a change of the catalog, too.
	for _, p := range further {
		hashField(h, p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
