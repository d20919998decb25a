// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Recording is what a process did to a directory.
type Recording struct {
	before Tree
	calls  []call
}

// Calls returns how many calls changed something, or could have.
func (r *Recording) Calls() int { return len(r.calls) }

// call is one of them.
type call struct {
	text string
	do   func(*disk)
}

func (c call) String() string { return c.text }

// Record runs the test of that name again, in a process in which [Recorded] returns the
// words, and returns what that process did to dir.
func Record(t testing.TB, dir, test string, words ...string) *Recording {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &Recording{}
	if r.before, err = Read(dir); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close() // nothing is written to it that must arrive
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	child.Env = append(os.Environ(), environment+"="+strings.Join(words, separator))
	var out bytes.Buffer
	child.Stdout, child.Stderr, child.ExtraFiles = &out, &out, []*os.File{read}
	if os.Geteuid() == 0 {
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // what it mounts is its own
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close() // the child has its own
	err = r.listen(child.Process.Pid, dir, write)
	if err != nil {
		_ = child.Process.Kill() // err says what failed
	}
	if err := errors.Join(err, child.Wait()); err != nil {
		t.Fatalf("record %s: %v\n%s", strings.Join(words, " "), err, out.String())
	}
	after, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := r.before.disk()
	for _, c := range r.calls {
		c.do(d)
	}
	d.syncAll()
	if diff := d.after(fate{}, nil).Diff(after); diff != "" {
		t.Fatalf("the recording of %s lacks something (recorded against there):\n%s", strings.Join(words, " "), diff)
	}
	return r
}

// listen records until the process ends.
func (r *Recording) listen(pid int, dir string, let *os.File) error {
	fd, err := take(pid)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // nothing is written to it
	if _, err := let.Write([]byte{0}); err != nil {
		return err
	}
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return err
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return nil // it has ended
		}
		var n notice
		switch err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR): // it was interrupted, and asks again
			continue
		case err != nil:
			return err
		}
		if c, ok := n.call(dir); ok {
			r.calls = append(r.calls, c)
		}
		answer := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

// take gets the listener of a process that waits for that, once it has one.
func take(pid int) (int, error) {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(handle) // nothing is written to it
	for range 6000 {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); err == nil && strings.Contains(to, "seccomp") {
				var n int
				if _, err := fmt.Sscan(e.Name(), &n); err != nil {
					return 0, err
				}
				return unix.PidfdGetfd(handle, n, 0)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, errors.New("the process does not call powercut.Recorded")
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

func ioctl(fd int, request uintptr, to unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(to)); errno != 0 {
		return errno
	}
	return nil
}
