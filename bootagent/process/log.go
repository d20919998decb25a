// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// MaxLog bounds a log, in bytes: on a diskless node it lies in memory.
const MaxLog = 4 << 20

// openLog opens the log for appending. It may hold secrets.
func openLog(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

// CapLog empties a log that grew too large. The program appends, so it goes on at
// the new end. Whoever waits for a program calls it every second or so.
func CapLog(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // the program removed it: its own business
	}
	if err != nil || info.Size() <= MaxLog {
		return err
	}
	return os.WriteFile(name, []byte("(the log grew too large and was emptied)\n"), 0o600)
}

// KeepSmall caps the log of a run until it ends. Where that fails it gives up: whoever
// waits for the run tries again.
func KeepSmall(r Runner, id, log string) {
	for r.Running(id) {
		time.Sleep(time.Second)
		if CapLog(log) != nil {
			return
		}
	}
}
