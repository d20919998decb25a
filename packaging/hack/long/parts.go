// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// limit bounds the time of a part, on two cores that do nothing else.
const limit = 40 * time.Minute

// parts divides tests into n parts: the longest first, each into the part that has least.
func parts(all []test, n int) [][]test {
	all = slices.SortedFunc(slices.Values(all), func(a, b test) int {
		return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(a.String(), b.String()))
	})
	divided := make([][]test, n)
	for _, t := range all {
		i := 0
		for j := range divided {
			if total(divided[j]) < total(divided[i]) {
				i = j
			}
		}
		divided[i] = append(divided[i], t)
	}
	return divided
}

func total(tests []test) (sum time.Duration) {
	for _, t := range tests {
		sum += t.takes
	}
	return sum
}

// least returns the smallest number of parts of which none is longer than the limit.
func least(all []test) (int, error) {
	for _, t := range all {
		if t.takes > limit {
			return 0, fmt.Errorf("%s takes %s, and a part %s: divide it", t, t.takes, limit)
		}
	}
	for n := 1; ; n++ {
		if longest(parts(all, n)) <= limit {
			return n, nil
		}
	}
}

func longest(divided [][]test) (d time.Duration) {
	for _, p := range divided {
		d = max(d, total(p))
	}
	return d
}

// choose returns the tests of a part such as "3/12", or all for "".
func choose(all []test, part string, least int) ([]test, error) {
	if part == "" {
		return all, nil
	}
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || part != fmt.Sprintf("%d/%d", k, n) || k < 1 || k > n || n > 1000 {
		return nil, fmt.Errorf("part %q is not K/N, such as 1/%d", part, least)
	}
	divided := parts(all, n)
	if d := longest(divided); d > limit {
		return nil, fmt.Errorf("of %d parts one takes %s, and a part may take %s: there are at least %d, such as %d/%d", n, d, limit, least, min(k, least), least)
	}
	return divided[k-1], nil
}
