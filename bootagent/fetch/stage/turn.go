// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Begin says to other processes, by a lock on a file, that a layer is being fetched,
// until release. One that is at it already keeps it so.
func Begin(file string) (release func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	release = func() { f.Close() } // which ends the lock
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return release, nil
	case err != nil:
		release()
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(f.Name(), now, now); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Runs reports whether a process fetches a layer, and since when, to the second. One that
// was killed holds the lock no more.
func Runs(file string) (is bool, since time.Time) {
	f, err := os.Open(file)
	if err != nil {
		return false, time.Time{} // nothing was staged since this boot, or only root may know
	}
	defer f.Close() // only read
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return false, time.Time{}
	}
	info, err := f.Stat()
	if err != nil {
		return true, time.Time{}
	}
	return true, info.ModTime().UTC().Truncate(time.Second)
}
