// Package convert makes a list from another list.
package convert

// Each returns the results of f for the elements of a list, in their order. It never returns nil.
func Each[From, To any](list []From, f func(From) To) []To {
	out := make([]To, len(list))
	for i, one := range list {
		out[i] = f(one)
	}
	return out
}
