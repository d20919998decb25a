// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// processor is an emulated one without what costs an emulator much and gives a guest
// nothing: a fifth level of page tables to walk, moves of strings byte by byte in place of
// registers, marks around each access to the memory of users, and virtual machines, for
// which udev would load kvm.
const processor = "max,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off,svm=off"

func (o Options) arguments(ssh string) []string {
	args := []string{
		// One thread runs all processors. With a thread each, QEMU 7.2 may translate
		// code that the other processor is patching, and about one boot in 15 dies
		// before /init with "Oops: int3".
		"-name", o.Name, "-machine", "q35,graphics=off", "-accel", "tcg,thread=single", "-cpu", processor,
		"-smp", fmt.Sprint(cmp.Or(o.Processors, 1)), "-m", fmt.Sprint(cmp.Or(o.Memory, 1024)),
		"-nodefaults", // no screen and no CD: a guest has no drivers to load for what nobody uses
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-device", "virtio-rng-pci",
	}
	if o.UUID != "" {
		args = append(args, "-uuid", o.UUID)
	}
	args = append(args, o.network(ssh)...)
	if o.Disk != "" {
		drive := "file=" + o.Disk + ",format=raw,if=virtio,cache=writethrough"
		if o.ReadOnly {
			drive += ",readonly=on"
		}
		args = append(args, "-drive", drive)
	}
	if o.Kernel != "" {
		args = append(args, "-kernel", o.Kernel, "-initrd", o.Initrd, "-append", o.Append)
	} else {
		args = append(args, "-boot", "n")
	}
	return append(args, o.Extra...)
}

// network is the card and the user network behind it, which reaches nothing but
// the forwards.
func (o Options) network(ssh string) []string {
	if o.NoCard {
		return []string{"-nic", "none"}
	}
	network := fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:%s-:22", ssh)
	if o.TFTP != "" {
		network += ",tftp=" + o.TFTP + ",bootfile=" + o.Bootfile
	}
	for guest, host := range o.Forwards {
		addr, port, _ := strings.Cut(host, ":")
		network += fmt.Sprintf(",guestfwd=tcp:%s-cmd:busybox nc %s %s", guest, addr, port)
	}
	// In a late slot: a card among the further arguments is found first, and takes the
	// name eth0.
	return []string{"-netdev", network, "-device", "virtio-net-pci,netdev=net,addr=0x10,mac=" + o.MAC}
}

// own counts the addresses that this process has taken.
var own atomic.Int32

// OwnAddress returns an address of the loopback that nobody else listens on, and nobody
// connects from: QEMU binds it by itself, some time later, when the kernel may have given a
// free port of 127.0.0.1 away. The host is this process's own by its PID, which has 22
// bits; the port is below those that the kernel gives.
func OwnAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16&63, pid>>8&255, pid&255, 2200+own.Add(1))
}
