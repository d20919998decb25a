// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os/exec"
)

// packages are the Debian packages of the programs that a machine takes.
var packages = map[string]string{
	qemu: "qemu-system-x86", "busybox": "busybox-static",
	"sgdisk": "gdisk", "mkfs.ext4": "e2fsprogs", "ssh": "openssh-client",
}

// MissingTool is the error of a program that is not installed.
type MissingTool struct {
	Name    string
	Package string // of Debian
}

func (m *MissingTool) Error() string { return "no program " + m.Name }

// Hint says how to get it.
func (m *MissingTool) Hint() string {
	return "on Debian: apt install " + m.Package
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
