// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/test/roottest"
)

// TestUnsigned: each module beside the kernel's own is looked at, packed or not, and of those one.
func TestUnsigned(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	signed := "module" + mark
	packed := string(z.EncodeAll([]byte(signed), nil))
	files := func(first string) map[string]string {
		return map[string]string{
			"usr/lib/modules/6.1/kernel/fs/a.ko": first, "usr/lib/modules/6.1/kernel/fs/b.ko": "b", "usr/lib/modules/6.1/modules.dep": "",
			"usr/lib/modules/6.1/updates/dkms/ours.ko": signed, "usr/lib/modules/6.1/updates/packed.ko.zst": packed, "usr/lib/modules/6.1/extra/vendor.ko": "v",
			"usr/lib/modules/6.0/extra/other.ko": "o",
		}
	}
	for first, want := range map[string][]string{signed: {"extra/vendor.ko"}, "a": {"extra/vendor.ko", "kernel"}} {
		got, err := Unsigned(t.Context(), roottest.New(t, files(first)), "6.1")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := Unsigned(t.Context(), roottest.New(t, files(signed)), "6.2"); err == nil {
		t.Error("a release that is not there has no modules")
	}
}
