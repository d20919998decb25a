// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages are the Debian packages of the programs that a machine takes.
var packages = map[string]string{
	qemu: "qemu-system-x86", "busybox": "busybox-static",
	"sgdisk": "gdisk", "mkfs.ext4": "e2fsprogs", "ssh": "openssh-client",
}

// MissingTool is the error of a program that is not installed.
type MissingTool struct {
	Name    string // of the program, or a path
	Package string // of Debian
}

func (m *MissingTool) Error() string {
	if strings.HasPrefix(m.Name, "/") {
		return "no file " + m.Name
	}
	return "no program " + m.Name
}

// Hint says how to get it.
func (m *MissingTool) Hint() string {
	return "on Debian: apt install " + m.Package
}

// CheckFirmware wants the firmware of machines with UEFI to be installed.
func CheckFirmware() error {
	for _, part := range []string{"CODE_4M.fd", "VARS_4M.fd"} {
		if _, err := os.Stat(firmware + part); err != nil {
			return &MissingTool{firmware + part, "ovmf"}
		}
	}
	return nil
}

// CheckTools wants programs to be installed: those that every machine takes, and more.
func CheckTools(more ...string) error {
	for _, name := range append([]string{qemu, "busybox"}, more...) {
		if _, err := exec.LookPath(name); err != nil {
			known, ok := packages[name]
			if !ok {
				return fmt.Errorf("no program %s: %w", name, err)
			}
			return &MissingTool{name, known}
		}
	}
	return nil
}
