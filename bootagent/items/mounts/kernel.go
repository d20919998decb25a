// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// usedSwap is space in use, a line of /proc/swaps.
type usedSwap struct {
	Path     string `json:"path"`
	Priority int    `json:"priority"` // below 0 the kernel chose it
}

func (u *usedSwap) String() string {
	switch {
	case u == nil:
		return ""
	case u.Priority < 0:
		return "swap"
	}
	return fmt.Sprintf("swap priority %d", u.Priority)
}

// asked is the priority to ask for to have it again.
func (u *usedSwap) asked() *int {
	if u.Priority < 0 {
		return nil
	}
	return &u.Priority
}

// same reports whether both are used alike: which one the kernel chooses depends on
// what else is in use.
func (u *usedSwap) same(other usedSwap) bool {
	return u.Priority == other.Priority || u.Priority < 0 && other.Priority < 0
}

// swapAt is the space in use at a path, by the file and not by its name.
func swapAt(all []usedSwap, path string) *usedSwap {
	info, err := os.Stat(path)
	for n, u := range all {
		if u.Path == path {
			return &all[n]
		}
		if other, failed := os.Stat(u.Path); err == nil && failed == nil && os.SameFile(info, other) {
			return &all[n]
		}
	}
	return nil
}

// maxSwaps caps /proc/swaps: the kernel has room for some thirty.
const maxSwaps = 64 << 10

// read is /proc/swaps. Blanks and such are octal escapes there.
func (i *Swaps) read() ([]usedSwap, error) {
	name := filepath.Join(i.proc, "swaps")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the kernel has no swap space")
	}
	if err != nil {
		return nil, err
	}
	if len(data) > maxSwaps {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSwaps)
	}
	return parseSwaps(string(data))
}

func parseSwaps(text string) ([]usedSwap, error) {
	var all []usedSwap
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if n == 0 {
			continue // what the columns are
		}
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("/proc/swaps: line %d has no priority", n+1)
		}
		priority, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return nil, fmt.Errorf("/proc/swaps: line %d: %w", n+1, err)
		}
		all = append(all, usedSwap{UnescapeDevice(fields[0]), priority})
	}
	return all, nil
}

// find returns the path of a disk or a file, without links that a user could have made.
// What others can read or write is not a place for what the memory holds.
func (i *Swaps) find(name string) (string, error) {
	path, tagged, err := TaggedDevice(i.dev, name)
	if err != nil {
		return "", err
	}
	if !tagged {
		var w safepath.Walk
		defer w.Close()
		if path, err = w.Resolve(name); err != nil {
			return "", err
		}
	}
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return "", MissingDevice(name)
	case err != nil:
		return "", fmt.Errorf("look at %s: %w", path, err)
	}
	return path, usableSwap(path, st)
}

// usableSwap says why memory is not swapped to what stands at a path.
func usableSwap(path string, st unix.Stat_t) error {
	switch kind := st.Mode & unix.S_IFMT; {
	case kind != unix.S_IFREG && kind != unix.S_IFBLK:
		return fmt.Errorf("%s is neither a disk nor a file", path)
	case kind == unix.S_IFREG && (st.Uid != 0 || st.Mode&0o077 != 0):
		return fmt.Errorf("%s is not root's alone: others could read what the memory held; make it 0600", path)
	}
	return nil
}

// Flags of swapon(2).
const (
	prefer       = 0x8000
	discard      = 0x10000
	discardOnce  = 0x20000
	discardPages = 0x40000
)

var discardFlags = map[string]uintptr{"": 0, "all": discard, "once": discard | discardOnce, "pages": discard | discardPages}

// swapOn is swapon(2), by a descriptor: a name could lead elsewhere by now, so what it leads
// to is looked at again.
func swapOn(path string, priority *int, discards string) error {
	flags := discardFlags[discards]
	if priority != nil {
		flags |= prefer | uintptr(*priority)
	}
	var w safepath.Walk
	defer w.Close()
	fd, st, err := w.Open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
	if err := usableSwap(path, st); err != nil {
		return err
	}
	name, _ := unix.BytePtrFromString(safepath.Name(fd)) // it has no NUL
	_, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), flags, 0)
	switch errno {
	case 0:
		return nil
	case unix.EINVAL:
		return fmt.Errorf("%w: no swap signature (see mkswap(8)), or a file with holes, or a file system without swap files", errno)
	case unix.EBUSY:
		return fmt.Errorf("%w: it is mounted, or something else uses it", errno)
	}
	return errno
}

// off is swapoff(2), which reads all that is swapped out back into memory. It cannot
// be cut short: when it takes too long it goes on, and the next look finds its end.
func (i *Swaps) off(ctx context.Context, path string) error {
	var w safepath.Walk
	defer w.Close()
	fd, _, err := w.Open(path)
	if err != nil {
		return err
	}
	name, _ := unix.BytePtrFromString(safepath.Name(fd)) // it has no NUL
	done := make(chan unix.Errno, 1)
	go func() {
		defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
		_, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(name)), 0, 0)
		done <- errno
	}()
	select {
	case errno := <-done:
		switch errno {
		case 0:
			return nil
		case unix.ENOMEM:
			return fmt.Errorf("%w: the memory has no room for what is swapped out there", errno)
		}
		return errno
	case <-time.After(i.patience):
		return fmt.Errorf("what is swapped out is still being read after %v", i.patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}
