// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/oci/trust"
)

func TestLook(t *testing.T) {
	sys := t.TempDir()
	for name, text := range map[string]string{
		"class/net/eth0/address":                   "52:54:00:AA:00:01\n",
		"class/net/eth0/device/vendor":             "",
		"class/net/eth1/address":                   "52:54:00:aa:00:02\n",
		"class/net/eth1/device/vendor":             "",
		"class/net/eth2/address":                   "52:54:00:aa:00:01\n", // the bond's
		"class/net/eth2/device/vendor":             "",
		"class/net/eth2/bonding_slave/perm_hwaddr": "52:54:00:aa:00:03\n",
		"class/net/lo/address":                     "00:00:00:00:00:00\n",
		"class/dmi/id/product_uuid":                "4C4C4544-0000-2010-8020-80C04F202020\n",
	} {
		path := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := Look(CommandLine(`quiet BOOTIF=01-52-54-00-aa-00-02 caisson.node=first caisson.node=superhost dyndbg="file a +p" `), sys)
	want := trust.Identity{
		Node:  "superhost",
		MACs:  []string{"52:54:00:aa:00:02", "52:54:00:aa:00:01", "52:54:00:aa:00:03"},
		UUIDs: []string{"4c4c4544-0000-2010-8020-80c04f202020"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFillerUUIDsAreNoIdentity(t *testing.T) {
	for _, uuid := range []string{"00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009", "Not Settable", ""} {
		sys := t.TempDir()
		dir := filepath.Join(sys, "class/dmi/id")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "product_uuid"), []byte(uuid), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Look(nil, sys).UUIDs; got != nil {
			t.Errorf("UUID %q was taken: %v", uuid, got)
		}
	}
}

func FuzzCommandLine(f *testing.F) {
	f.Add(`a b="c d" e`)
	f.Add(`"open`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, w := range CommandLine(text) {
			if w == "" {
				t.Error("an empty word")
			}
		}
	})
}
