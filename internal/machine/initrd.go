// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io"
	"os"
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
