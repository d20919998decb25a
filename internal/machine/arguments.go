// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

func (o Options) arguments(ssh string) []string {
	args := append([]string{"-name", o.Name, "-machine", o.board()}, o.accelerator()...)
	args = append(args,
		"-smp", fmt.Sprint(cmp.Or(o.Processors, 1)), "-m", fmt.Sprint(cmp.Or(o.Memory, 1024)),
		"-nodefaults", // no screen and no CD: a guest has no drivers to load for what nobody uses
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-device", "virtio-rng-pci",
	)
	if o.UUID != "" {
		args = append(args, "-uuid", o.UUID)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Credentials)) {
		text := base64.StdEncoding.EncodeToString([]byte(o.Credentials[name])) // which has no comma, where QEMU's options end
		args = append(args, "-smbios", "type=11,value=io.systemd.credential.binary:"+name+"="+text)
	}
	args = append(args, o.network(ssh)...)
	if o.Disk != "" {
		// What the guest has written is in the host's page cache, which outlives us: to
		// flush that to a disk of the host takes long and proves nothing.
		drive, device := "file="+o.Disk+",format=raw,if=virtio,cache=unsafe", []string(nil)
		if o.UEFI != "" { // before the network, also where the firmware's variables do not name it
			drive, device = "file="+o.Disk+",format=raw,if=none,id=disk,cache=unsafe", []string{"-device", "virtio-blk-pci,drive=disk,bootindex=1"}
		}
		if o.ReadOnly {
			drive += ",readonly=on"
		}
		args = append(append(args, "-drive", drive), device...)
	}
	if o.Kernel != "" {
		args = append(args, "-kernel", o.Kernel, "-initrd", o.Initrd, "-append", o.Append)
	} else if o.TFTP != "" {
		args = append(args, "-boot", "n")
	}
	args = append(args, o.media()...)
	return append(args, o.Extra...)
}

// media are the firmware, where it is UEFI, and what it starts from first.
func (o Options) media() []string {
	args, cd := o.flash(), boardOf(o.Arch).cd
	if usb := strings.HasPrefix(cd, "usb"); o.Stick != "" || o.CD != "" && usb {
		args = append(args, "-device", "qemu-xhci")
	}
	if o.CD != "" {
		args = append(args, "-drive", "if=none,id=cd,format=raw,readonly=on,media=cdrom,file="+o.CD, "-device", cd)
	}
	if o.Stick != "" {
		args = append(args, "-drive", "if=none,id=stick,format=raw,file="+o.Stick, "-device", "usb-storage,drive=stick,removable=on,bootindex=0")
	}
	return args
}

// own counts the addresses that this process has taken.
var own atomic.Int32

// OwnAddress returns an address of the loopback that no other process listens on, and none
// connects from: QEMU binds it by itself, some time later, when the kernel may have given a
// free port of 127.0.0.1 away. The host is this process's own by its PID, which has 22
// bits; the port is below those that the kernel gives.
func OwnAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16&63, pid>>8&255, pid&255, 2200+own.Add(1))
}

// Network describes the network that a machine's cards are plugged into: one link with a router,
// which gives addresses by DHCP and leads nowhere. The zero value is QEMU's own, 10.0.2.0/24, where
// the first card that asks gets 10.0.2.15.
type Network struct {
	Prefix  netip.Prefix // IPv4
	Router  netip.Addr   // in it, with DHCP
	DNS     netip.Addr   // in it; nobody answers there
	Address netip.Addr   // the first that DHCP gives, and the one whose port 22 [Machine.Login] dials
}

// options are those of QEMU's user network.
func (n Network) options() string {
	if !n.Prefix.IsValid() {
		return ""
	}
	return fmt.Sprintf(",net=%s,host=%s,dns=%s,dhcpstart=%s", n.Prefix, n.Router, n.DNS, n.Address)
}

// guest is the guest's side of a forward to its port 22: an empty address is the first
// that DHCP gives.
func (n Network) guest() string {
	if !n.Prefix.IsValid() {
		return ""
	}
	return n.Address.String()
}

// network is the cards and the user network behind them, which reaches nothing but the
// forwards.
func (o Options) network(ssh string) []string {
	if o.NoCard {
		return []string{"-nic", "none"}
	}
	network := fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:%s-%s:22%s", ssh, o.Network.guest(), o.Network.options())
	if o.TFTP != "" {
		network += ",tftp=" + o.TFTP + ",bootfile=" + o.Bootfile
	}
	for guest, host := range o.Forwards {
		addr, port, _ := strings.Cut(host, ":")
		network += fmt.Sprintf(",guestfwd=tcp:%s-cmd:busybox nc %s %s", guest, addr, port)
	}
	if len(o.Cables) > 0 {
		return append([]string{"-netdev", network, "-netdev", "hubport,id=uplink,hubid=0,netdev=net",
			"-netdev", "socket,id=cable,connect=" + o.Cables[0], "-netdev", "hubport,id=other,hubid=0,netdev=cable"}, o.cabled()...)
	}
	if len(o.MoreMACs) == 0 {
		return []string{"-netdev", network, "-device", o.card("net", 0, o.MAC)}
	}
	args := []string{"-netdev", network, "-netdev", "hubport,id=uplink,hubid=0,netdev=net"}
	for i, mac := range append([]string{o.MAC}, o.MoreMACs...) {
		args = append(args, "-netdev", fmt.Sprintf("hubport,id=port%d,hubid=0", i), "-device", o.card(fmt.Sprintf("port%d", i), i, mac))
	}
	return args
}

// card is the machine's card of a number, plugged into a network. It stands in a late slot: one
// among the further arguments is found first, and takes the name eth0. It has a speed, as
// those of metal have: without one it takes no part in a bond by LACP.
func (o Options) card(network string, number int, mac string) string {
	const slot = 0x10
	device := cmp.Or(o.Card, "virtio-net-pci,speed=10000,duplex=full")
	return fmt.Sprintf("%s,netdev=%s,addr=%#x,mac=%s%s", device, network, slot+number, mac, o.boots(number))
}

// boots returns the options of a card for the ROM of iPXE, which boots by itself, and of the
// firmware's order: with a disk that has a place there, the first card has the next.
func (o Options) boots(card int) string {
	switch {
	case o.Kernel != "", boardOf(o.Arch).always && (o.Disk == "" || card > 0): // the ROM is for other processors
		return ",romfile="
	case boardOf(o.Arch).always:
		return ",romfile=,bootindex=2"
	case o.UEFI != "" && o.Disk != "" && card == 0:
		return ",bootindex=2"
	}
	return ""
}

// cabled are cards whose cables lead out of QEMU: each frame is sent behind its length.
func (o Options) cabled() (args []string) {
	for i, mac := range append([]string{o.MAC}, o.MoreMACs...) {
		args = append(args, "-netdev", fmt.Sprintf("socket,id=port%d,connect=%s", i, o.Cables[1+i]), "-device",
			o.card(fmt.Sprintf("port%d", i), i, mac))
	}
	return args
}
