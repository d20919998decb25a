// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"net/netip"
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
		"KVM":       {KVM: true},
		"UEFI, CD":  {UEFI: "vars", CD: "boot.iso", Forwards: forwards},
		"stick":     {UEFI: "vars", Stick: "boot.iso"},
		"static":    {Network: Network{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Router: netip.MustParseAddr("192.0.2.1"), DNS: netip.MustParseAddr("192.0.2.2"), Address: netip.MustParseAddr("192.0.2.11")}},
	} {
		args := o.arguments("127.64.0.1:2222")
		if got := value(args, "-accel"); got != map[bool]string{false: "tcg,thread=single", true: "kvm"}[o.KVM] {
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
		if drive := "file=d.raw,format=raw,if=virtio,cache=unsafe,readonly=on"; o.ReadOnly && !slices.Contains(args, drive) {
			t.Errorf("%s: %q", name, args)
		}
		if sata := !strings.Contains(value(args, "-machine"), "sata=off"); sata != (o.CD != "") {
			t.Errorf("%s: ports of SATA: %v", name, sata)
		}
		if got, want := value(args, "-smp"), max("1", map[string]string{"two": "2"}[name]); got != want {
			t.Errorf("%s: %s processors, want %s", name, got, want)
		}
	}
}

// Cards are ports of one switch, behind the one network that there is; a network of its own
// has its router and its first address; credentials come by SMBIOS.
func TestCardsAndNetwork(t *testing.T) {
	o := Options{MAC: "52:54:00:00:00:01", MoreMACs: []string{"52:54:00:00:00:02"}, Credentials: map[string]string{"b": "2", "a": "1,"}}
	args := strings.Join(o.arguments("127.64.0.1:2222"), " ")
	for _, part := range []string{
		"-netdev user,id=net,restrict=on,hostfwd=tcp:127.64.0.1:2222-:22 -netdev hubport,id=uplink,hubid=0,netdev=net",
		"-netdev hubport,id=port0,hubid=0 -device virtio-net-pci,speed=10000,duplex=full,netdev=port0,addr=0x10,mac=52:54:00:00:00:01",
		"-netdev hubport,id=port1,hubid=0 -device virtio-net-pci,speed=10000,duplex=full,netdev=port1,addr=0x11,mac=52:54:00:00:00:02",
		"-smbios type=11,value=io.systemd.credential.binary:a=MSw= -smbios type=11,value=io.systemd.credential.binary:b=Mg==",
	} {
		if !strings.Contains(args, part) {
			t.Errorf("no %q in %s", part, args)
		}
	}
	addr := netip.MustParseAddr
	o = Options{Network: Network{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Router: addr("192.0.2.1"), DNS: addr("192.0.2.2"), Address: addr("192.0.2.11")}}
	if got, want := value(o.arguments("127.64.0.1:2222"), "-netdev"), "user,id=net,restrict=on,hostfwd=tcp:127.64.0.1:2222-192.0.2.11:22,net=192.0.2.0/24,host=192.0.2.1,dns=192.0.2.2,dhcpstart=192.0.2.11"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBootOrder: firmware that remembers another order, or none, boots a medium, then the disk,
// then the network by the first card: QEMU gives a place to one device.
func TestBootOrder(t *testing.T) {
	o := Options{UEFI: "vars", Disk: "d.raw", CD: "boot.iso", MAC: "52:54:00:00:00:01", MoreMACs: []string{"52:54:00:00:00:02"}}
	args := strings.Join(append(o.arguments("127.64.0.1:2222"), ""), " ")
	for _, part := range []string{"drive=cd,bootindex=0 ", "virtio-blk-pci,drive=disk,bootindex=1 ", "mac=52:54:00:00:00:01,bootindex=2 ", "mac=52:54:00:00:00:02 "} {
		if !strings.Contains(args, part) {
			t.Errorf("no %q in %s", part, args)
		}
	}
}

// value returns the argument after a flag.
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

// TestCables: each card's frames go to an address of their own, and the network's to the first.
func TestCables(t *testing.T) {
	o := Options{MAC: "52:54:00:00:00:0a", MoreMACs: []string{"52:54:00:00:01:0a"}, Cables: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}}
	args := strings.Join(o.network("127.64.0.1:2222"), " ")
	for _, want := range []string{"user,id=net,restrict=on,", "hubport,id=uplink,hubid=0,netdev=net", "socket,id=cable,connect=127.0.0.1:1", "hubport,id=other,hubid=0,netdev=cable",
		"socket,id=port0,connect=127.0.0.1:2", "socket,id=port1,connect=127.0.0.1:3", "netdev=port1,addr=0x11,mac=52:54:00:00:01:0a"} {
		if !strings.Contains(args, want) {
			t.Errorf("no %s in %s", want, args)
		}
	}
}

// TestArm64 is given what its board has: firmware also beside a kernel, discs by USB, no ROM for other
// processors, and what amd64 has a word for nowhere.
func TestArm64(t *testing.T) {
	for name, c := range map[string]struct {
		o          Options
		have, lack []string
	}{
		"kernel": {Options{Kernel: "k", MAC: "52:54:00:00:00:01"}, []string{"-machine virt,gic-version=max -accel tcg,thread=single -cpu neoverse-n1 ",
			"if=pflash,format=raw,unit=0,readonly=on,file=/usr/share/AAVMF/AAVMF_CODE.fd", ",romfile="}, []string{"unit=1", "xhci", "sata", "la57"}},
		"CD":    {Options{UEFI: "vars", CD: "boot.iso"}, []string{"unit=1,file=vars", "-device qemu-xhci", "-device usb-storage,drive=cd,bootindex=0"}, []string{"ide-cd"}},
		"stick": {Options{UEFI: "vars", Stick: "boot.iso", CD: "boot.iso"}, []string{"drive=stick", "drive=cd"}, nil},
		"disk":  {Options{UEFI: "vars", Disk: "d.raw", MAC: "52:54:00:00:00:01"}, []string{"virtio-blk-pci,drive=disk,bootindex=1", "romfile=,bootindex=2"}, nil},
		"host":  {Options{KVM: true}, []string{"-accel kvm -cpu host"}, []string{"neoverse"}},
		"keys":  {Options{UEFI: "vars", Secure: true}, []string{"AAVMF_CODE.ms.fd"}, []string{"smm", "cfi.pflash01"}},
	} {
		c.o.Arch = "arm64"
		args := strings.Join(c.o.arguments("127.64.0.1:2222"), " ")
		for _, part := range c.have {
			if !strings.Contains(args, part) {
				t.Errorf("%s: no %q in %s", name, part, args)
			}
		}
		for _, part := range c.lack {
			if strings.Contains(args, part) {
				t.Errorf("%s: %q in %s", name, part, args)
			}
		}
		if n := strings.Count(args, "qemu-xhci"); n > 1 {
			t.Errorf("%s: %d controllers of USB", name, n)
		}
	}
	if err := (Options{Arch: "riscv64"}).prepareFirmware(); err == nil {
		t.Error("a machine of riscv64 is made")
	}
}
