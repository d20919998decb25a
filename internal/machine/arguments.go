// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
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
