// SPDX-License-Identifier: Apache-2.0

package disk

import "testing"

// TestDescribe: what a disk does not say of itself is left out, as a virtual one says no model.
func TestDescribe(t *testing.T) {
	b := newBench(t)
	b.add(t, "vda", 8<<20, map[string]string{"device/model": "", "serial": "ABC"})
	b.add(t, "sdb", 8<<20, map[string]string{"device/model": "SAMSUNG", "serial": "DEF"})
	b.add(t, "vdc", 8<<20, map[string]string{"device/model": ""})
	for name, want := range map[string]string{
		"vda": b.dev + "/vda 8.4 MB, abc: nothing",
		"sdb": b.dev + "/sdb 8.4 MB, model SAMSUNG, def: nothing",
		"vdc": b.dev + "/vdc 8.4 MB: nothing",
	} {
		target, err := b.finder(nil).Target(b.dev + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Describe(); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
