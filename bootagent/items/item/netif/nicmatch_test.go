// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestFind(t *testing.T) {
	sys := t.TempDir()
	for name, to := range map[string]string{
		"class/net/eth0":  "../../devices/pci0000:00/0000:3b:00.0/net/eth0",
		"class/net/eth1":  "../../devices/pci0000:00/0000:3b:00.1/virtio3/net/eth1",
		"class/net/eth2":  "../../devices/pci0000:00/0000:3b:00.3/net/eth2",
		"class/net/veth0": "../../devices/virtual/net/veth0",
		"devices/pci0000:00/0000:3b:00.3/net/eth2/device": "../..",
		"class/net/bond0":  "../../devices/virtual/net/bond0",
		"class/net/dummy0": "../../devices/virtual/net/dummy0",
		"devices/pci0000:00/0000:3b:00.0/net/eth0/device":         "../..",
		"devices/pci0000:00/0000:3b:00.1/virtio3/net/eth1/device": "../..",
		"devices/pci0000:00/0000:3b:00.0/driver":                  "../../../bus/pci/drivers/ixgbe",
		"devices/pci0000:00/0000:3b:00.1/virtio3/driver":          "../../../../bus/virtio/drivers/virtio_net",
	} {
		if err := os.MkdirAll(filepath.Join(sys, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(sys, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"devices/pci0000:00/0000:3b:00.0/net/eth0": "52:54:00:00:00:01\n", "devices/pci0000:00/0000:3b:00.1/virtio3/net/eth1": "52:54:00:00:00:02\n",
		"devices/virtual/net/bond0": "52:54:00:00:00:01\n", "devices/virtual/net/dummy0": "52:54:00:00:00:03\n",
		// members of bond0, with its address, and with their own beside it
		"devices/pci0000:00/0000:3b:00.3/net/eth2": "52:54:00:00:00:01\n", "devices/pci0000:00/0000:3b:00.3/net/eth2/bonding_slave": "52:54:00:00:00:05\n",
		"devices/virtual/net/veth0": "52:54:00:00:00:01\n", "devices/virtual/net/veth0/bonding_slave": "52:54:00:00:00:06\n",
	} {
		if err := os.MkdirAll(filepath.Join(sys, name), 0o755); err != nil {
			t.Fatal(err)
		}
		file := "address"
		if strings.HasSuffix(name, "bonding_slave") {
			file = "perm_hwaddr"
		}
		if err := os.WriteFile(filepath.Join(sys, name, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		match spec.NICMatch
		want  string
	}{
		{spec.NICMatch{Name: "any0"}, "any0"},
		{spec.NICMatch{MAC: "52:54:00:00:00:01"}, "eth0"}, // not the bond above it
		{spec.NICMatch{MAC: "52:54:00:00:00:03"}, "dummy0"},
		{spec.NICMatch{MAC: "52:54:00:00:00:04"}, ""},
		{spec.NICMatch{MAC: "52:54:00:00:00:05"}, "eth2"},
		{spec.NICMatch{MAC: "52:54:00:00:00:06"}, "veth0"},
		{spec.NICMatch{Driver: "ixgbe"}, "eth0"},
		{spec.NICMatch{Driver: "virtio_net"}, "eth1"},
		{spec.NICMatch{PCI: "0000:3b:00.0"}, "eth0"},
		{spec.NICMatch{PCI: "0000:3b:00.1"}, "eth1"},
		{spec.NICMatch{PCI: "0000:3b:00.2"}, ""},
	} {
		if got := strings.Join(Find(sys, c.match), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.match, got, c.want)
		}
	}
}
