// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestArguments holds each machine to what the package promises: it reaches nothing
// but its forwards, and its processors share a thread.
func TestArguments(t *testing.T) {
	for name, o := range map[string]Options{
		"by hand":   {Kernel: "k", Initrd: "i", Append: "console=ttyS0"},
		"PXE":       {TFTP: "/tftp", Bootfile: "boot.ipxe", Forwards: map[string]string{guestRegistry: "127.0.0.1:5000"}},
		"no card":   {NoCard: true, TFTP: "/tftp", Forwards: map[string]string{guestRegistry: "127.0.0.1:5000"}},
		"read-only": {Disk: "d.raw", ReadOnly: true},
	} {
		args := o.arguments("127.64.0.1:2222")
		if !slices.Contains(args, "tcg,thread=single") {
			t.Errorf("%s: %q", name, args)
		}
		var networks []string
		for i, arg := range args {
			if arg == "-netdev" || arg == "-nic" {
				networks = append(networks, args[i+1])
			}
		}
		switch {
		case len(networks) != 1:
			t.Errorf("%s: networks %q", name, networks)
		case o.NoCard && networks[0] != "none":
			t.Errorf("%s: it has a card: %q", name, networks)
		case !o.NoCard && !strings.HasPrefix(networks[0], "user,id=net,restrict=on,"):
			t.Errorf("%s: its network is open: %q", name, networks)
		}
		if drive := "file=d.raw,format=raw,if=virtio,cache=writethrough,readonly=on"; o.ReadOnly && !slices.Contains(args, drive) {
			t.Errorf("%s: %q", name, args)
		}
	}
}
