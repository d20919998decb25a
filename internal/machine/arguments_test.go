// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"
)

// TestArguments holds each machine to what the package promises: it reaches nothing
// but its forwards, and its processors share a thread.
func TestArguments(t *testing.T) {
	forwards := map[string]string{"10.0.2.100:5000": "127.0.0.1:5000"}
	for name, o := range map[string]Options{
		"by hand":   {Kernel: "k", Initrd: "i", Append: "console=ttyS0"},
		"PXE":       {TFTP: "/tftp", Bootfile: "boot.ipxe", Forwards: forwards},
		"no card":   {NoCard: true, TFTP: "/tftp", Forwards: forwards},
		"read-only": {Disk: "d.raw", ReadOnly: true},
		"two":       {Processors: 2},
	} {
		args := o.arguments("127.64.0.1:2222")
		if got := value(args, "-accel"); got != "tcg,thread=single" {
			t.Errorf("%s: accelerator %q", name, got)
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
		if got, want := value(args, "-smp"), max("1", map[string]string{"two": "2"}[name]); got != want {
			t.Errorf("%s: %s processors, want %s", name, got, want)
		}
	}
}

// value is what follows a flag.
func value(args []string, flag string) string {
	i := slices.Index(args, flag)
	if i < 0 || i+1 == len(args) {
		return ""
	}
	return args[i+1]
}

func TestOwnAddress(t *testing.T) {
	a, b := OwnAddress(), OwnAddress()
	if a == b || !strings.HasPrefix(a, "127.") {
		t.Errorf("addresses %s and %s", a, b)
	}
}
