// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

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
