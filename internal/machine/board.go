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

// board names the parts of machines of one architecture.
type board struct {
	qemu, pkg string // QEMU's program, and Debian's package with it
	machine   string // QEMU's word for the board
	processor string // an emulated one
	console   string // the serial line, as kernels call it
	cd        string // device of a drive for discs
	always    bool   // its machines have UEFI, whatever starts them

	firmware, firmwarePkg string // how the names of the firmware's files begin, and Debian's package with them
	code, variables       string // how they go on
	secure, snakeoil      string // the same, where only what is signed starts
}

// boards are those that a machine may have, by Debian's names of architectures.
var boards = map[string]board{
	"amd64": {qemu: "qemu-system-x86_64", pkg: "qemu-system-x86", console: "ttyS0", cd: "ide-cd,drive=cd,bootindex=0",
		// Without what no guest uses: each port is a driver to load, and events that udev answers.
		machine: "q35,graphics=off,smbus=off,vmport=off,hpet=off,i8042=off",
		// Without what costs an emulator much and gives a guest nothing: a fifth level of page tables to walk,
		// moves of strings byte by byte in place of registers, marks around each access to the memory of users,
		// and virtual machines, for which udev would load kvm.
		processor: "max,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off,svm=off",
		firmware:  "/usr/share/OVMF/OVMF_", firmwarePkg: "ovmf",
		code: "CODE_4M.fd", variables: "VARS_4M.fd", secure: "CODE_4M.secboot.fd", snakeoil: "VARS_4M.snakeoil.fd"},

	// Servers of arm64 have UEFI and describe themselves by ACPI and SMBIOS. Without firmware this board has
	// neither, so that one with a kernel by hand has it, too. The processor is one of servers without signed
	// pointers, which take an emulator most of its time; a BMC's virtual drive for discs is USB.
	"arm64": {qemu: "qemu-system-aarch64", pkg: "qemu-system-arm", console: "ttyAMA0", always: true,
		machine: "virt,gic-version=max", processor: "neoverse-n1", cd: "usb-storage,drive=cd,bootindex=0",
		firmware: "/usr/share/AAVMF/AAVMF_", firmwarePkg: "qemu-efi-aarch64",
		code: "CODE.fd", variables: "VARS.fd", secure: "CODE.ms.fd", snakeoil: "VARS.snakeoil.fd"},
}

// usual is the architecture of a machine that names none.
const usual = "amd64"

func boardOf(arch string) board { return boards[cmp.Or(arch, usual)] }

// SerialLine is how kernels of an architecture call the serial line that a machine has.
func SerialLine(arch string) string { return boardOf(arch).console }

// accelerator are the arguments by which guests run on the host's processor, or on an emulated one.
//
// One thread runs all emulated processors. With a thread each, QEMU 7.2 may translate
// code that the other processor is patching, and about one boot in 15 dies before
// /init with "Oops: int3".
func (o Options) accelerator() []string {
	if o.KVM {
		return kvm
	}
	return []string{"-accel", "tcg,thread=single", "-cpu", boardOf(o.Arch).processor}
}

// board returns QEMU's word for the machine. Of amd64 a CD is at a port of SATA, and SMM keeps a guest's
// programs from the firmware's variables.
func (o Options) board() string {
	word := boardOf(o.Arch).machine
	if cmp.Or(o.Arch, usual) != "amd64" {
		return word
	}
	if o.Secure {
		word += ",smm=on"
	}
	if o.CD == "" {
		word += ",sata=off"
	}
	return word
}

// flash are the firmware of a machine with UEFI and its variables, which one that is started by hand forgets.
func (o Options) flash() (args []string) {
	b := boardOf(o.Arch)
	if o.UEFI == "" && !b.always {
		return nil
	}
	code := b.code
	if o.Secure {
		code = b.secure
		if cmp.Or(o.Arch, usual) == "amd64" {
			args = append(args, "-global", "driver=cfi.pflash01,property=secure,value=on")
		}
	}
	args = append(args, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+b.firmware+code)
	if o.UEFI != "" {
		args = append(args, "-drive", "if=pflash,format=raw,unit=1,file="+o.UEFI)
	}
	return args
}

// prepareFirmware gives a machine with UEFI variables of its own.
func (o Options) prepareFirmware() error {
	b := boardOf(o.Arch)
	if b.qemu == "" {
		return fmt.Errorf("no machine of the architecture %q", o.Arch)
	}
	if o.UEFI != "" {
		if _, err := os.Stat(o.UEFI); err == nil {
			return nil
		}
	} else if !b.always {
		return nil
	}
	if err := CheckFirmware(o.Arch); err != nil || o.UEFI == "" {
		return err
	}
	variables := b.variables
	if o.Secure {
		variables = b.snakeoil
	}
	fresh, err := os.ReadFile(b.firmware + variables)
	if err != nil {
		return err
	}
	return os.WriteFile(o.UEFI, fresh, 0o600)
}

// Variables returns a flash image with variables of firmware, for [Options.UEFI]. It names keys
// for tests, in whose place the caller puts others.
func Variables(arch string) ([]byte, error) {
	b := boardOf(arch)
	return os.ReadFile(b.firmware + b.snakeoil)
}

// CheckFirmware wants the firmware of machines with UEFI to be installed.
func CheckFirmware(arch string) error {
	b := boardOf(arch)
	for _, part := range []string{b.code, b.variables} {
		if _, err := os.Stat(b.firmware + part); err != nil {
			return &MissingTool{b.firmware + part, b.firmwarePkg}
		}
	}
	return nil
}

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
