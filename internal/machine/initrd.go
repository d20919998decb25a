// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// JoinInitrd writes cpio archives one behind the other, as boot loaders do with the
// initrds that they are given: QEMU takes one file.
func JoinInitrd(name string, archives ...string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close() // below, when all is well
	var size int64
	for _, archive := range archives {
		// The kernel looks for the next archive where a word begins.
		if pad := -size & 3; pad > 0 {
			if _, err := f.Write(make([]byte, pad)); err != nil {
				return err
			}
			size += pad
		}
		n, err := appendFile(f, archive)
		if err != nil {
			return err
		}
		size += n
	}
	return f.Close()
}

func appendFile(w io.Writer, name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close() // only read
	return io.Copy(w, f)
}

// MakeStateDisk makes a raw image with one partition, an ext4 named caisson-state, and copies
// what is in a directory into it, nothing where content is "". Room that an image of this size
// has been given stays taken.
func MakeStateDisk(ctx context.Context, file string, megabytes int, content string) error {
	script := fmt.Sprintf(`set -e
truncate -s %[2]dM %[1]q
sgdisk -n 1:2048:0 -c 1:caisson-state %[1]q >/dev/null
mkfs.ext4 -q -F -E offset=1048576,nodiscard ${1:+-d "$1"} %[1]q %[3]dM`, file, megabytes, megabytes-4)
	if text, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", content).CombinedOutput(); err != nil {
		return fmt.Errorf("make state disk %s: %w\n%s", file, err, text)
	}
	return nil
}
