// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// Archive returns a cpio archive (newc, see the kernel's initramfs buffer
// format) with one file and the directories above it. It passes this loader's
// site.cpio to the next one.
func Archive(name string, data []byte) []byte {
	var b bytes.Buffer
	inode := 0
	entry := func(name string, mode uint32, data []byte) {
		inode++
		fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
		b.WriteString(name)
		b.WriteByte(0)
		pad(&b)
		b.Write(data)
		pad(&b)
	}
	name = strings.TrimPrefix(name, "/")
	var dirs []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append([]string{dir}, dirs...)
	}
	for _, dir := range dirs {
		entry(dir, 0o040755, nil)
	}
	entry(name, 0o100600, data)
	entry("TRAILER!!!", 0, nil)
	return b.Bytes()
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
