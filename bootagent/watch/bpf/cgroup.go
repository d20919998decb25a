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
