// SPDX-License-Identifier: Apache-2.0

package configcheck

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// furnish gives programs of a root that nobody has entered yet what they look for: /dev, without
// which sshd(8) ends before it reads anything, and as /run memory that is never swapped, for what
// they are asked about. Both go with end, or with the root.
func furnish(root string) (end func(), err error) {
	var done []string
	end = func() {
		for _, at := range done {
			_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // it was mounted just now
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	at, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	dir := safepath.Dir{File: at}
	defer dir.Close() // only held
	for _, m := range []struct {
		source, kind, on string
		flags            uintptr
	}{
		{"/dev", "", "dev", unix.MS_BIND},
		{"ramfs", "ramfs", "run", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		target, err := dir.Below(m.on) // no link leads elsewhere
		if err != nil {
			return nil, err
		}
		err = unix.Mount(m.source, safepath.Name(int(target.Fd())), m.kind, m.flags, "")
		if err := target.Close(); err != nil { // only held
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s at %s: %w", m.source, filepath.Join(root, m.on), err)
		}
		done = append(done, filepath.Join(root, m.on))
	}
	return end, nil
}
