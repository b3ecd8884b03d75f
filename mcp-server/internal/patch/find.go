package patch

import "context"

// bytesPerCheck is after how many bytes ctx is checked.
const bytesPerCheck = 64 << 10

// find counts where search, which is not empty, stands in text at the start of a line, overlaps included, and says
// where first. It takes time linear in both (Knuth, Morris and Pratt): texts that repeat themselves cost no more than
// others.
func find(ctx context.Context, text, search string) (first, count int, err error) {
	if len(search) > len(text) {
		return -1, 0, ctx.Err()
	}
	border, err := borders(ctx, search)
	if err != nil {
		return -1, 0, err
	}
	first = -1
	k := 0 // so much of search ends here
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
		if at := i + 1 - len(search); k == len(search) && (at == 0 || text[at-1] == '\n') {
			if count == 0 {
				first = at
			}
			count++
		}
	}
	return first, count, nil
}

// borders says for each length of a beginning of s how long the longest shorter beginning is that it ends in.
func borders(ctx context.Context, s string) ([]int32, error) {
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
