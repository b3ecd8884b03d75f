package network

import (
	"errors"
	"fmt"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// SetUp configures the network namespace for the slots of n and verifies the result. It is idempotent and needs
// NET_ADMIN.
func SetUp(n Size) error {
	dev, err := findDevice(n.Network)
	if err != nil {
		return err
	}
	// The filter comes first: an address without the filter would let code out.
	if err := setFilter(filterRules(n, dev.Attrs().Name)); err != nil {
		return err
	}
	if err := setNetwork(n, dev); err != nil {
		return err
	}
	return VerifyKernel(n)
}

// VerifyKernel checks the kernel's configuration for the slots of n. Like SetUp it needs NET_ADMIN.
func VerifyKernel(n Size) error { return verifyKernel(n, true) }

// VerifyQuick is Verify for a healthcheck: it counts the filter's rules instead of comparing each rule.
func VerifyQuick(n Size) error { return verifyKernel(n, false) }

// CheckInterface checks that the interface with the sandbox's address exists.
func CheckInterface(n slot.Network) error {
	_, err := findDevice(n)
	return err
}

func verifyKernel(n Size, each bool) error {
	dev, err := findDevice(n.Network)
	if err != nil {
		return err
	}
	if err := errors.Join(verifyNetwork(n, dev), verifyFilter(filterRules(n, dev.Attrs().Name), each)); err != nil {
		return fmt.Errorf("checking the network of the slots: %w", err)
	}
	return nil
}
