// SPDX-License-Identifier: Apache-2.0

// Package tpmtest runs TPMs for tests: swtpm, which keeps its registers in memory and its
// seeds in a directory. Only tests import it.
package tpmtest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/caisson-os/caisson/test/require"
)

// Start starts a TPM that has just been switched on, and returns what opens it.
func Start(t testing.TB) func() (io.ReadWriteCloser, error) {
	open, _ := Switched(t)
	return open
}

// Switched is Start, with what switches the TPM off and on: its registers begin anew, its keys stay.
func Switched(t testing.TB) (open func() (io.ReadWriteCloser, error), again func()) {
	t.Helper()
	_, open, again = Socket(t)
	return open, again
}

// Socket is Switched, with the socket by which another process opens the TPM.
func Socket(t testing.TB) (socket string, open func() (io.ReadWriteCloser, error), again func()) {
	t.Helper()
	dir := start(t, "--server", "type=unixio,path=%/tpm", "--flags", "not-need-init,startup-clear")
	socket = filepath.Join(dir, "tpm")
	open = Dial(socket)
	await(t, socket, func(name string) error { // a socket is there before it is listened to
		rw, err := net.Dial("unix", name)
		if err != nil {
			return err
		}
		return rw.Close()
	})
	return socket, open, func() {
		t.Helper()
		require.Tool(t, "swtpm_ioctl")
		if out, err := exec.Command("swtpm_ioctl", "--unix", filepath.Join(dir, "control"), "-i").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		rw, err := open()
		if err != nil {
			t.Fatal(err)
		}
		_, err = tpm2.Startup{StartupType: tpm2.TPMSUClear}.Execute(transport.FromReadWriter(rw))
		if err := errors.Join(err, rw.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Dial opens a TPM at its socket.
func Dial(socket string) func() (io.ReadWriteCloser, error) {
	return func() (io.ReadWriteCloser, error) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // it may not have seen yet that the one before has gone
			rw, err := net.Dial("unix", socket)
			if !errors.Is(err, syscall.EAGAIN) || time.Now().After(end) {
				return rw, err
			}
		}
	}
}

// ForMachine starts a TPM for QEMU, and returns the arguments that plug it in.
func ForMachine(t testing.TB) []string {
	t.Helper()
	dir := start(t)
	await(t, filepath.Join(dir, "control"), func(name string) error { _, err := os.Stat(name); return err })
	return []string{"-chardev", "socket,id=tpm,path=" + filepath.Join(dir, "control"), "-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm"}
}

func start(t testing.TB, args ...string) (dir string) {
	t.Helper()
	require.Tool(t, "swtpm")
	dir, err := os.MkdirTemp("", "tpm") // a socket's name is short
	if err != nil {
		t.Fatal(err)
	}
	for i := range args {
		args[i] = strings.Replace(args[i], "%", dir, 1)
	}
	cmd := exec.Command("swtpm", append([]string{"socket", "--tpm2", "--tpmstate", "dir=" + dir, "--ctrl", "type=unixio,path=" + filepath.Join(dir, "control")}, args...)...)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended with its machine
		_ = cmd.Wait()         // killed
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// await waits until a socket is there.
func await(t testing.TB, socket string, there func(string) error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if there(socket) == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("swtpm has not made %s", socket)
		}
	}
}
