// SPDX-License-Identifier: Apache-2.0

package letin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
)

// Note notes a process that is to end with what let it in, as a file named by its number, when it
// started and [nameOf] its key, and forgets those that have ended. sshd's process that asks for keys
// is the whole connection that they let in: root's has no other. It asks last for the key that does.
func Note(root string, pid int, by string) error {
	dir := filepath.Join(root, paths.RunLetIn)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := noted(dir)
	if err != nil {
		return err
	}
	_, started, ok := read(pid)
	if pid <= 1 || !ok {
		return fmt.Errorf("process %d is not one that ends with the rescue", pid)
	}
	process := fmt.Sprintf("%d-%s-", pid, started)
	err = os.WriteFile(filepath.Join(dir, process+by), nil, 0o600)
	for _, name := range names {
		if ended(name) || strings.HasPrefix(name, process) && name != process+by {
			err = errors.Join(err, forget(dir, name))
		}
	}
	return err
}

// HangUp ends what was noted and is over by what let it in, each with all that is below it, but
// for this process.
func HangUp(root string, over func(by string) bool) error {
	dir := filepath.Join(root, paths.RunLetIn)
	for {
		names, err := noted(dir)
		names = slices.DeleteFunc(names, func(name string) bool { return !over(name[strings.LastIndexByte(name, '-')+1:]) })
		for _, name := range names {
			number, _, _ := strings.Cut(name, "-")
			pid, _ := strconv.Atoi(number) // another name is of no process
			if !ended(name) {
				err = errors.Join(err, endBelow(pid), end(pid))
			}
			err = errors.Join(err, forget(dir, name))
		}
		if len(names) == 0 || err != nil { // a session that ends meanwhile may note what it leaves
			return err
		}
	}
}

func noted(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func forget(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) { // a session may have been first
		return err
	}
	return nil
}

// ended reports whether the process of a note is there no more: its number may be another's.
func ended(name string) bool {
	number, rest, _ := strings.Cut(name, "-")
	started, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	_, now, ok := read(pid)
	return err != nil || !ok || now != started
}

// read reads a process's parent, and when it started, see proc_pid_stat(5). One that has ended
// and was not waited for is none.
func read(pid int) (parent int, started string, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // its name may be anything
	if err != nil || len(words) < 20 || words[0] == "Z" || words[0] == "X" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(words[1])
	return parent, words[19], err == nil
}

// below returns the processes below one, each before those that it started, but for this process
// and what is below it in turn.
func below(pid int) (found []int) {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc") // none are found where it is not there
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if parent, _, ok := read(n); ok {
				children[parent] = append(children[parent], n)
			}
		}
	}
	for next := children[pid]; len(next) > 0; next = next[1:] {
		if next[0] != os.Getpid() {
			found = append(found, next[0])
			next = append(next, children[next[0]]...)
		}
	}
	return found
}

// endBelow ends what is below a process, until there is nothing more.
func endBelow(pid int) (err error) {
	for range 100 { // what forks meanwhile is found by the next
		all := below(pid)
		if len(all) == 0 {
			return nil
		}
		for _, p := range slices.Backward(all) { // else what it started would be another's
			err = errors.Join(err, end(p))
		}
	}
	return errors.Join(err, fmt.Errorf("processes below %d go on", pid))
}

// end ends a process, and waits until it has ended, for a second.
func end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	defer unix.Close(fd) // nothing was written
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Second/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	return nil
}
