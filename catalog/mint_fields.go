package catalog

import "github.com/codeforge-mcp/codeforge/internal/convert"

// The fields of a credential that select how it is obtained.
const (
	kindOAuth2    = "oauth2"
	kindGitHubApp = "github_app"
	kindGoogle    = "google"
	kindAWS       = "aws"
	kindHMAC      = "hmac"
	kindFetch     = "fetch"
	kindCommand   = "command"
	kindFile      = "file"
)

// fieldForm is the form of a kind's field.
type fieldForm uint8

const (
	formText    fieldForm = iota // a string
	formID                       // a string or a number
	formSecret                   // a string, or an object with value, file or env
	formList                     // a list of strings
	formTexts                    // an object of strings
	formNumber                   // a whole number
	formBoolean                  // true or false
)

type mintField struct {
	name     string
	form     fieldForm
	required bool
	example  string // a valid value in JSON, for messages about a required field, an object or a list
}

// mintKind is a kind of credential that the proxy mints or requests from a source.
type mintKind struct {
	name string
	// build checks a decoded object of the kind.
	build  func(v *configValidator, path string, m *rawMint) Mint
	fields []mintField
}

func (k mintKind) fieldNames() []string {
	return convert.Each(k.fields, func(f mintField) string { return f.name })
}

// mintKinds are the kinds that have fields, in the order of the documentation. Each kind has a file with its decoding,
// validation and identity.
func mintKinds() []mintKind {
	return []mintKind{oauth2Kind(), githubAppKind(), googleKind(), awsKind(), hmacKind(), fetchKind()}
}

func mintKindNames() []string {
	return convert.Each(mintKinds(), func(k mintKind) string { return k.name })
}

func clientCertFields() fieldSpecs[rawClientCert] {
	return fieldSpecs[rawClientCert]{
		stringField("cert", func(c *rawClientCert) *string { return &c.cert }),
		{"key", func(d *configDecoder, c *rawClientCert, f string, n *node) {
			c.key, _ = d.readMintSecret(f, `{"file": "client.key"}`, n)
		}},
	}
}
