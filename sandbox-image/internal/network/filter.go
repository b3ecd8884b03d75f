package network

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

const filterTable = "filter"

// setFilter sets the policies and rules. Policies come first, so that a failure leaves every chain closed.
func setFilter(list []filterRule) error {
	ipt, err := iptables.New()
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
	for _, p := range policies {
		if err := ipt.ChangePolicy(filterTable, p.chain, p.policy); err != nil {
			return fmt.Errorf("closing %s: %w", p.chain, err)
		}
	}
	for _, chain := range []string{chainIn, chainOut} {
		if err := ipt.ClearChain(filterTable, chain); err != nil {
			return fmt.Errorf("emptying %s: %w", chain, err)
		}
	}
	for _, r := range list {
		if err := ipt.Append(filterTable, r.chain, r.spec...); err != nil {
			return fmt.Errorf("adding a rule to %s: %w", r.chain, err)
		}
	}
	// The jumps come last: a chain is used only when all its rules are in it.
	for _, j := range jumps {
		if err := ipt.AppendUnique(filterTable, j.from, "-j", j.to); err != nil {
			return fmt.Errorf("using %s: %w", j.to, err)
		}
	}
	return nil
}

// jumps are the only rules of the built-in chains.
var jumps = []struct{ from, to string }{{"INPUT", chainIn}, {"OUTPUT", chainOut}}

// verifyFilter compares the kernel's filter with the wanted one: the policies, the built-in chains, which must hold
// only the jump, and CodeForge's chains. If each, it compares these chains rule by rule, otherwise only the number of
// rules. iptables starts one process per rule, too much for a check every few seconds. No remaining process has the
// capability to change a rule.
func verifyFilter(wanted []filterRule, each bool) error {
	ipt, err := iptables.New()
	if err != nil {
		return fmt.Errorf("looking for iptables: %w", err)
	}
	var errs []error
	for _, p := range policies {
		want := []string{"-P " + p.chain + " " + p.policy}
		for _, j := range jumps {
			if j.from == p.chain {
				want = append(want, "-A "+p.chain+" -j "+j.to)
			}
		}
		got, err := ipt.List(filterTable, p.chain)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the chain %s is %q, want %q", p.chain, got, want)
		}
		errs = append(errs, err)
	}
	count := map[string]int{}
	for _, r := range wanted {
		count[r.chain]++
		if !each {
			continue
		}
		ok, err := ipt.Exists(filterTable, r.chain, r.spec...)
		if err == nil && !ok {
			err = fmt.Errorf("the chain %s lacks %s", r.chain, strings.Join(r.spec, " "))
		}
		errs = append(errs, err)
	}
	for chain, want := range count {
		list, err := ipt.List(filterTable, chain)
		if err == nil && len(list) != want+1 { // the first line is the chain itself
			err = fmt.Errorf("the chain %s has %d rules, want %d", chain, len(list)-1, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
