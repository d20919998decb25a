// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

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
