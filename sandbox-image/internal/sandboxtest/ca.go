package sandboxtest

import _ "embed" // ca.pem

// testCA is a certificate without a key: no connection is made with it.
//
//go:embed ca.pem
var testCA []byte
