// SPDX-License-Identifier: Apache-2.0

package tunable

import "testing"

func TestSame(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"4096\t131072\t6291456", "4096 131072 6291456", true},
		{"4096 131072 6291456", "4096 131072 6291457", false},
		{"1 2", "12", false}, // Divingbell compared with all blanks taken out
		{"", "", true},
		{"", " ", true},
		{"", "0", false},
		{"16", "0x10", true},
		{"8", "010", true},
		{"-1", "-1", true},
		{"4294967295", "-1", false},
		{"1000", "1_000", false},
		{"8", "0b1000", false},
		{"8080,9148-9150", "9148,9149,9150,8080", true},
		{"1-3", "1,3", false},
		{"3-1", "1-3", false},
		{"a=b=c", "a=b=c", true},
		{"a=b=c", "a=b", false},
		{"|/bin/core %p", "|/bin/core   %p", true},
		{"2e+06", "2000000", false},
	} {
		if got := Same(tc.a, tc.b); got != tc.want {
			t.Errorf("Same(%q, %q) = %v", tc.a, tc.b, got)
		}
		if Same(tc.a, tc.b) != Same(tc.b, tc.a) {
			t.Errorf("Same(%q, %q) depends on the order", tc.a, tc.b)
		}
	}
}

func FuzzSame(f *testing.F) {
	f.Add("1,3-5", "3-5,1")
	f.Add("0x10 010", "16 8")
	f.Fuzz(func(t *testing.T, a, b string) {
		if !Same(a, a) || Same(a, b) != Same(b, a) {
			t.Fatalf("Same is not an equivalence for %q and %q", a, b)
		}
	})
}
