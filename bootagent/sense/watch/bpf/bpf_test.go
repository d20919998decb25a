// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// newCgroup is a cgroup of the test's own: what is attached there binds nobody else.
func newCgroup(t *testing.T) *os.File {
	t.Helper()
	require.Root(t)
	root, err := Root()
	if err != nil {
		require.Missing(t, "bpf", err.Error())
	}
	defer root.Close() // only read
	dir, err := os.MkdirTemp(root.Name(), "caisson-test-")
	if err != nil {
		require.Missing(t, "bpf", err.Error())
	}
	t.Cleanup(func() {
		for range 6000 { // until its last process is gone
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s stays", dir)
	})
	cgroup, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cgroup.Close() }) // only read
	return cgroup
}

// supported skips the test where the kernel takes no such program.
func supported(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		require.Missing(t, "bpf", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inside runs a shell in a cgroup and a network namespace of its own.
func inside(t *testing.T, cgroup *os.File, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func events(t *testing.T, o *Observer) (out []Event) {
	t.Helper()
	for {
		e, ok := o.Next()
		if !ok {
			return out
		}
		out = append(out, e)
	}
}

// parameter is one of a network namespace that takes 0 and 1. A write that waits for the
// lock of the network's settings, as one of ip_forward does, would be begun again by the
// kernel, with an event each time.
const parameter = "net/ipv4/tcp_sack"

func TestObserve(t *testing.T) {
	cgroup := newCgroup(t)
	o, err := Observe(cgroup, []string{parameter, "net/core/somaxconn"}, func(key string) bool { return key == "net/core/somaxconn" })
	supported(t, err)
	defer o.Close() // the test is over
	out, err := inside(t, cgroup, "echo $$; cat /proc/sys/"+parameter+" /proc/sys/net/ipv4/tcp_ecn >/dev/null; echo 1 >/proc/sys/"+parameter+"; echo 2 >/proc/sys/net/ipv4/tcp_ecn; echo 7 >/proc/sys/net/core/somaxconn")
	if err != nil {
		t.Fatal(err, out)
	}
	got := events(t, o)
	if len(got) != 2 || fmt.Sprint(got[0].PID) != out || got[0].Comm != "sh" || got[0].Key != parameter || strings.TrimSpace(got[0].Value) != "1" || got[0].Protected ||
		got[1].Key != "net/core/somaxconn" || !got[1].Protected {
		t.Errorf("events %+v, of process %s", got, out)
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() // only read
	if path, err := Path(root, got[0].Cgroup); err != nil || filepath.Base(path) != filepath.Base(cgroup.Name()) {
		t.Errorf("cgroup %q, %v", path, err)
	}

	// More than the ring holds: what is lost is lost, and what comes later is seen.
	if out, err := inside(t, cgroup, "n=0; while [ $n -lt 1200 ]; do echo $((n%2)); n=$((n+1)); done >/proc/sys/"+parameter); err != nil {
		t.Fatal(err, out)
	}
	if n := len(events(t, o)); n < 300 || n > 1200 {
		t.Errorf("%d events of a storm", n)
	}
	for range 2000 { // round the ring, again and again
		if n := len(events(t, o)); n != 0 {
			t.Fatalf("%d events of nothing", n)
		}
	}
	if out, err := inside(t, cgroup, "echo 0 >/proc/sys/"+parameter); err != nil || len(events(t, o)) != 1 {
		t.Error(err, out)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o.link, o.prog, o.ring, o.maps = -1, -1, nil, nil
	if list, err := attached(observerName, cgroup); err != nil || len(list) != 0 {
		t.Errorf("it stays attached: %v, %v", list, err)
	}
}

func TestProtect(t *testing.T) {
	cgroup := newCgroup(t)
	supported(t, Protect(cgroup, []string{parameter}))
	defer func() {
		if err := Protect(cgroup, nil); err != nil {
			t.Error(err)
		}
	}()
	const set = "exec /bin/echo 1 >/proc/sys/" + parameter // it says what was wrong
	denied := func() bool {
		t.Helper()
		out, err := inside(t, cgroup, set)
		return err != nil && strings.Contains(out, "Operation not permitted")
	}
	if !denied() {
		t.Error("it is not protected")
	}
	if out, err := inside(t, cgroup, "cat /proc/sys/"+parameter+" && echo 2 >/proc/sys/net/ipv4/tcp_ecn"); err != nil {
		t.Errorf("reading it, and writing another one: %q, %v", out, err)
	}

	// The exempt process writes; nobody else does, not even its children.
	exempt := func(script string, as func(pid int)) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read go; "+script)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Cloneflags: syscall.CLONE_NEWNET}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := Exempt(cgroup, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		as(cmd.Process.Pid)
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if err := Exempt(cgroup, 0); err != nil {
			t.Fatal(err)
		}
		return out.String(), err
	}
	itself := func(int) {}
	if out, err := exempt(set, itself); err != nil {
		t.Errorf("the exempt process: %s, %v", out, err)
	}
	if out, err := exempt("sh -c '"+set+"'; true", itself); err != nil || !strings.Contains(out, "not permitted") {
		t.Errorf("its child: %s, %v", out, err)
	}
	if !denied() {
		t.Error("it is not protected once the exempt process is gone")
	}
	// A process of another cgroup with the number of an exempt one that was killed.
	other := cgroup.Name() + "/other"
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other) // its process is gone
	moves := func(pid int) {
		if err := os.WriteFile(other+"/cgroup.procs", fmt.Append(nil, pid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exempt(set, moves); err == nil || !strings.Contains(out, "not permitted") {
		t.Errorf("the same number in another cgroup: %s, %v", out, err)
	}

	// Other keys take the place of those before, and none leave nothing behind.
	if err := Protect(cgroup, []string{"net/ipv4/tcp_ecn"}); err != nil || denied() {
		t.Errorf("it left, and is protected: %v", err)
	}
	if list, err := attached(protectorName, cgroup); err != nil || len(list) != 1 {
		t.Errorf("attached: %v, %v", list, err)
	}
	if err := Protect(cgroup, nil); err != nil {
		t.Error(err)
	}
	if list, err := attached(protectorName, cgroup); err != nil || len(list) != 0 {
		t.Errorf("attached: %v, %v", list, err)
	}
	if err := Protect(cgroup, []string{strings.Repeat("a/", MaxKey)}); err == nil {
		t.Error("a name that is too long is taken")
	}
}

// Protection outlives the process that asked for it.
func TestProtectionStays(t *testing.T) {
	if os.Getenv("CAISSON_TEST_PROTECT") != "" {
		cgroup, err := os.Open(os.Getenv("CAISSON_TEST_PROTECT"))
		if err == nil {
			err = Protect(cgroup, []string{parameter})
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	cgroup := newCgroup(t)
	supported(t, Protect(cgroup, []string{"net/ipv4/tcp_ecn"}))
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestProtectionStays$")
	child.Env = append(os.Environ(), "CAISSON_TEST_PROTECT="+cgroup.Name())
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	defer func() {
		if err := Protect(cgroup, nil); err != nil {
			t.Error(err)
		}
	}()
	if out, err := inside(t, cgroup, "echo 1 >/proc/sys/"+parameter); err == nil {
		t.Errorf("with its process gone it is not protected: %s", out)
	}
}

// An event with whatever bytes is an event of text.
func FuzzParse(f *testing.F) {
	f.Add(make([]byte, eventSize))
	f.Fuzz(func(t *testing.T, record []byte) {
		if len(record) < eventSize {
			return
		}
		if e := parse(record); len(e.Key) > nameSize || len(e.Value) > valueSize || len(e.Comm) > commSize || strings.Contains(e.Key+e.Value+e.Comm, "\x00") {
			t.Errorf("%+v", e)
		}
	})
}
