// SPDX-License-Identifier: Apache-2.0

package safepath

import "golang.org/x/sys/unix"

// Beneath opens a path below a directory. Links are followed as long as they stay below
// it, those of /proc are not. Flags are those of openat(2), resolve is what else is
// forbidden, see openat2(2).
//
// Where a name is renamed, or something mounted, anywhere on the machine while the
// kernel follows "..", as of a link, it cannot be sure that it stayed below and says
// EAGAIN. On a node that starts containers this is common, so it is asked again.
func Beneath(dir int, path string, flags int, resolve uint64) (fd int, err error) {
	const tries = 1000 // somebody who renames without an end holds nobody up
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
	for range tries {
		if fd, err = unix.Openat2(dir, path, &how); err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}
