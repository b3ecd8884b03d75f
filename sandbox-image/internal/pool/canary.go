package pool

import "crypto/rand"

// canaryLength is that of the secret key of an AWS account.
const canaryLength = 40

// newCanary is a random value for the next run of a slot, or empty.
//
// All interpreters that are prepared in a slot until a run has used one have the same canary, because a lease names it
// before its interpreter is known.
func (p *Pool) newCanary() string {
	if !p.cfg.Canaries {
		return ""
	}
	const letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
	random := make([]byte, canaryLength)
	_, _ = rand.Read(random) // it never fails
	for i, b := range random {
		random[i] = letters[int(b)%len(letters)]
	}
	return string(random)
}
