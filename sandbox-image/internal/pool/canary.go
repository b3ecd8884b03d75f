package pool

import "crypto/rand"

// canaryLength is the length of an AWS secret key.
const canaryLength = 40

// newCanary returns a random value for the next run of a slot, or "" if canaries are off.
//
// All interpreters prepared in a slot until a run uses one have the same canary, because a lease names the canary
// before its interpreter is known.
func (p *Pool) newCanary() string {
	if !p.cfg.Canaries {
		return ""
	}
	const letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
	random := make([]byte, canaryLength)
	_, _ = rand.Read(random) // it never fails
	// The modulo favours some letters slightly, which leaves more than 200 bits.
	for i, b := range random {
		random[i] = letters[int(b)%len(letters)]
	}
	return string(random)
}
