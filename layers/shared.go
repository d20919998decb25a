// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/verity"
)

// shared opens the device through which an image is read already, nil where there is none.
// What is mounted from one device is one file system: what the kernel has in memory of it,
// it does not read, check and unpack again. That makes a soft-reboot short.
func shared(image Image, file os.FileInfo) (*os.File, error) {
	salt, err := verity.Parse(filepath.Base(image.Path)) // in a store it is the digest
	if err != nil {
		return nil, err
	}
	m, err := openMapper()
	if err != nil {
		return nil, err
	}
	defer m.close()
	names, err := m.devices()
	if err != nil {
		return nil, fmt.Errorf("list mapped devices: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, devicePrefix+salt.String()+"-") {
			continue
		}
		device, err := m.sharedAs(name, image, salt, file)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
			continue // it went meanwhile
		}
		if device != nil || err != nil {
			return device, err
		}
	}
	return nil, nil
}

// sharedAs opens a device if it checks the image by the same root, has met no wrong block
// and reads the file that has this name now: one that was replaced may have rotted.
func (m *mapper) sharedAs(name string, image Image, salt verity.Hash, file os.FileInfo) (*os.File, error) {
	status, err := m.status(name)
	if err != nil {
		return nil, err
	}
	dev, table, err := m.ask(name, unix.DM_STATUS_TABLE_FLAG)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(table) // as checked has written them
	if status != "V" || len(words) != 10 || words[8] != image.Tree.Root.String() || words[9] != salt.String() {
		return nil, nil
	}
	_, loop, _ := strings.Cut(words[1], ":")
	if same, err := reads("/dev/loop"+loop, file); err != nil || !same {
		return nil, err
	}
	return openMapped(dev)
}

// reads reports whether a loop device is of a file.
func reads(loop string, file os.FileInfo) (bool, error) {
	f, err := os.Open(loop)
	if err != nil {
		return false, err
	}
	defer f.Close() // nothing is written through it
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return false, fmt.Errorf("status of %s: %w", loop, err)
	}
	st, ok := file.Sys().(*syscall.Stat_t)
	return ok && info.Inode == st.Ino && info.Device == st.Dev, nil
}
