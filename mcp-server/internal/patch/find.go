package patch

import "context"

// bytesPerCheck is the number of bytes between two checks of ctx.
const bytesPerCheck = 64 << 10

// findLines returns the first position of search in text at the start of a line, and the number of such positions,
// overlaps included. search must not be empty. The time is linear in both, even if they are repetitive (Knuth, Morris
// and Pratt).
func findLines(ctx context.Context, text, search string) (first, count int, err error) {
	if len(search) > len(text) {
		return -1, 0, ctx.Err()
	}
	border, err := prefixBorders(ctx, search)
	if err != nil {
		return -1, 0, err
	}
	first = -1
	k := 0 // length of the prefix of search that ends here
	for i := range len(text) {
		if i%bytesPerCheck == 0 && ctx.Err() != nil {
			return -1, 0, ctx.Err()
		}
		for k > 0 && (k == len(search) || search[k] != text[i]) {
			k = int(border[k])
		}
		if search[k] == text[i] {
			k++
		}
		// Only whole lines match: SEARCH starts at a line start.
		if at := i + 1 - len(search); k == len(search) && (at == 0 || text[at-1] == '\n') {
			if count == 0 {
				first = at
			}
			count++
		}
	}
	return first, count, nil
}

// prefixBorders returns, for each length of a prefix of s, the length of its longest proper prefix that is also its
// suffix.
func prefixBorders(ctx context.Context, s string) ([]int32, error) {
	border := make([]int32, len(s)+1)
	k := 0
	for i := 1; i < len(s); i++ {
		if i%bytesPerCheck == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for k > 0 && s[k] != s[i] {
			k = int(border[k])
		}
		if s[k] == s[i] {
			k++
		}
		border[i+1] = int32(k) //nolint:gosec // a skill is far below 2 GiB
	}
	return border, nil
}
