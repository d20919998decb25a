// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

func TestNatural(t *testing.T) {
	want := "1 2 10 n n1 n01 n2 n9-10 n10 n10-2 n10-10 n99999999999999999998 n99999999999999999999 r1 r1a r1b rack"
	names := strings.Fields(want)
	slices.Reverse(names)
	if got := strings.Join(Names(slices.Values(names)), " "); got != strings.ReplaceAll(want, "n1 n01", "n01 n1") {
		t.Errorf("%s", got)
	}
}

// Whatever names are given, they have one order: sorting needs that.
func FuzzNatural(f *testing.F) {
	f.Add("n1", "n01", "n2")
	f.Add("a10b", "a9", "a10")
	f.Add("", "0", "00")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if Natural(a, b) != -Natural(b, a) || (Natural(a, b) == 0) != (a == b) {
			t.Errorf("%q, %q", a, b)
		}
		list := []string{a, b, c}
		slices.SortFunc(list, Natural)
		if cmp.Compare(Natural(list[0], list[2]), 0) > 0 {
			t.Errorf("%q is not sorted", list)
		}
	})
}
