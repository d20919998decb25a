// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/internal/paths"
)

// mountBasics gives the loader what every program expects of a Linux system. The
// same mounts move on into the new root.
func mountBasics() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		// Images of a diskless node live here: as much as the machine can give.
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=90%"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	_ = unix.Mount("pstore", blackbox.PStore, "pstore", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") // what a kernel that died left; most machines have none
	for _, dir := range []string{paths.Run, "/tmp", "/etc", "/newroot"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// switchRoot makes root the root and runs its init. It returns only with an
// error. What the loader unpacked into memory is deleted first: nobody could
// reach it afterwards.
func switchRoot(root, init string) error {
	for _, m := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := os.MkdirAll(root+m, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m, root+m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", m, err)
		}
	}
	if err := emptyRoot(root); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", init, unix.Exec(init, []string{init}, []string{"TERM=linux"}))
}

// emptyRoot frees the memory of the loader's own files. It never leaves the
// file system it begins in.
func emptyRoot(keep string) error {
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return err
	}
	if root.Type != unix.RAMFS_MAGIC && root.Type != unix.TMPFS_MAGIC {
		return errors.New("the loader's root is not in memory; its files are not deleted")
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "/" + e.Name()
		var there, here unix.Stat_t
		if unix.Lstat(name, &there) != nil || unix.Lstat("/", &here) != nil || there.Dev != here.Dev || name == keep {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("free the loader's memory: %w", err)
		}
	}
	return nil
}
