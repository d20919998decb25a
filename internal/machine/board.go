// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"os"
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
