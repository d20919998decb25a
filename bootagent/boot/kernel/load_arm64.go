// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/u-root/u-root/pkg/boot/kexec"
	"golang.org/x/sys/unix"
)

// loadKexec has the kernel take another one by its files, or, as Debian's kernels for arm64 have no
// kexec_file_load(2), placed in memory by this program.
func loadKexec(kernel, initrd *os.File, line string) error {
	err := unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), line, 0)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	var m Machine
	if m.Tree, err = os.ReadFile("/sys/firmware/fdt"); err != nil {
		return err
	}
	iomem, err := os.ReadFile("/proc/iomem")
	if err != nil {
		return err
	}
	m.Iomem = string(iomem)
	var parts [2][]byte
	for i, f := range []*os.File{kernel, initrd} {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if parts[i], err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		defer unix.Munmap(parts[i]) // the kernel has copied it
	}
	segments, entry, err := Place(m, parts[0], parts[1], line)
	if err != nil {
		return err
	}
	return kexec.Load(entry, segments, 0)
}
