// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package kernel

import (
	"os"

	"golang.org/x/sys/unix"
)

// loadKexec has the kernel take another one by its files.
func loadKexec(kernel, initrd *os.File, line string) error {
	return unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), line, 0)
}
