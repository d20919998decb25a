// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
)

// processor is an emulated one without what costs an emulator much and gives a guest
// nothing: a fifth level of page tables to walk, moves of strings byte by byte in place of
// registers, marks around each access to the memory of users, and virtual machines, for
// which udev would load kvm.
const processor = "max,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off,svm=off"

func (o Options) arguments(ssh string) []string {
	// One thread runs all emulated processors. With a thread each, QEMU 7.2 may translate
	// code that the other processor is patching, and about one boot in 15 dies before
	// /init with "Oops: int3".
	accelerator := []string{"-accel", "tcg,thread=single", "-cpu", processor}
	if o.KVM {
		accelerator = kvm
	}
	args := append([]string{"-name", o.Name, "-machine", o.board()}, accelerator...)
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
		if o.UEFI != "" { // before the network, also where the firmware's variables know nothing of it
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

// board is a machine without what no guest uses: each port is a driver to load, and events
// that udev answers. A CD is at a port of SATA.
func (o Options) board() string {
	board := "q35,graphics=off,smbus=off,vmport=off,hpet=off,i8042=off"
	if o.Secure { // what keeps a guest's programs from the firmware's variables
		board += ",smm=on"
	}
	if o.CD == "" {
		board += ",sata=off"
	}
	return board
}

// media are the firmware, where it is UEFI, and what it starts from first.
func (o Options) media() (args []string) {
	if o.UEFI != "" {
		code := "CODE_4M.fd"
		if o.Secure {
			code = "CODE_4M.secboot.fd"
			args = append(args, "-global", "driver=cfi.pflash01,property=secure,value=on")
		}
		args = append(args, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+firmware+code,
			"-drive", "if=pflash,format=raw,unit=1,file="+o.UEFI)
	}
	if o.CD != "" {
		args = append(args, "-drive", "if=none,id=cd,format=raw,readonly=on,media=cdrom,file="+o.CD, "-device", "ide-cd,drive=cd,bootindex=0")
	}
	if o.Stick != "" {
		args = append(args, "-drive", "if=none,id=stick,format=raw,file="+o.Stick, "-device", "qemu-xhci", "-device", "usb-storage,drive=stick,removable=on,bootindex=0")
	}
	return args
}

// firmware is how the files of Debian's package ovmf begin.
const firmware = "/usr/share/OVMF/OVMF_"

// prepareFirmware gives a machine with UEFI variables of its own.
func (o Options) prepareFirmware() error {
	if o.UEFI == "" {
		return nil
	}
	if _, err := os.Stat(o.UEFI); err == nil {
		return nil
	}
	if err := CheckFirmware(); err != nil {
		return err
	}
	variables := "VARS_4M.fd"
	if o.Secure {
		variables = "VARS_4M.snakeoil.fd"
	}
	fresh, err := os.ReadFile(firmware + variables)
	if err != nil {
		return err
	}
	return os.WriteFile(o.UEFI, fresh, 0o600)
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
