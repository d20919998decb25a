// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Protect has the kernel refuse writes of keys from now on, by everybody but the exempt
// process, and no longer those of other keys. It holds until it is asked for something
// else, whichever process runs; without keys nothing is left of it. The new program is attached
// before the one that was there goes: no key is unprotected in between.
func Protect(cgroup *os.File, keys []string) error {
	old, err := attached(protectorName, cgroup)
	if err != nil {
		if len(keys) == 0 {
			return nil // a kernel that cannot say what is attached has nothing attached
		}
		return fmt.Errorf("ask for BPF programs: %w", err)
	}
	defer func() {
		for _, l := range old {
			l.close()
		}
	}()
	if len(keys) > 0 {
		if err := protect(cgroup, keys); err != nil {
			return err
		}
	}
	var errs []error
	for _, l := range old {
		errs = append(errs, detach(l.prog, cgroup))
	}
	return errors.Join(errs...)
}

func protect(cgroup *os.File, keys []string) error {
	if i := slices.IndexFunc(keys, func(k string) bool { return len(k) > MaxKey }); i >= 0 {
		return fmt.Errorf("protect %s: its name is too long", keys[i])
	}
	table, own, err := tables(keys, func(string) uint32 { return flagProtected })
	if err != nil {
		return err
	}
	l := loaded{maps: []int{table, own}, prog: -1}
	defer func() { l.close() }()
	if err := exempt(own, os.Getpid()); err != nil {
		return err
	}
	if l.prog, err = load(protectorName, protector(table, own)); err != nil {
		return err
	}
	if err := attach(l.prog, cgroup); err != nil {
		return fmt.Errorf("attach BPF program %s: %w", protectorName, err)
	}
	return nil
}

// Protects reports whether something is protected.
func Protects(cgroup *os.File) bool {
	found, err := attached(protectorName, cgroup)
	for _, l := range found {
		l.close()
	}
	return err == nil && len(found) > 0
}

// Exempt lets a process write what is protected, and nobody else; 0 is none.
func Exempt(cgroup *os.File, pid int) error {
	found, err := attached(protectorName, cgroup)
	if err != nil {
		return nil // nothing is attached where that cannot be asked
	}
	var errs []error
	for _, l := range found {
		if len(l.maps) == 2 { // the keys, and whom they do not bind
			errs = append(errs, exempt(l.maps[1], pid))
		}
		l.close()
	}
	return errors.Join(errs...)
}

// handleOfKernfs is the type of a file handle that is an inode's number, FILEID_KERNFS.
const handleOfKernfs = 0xfe

// owner is the process that a program lets do as it likes. Its cgroup belongs to it: where
// it was killed, another process may have its number.
type owner struct {
	pid, _ uint32
	cgroup uint64
}

// exempt puts a process into the map of a program; 0 is none.
func exempt(own, pid int) error {
	o := owner{pid: uint32(pid)}
	if pid != 0 {
		var err error
		if o.cgroup, err = cgroupOf(pid); err != nil {
			return err
		}
	}
	return update(own, uint32(0), o)
}

// cgroupOf returns the number of a process's cgroup, which is that of its inode.
func cgroupOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue // of cgroup v1
		}
		root, err := Root()
		if err != nil {
			return 0, err
		}
		defer root.Close() // only read
		var st unix.Stat_t
		if err := unix.Stat(root.Name()+path, &st); err != nil {
			return 0, fmt.Errorf("look at cgroup %s: %w", path, err)
		}
		return st.Ino, nil
	}
	return 0, fmt.Errorf("process %d is in no cgroup", pid)
}

// Path returns the path of a cgroup below the root of the tree, by its number. It is an
// error when the cgroup is gone.
func Path(root *os.File, id uint64) (string, error) {
	handle := unix.NewFileHandle(handleOfKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd) // only looked at
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return strings.TrimPrefix(path, root.Name()), err
}
