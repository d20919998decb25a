// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// start begins a watch of an overlay.
func start(t *testing.T, root string, of spec.Items) *Watch {
	t.Helper()
	w, err := Start(root, false, items.Hints, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	w.Follow(&spec.Overlay{Items: of}, nil)
	w.quiet(t)
	return w
}

// counts reports whether hints may be of what the test does. The kernel tells of block
// devices, modules and swap space of the whole machine, which others make, too.
func (w *Watch) counts(h Hints) bool {
	machine := []string{"modules", "mounts", "swaps", "sysfs"}
	return h.All || slices.ContainsFunc(h.Kinds, func(kind string) bool { return w.root != "" || !slices.Contains(machine, kind) })
}

// quiet waits until no hints come any more.
func (w *Watch) quiet(t *testing.T) {
	t.Helper()
	over := time.After(5 * gather)
	for {
		select {
		case <-w.Ready():
			if w.counts(w.Take()) {
				over = time.After(5 * gather)
			}
		case <-over:
			return
		}
	}
}

// expect waits for one of a kind.
func (w *Watch) expect(t *testing.T, kind, what string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-w.Ready():
			if h := w.Take(); h.All || slices.Contains(h.Kinds, kind) {
				w.quiet(t)
				return
			}
		case <-deadline:
			t.Errorf("%s: no hint at %s", what, kind)
			return
		}
	}
}

// silent expects no hint for a while.
func (w *Watch) silent(t *testing.T, what string) {
	t.Helper()
	over := time.After(5 * gather)
	for {
		select {
		case <-w.Ready():
			if h := w.Take(); w.counts(h) {
				t.Errorf("%s: hint at %+v", what, h)
			}
		case <-over:
			return
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	do(t, os.MkdirAll(root+"/etc/security/limits.d", 0o755))
	do(t, os.WriteFile(root+"/etc/motd", []byte("a"), 0o644))
	do(t, os.MkdirAll(root+"/sys/block/vda/queue", 0o755))
	do(t, os.WriteFile(root+"/sys/block/vda/queue/scheduler", []byte("a"), 0o644))
	w := start(t, root, spec.Items{Files: []spec.File{{Path: "/etc/motd"}, {Path: "/etc/new/deep/x.conf"}}, Limits: []spec.Limit{{ID: "core"}},
		Sysfs: []spec.Sysfs{{Path: "/sys/block/vda/queue/scheduler"}}, Perm: &spec.Perm{Paths: []spec.PermPath{{Path: "/etc/motd"}, {Path: "/etc/*.d"}}},
		Units: []spec.Unit{{Name: "a.service", DropIns: []spec.DropIn{{Name: "10-x"}}}}})
	w.silent(t, "nothing")
	do(t, os.WriteFile(root+"/etc/other", nil, 0o644))
	w.silent(t, "another file")
	_, err := os.ReadFile(root + "/etc/motd")
	do(t, err)
	w.silent(t, "reading")

	do(t, os.WriteFile(root+"/etc/motd", []byte("b"), 0o644))
	w.expect(t, "files", "a write")
	do(t, os.WriteFile(root+"/etc/tmp", []byte("c"), 0o644))
	do(t, os.Rename(root+"/etc/tmp", root+"/etc/motd"))
	w.expect(t, "files", "a rename over it")
	do(t, os.WriteFile(root+"/etc/motd", []byte("d"), 0o644))
	w.expect(t, "files", "a write after a rename")
	do(t, os.Chmod(root+"/etc/motd", 0o600))
	w.expect(t, "perm", "chmod")
	do(t, os.Remove(root+"/etc/motd"))
	w.expect(t, "files", "a removal")

	do(t, os.WriteFile(root+"/etc/security/limits.d/60-caisson-core.conf", nil, 0o644))
	w.expect(t, "limits", "a limit")
	do(t, os.RemoveAll(root+"/etc/security"))
	w.expect(t, "limits", "its directories gone")
	do(t, os.MkdirAll(root+"/etc/security/limits.d", 0o755))
	w.quiet(t)
	do(t, os.WriteFile(root+"/etc/security/limits.d/60-caisson-core.conf", nil, 0o644))
	w.expect(t, "limits", "a limit in a directory that came again")

	do(t, os.MkdirAll(root+"/etc/new/deep", 0o755))
	w.quiet(t)
	do(t, os.WriteFile(root+"/etc/new/deep/x.conf", nil, 0o644))
	w.expect(t, "files", "a file in directories that are new")
	do(t, os.WriteFile(root+"/sys/block/vda/queue/scheduler", []byte("b"), 0o644))
	w.expect(t, "sysfs", "an attribute")
	do(t, os.MkdirAll(root+"/etc/systemd/system/a.service.d", 0o755))
	w.quiet(t)
	do(t, os.WriteFile(root+"/etc/systemd/system/a.service.d/10-x.conf", nil, 0o644))
	w.expect(t, "units", "a drop-in")

	w.Follow(&spec.Overlay{}, nil)
	do(t, os.WriteFile(root+"/etc/motd", []byte("b"), 0o644))
	w.silent(t, "what is wanted no more")
}

// A storm is few hints, and one that is too large is said to be one.
func TestAStorm(t *testing.T) {
	root := t.TempDir()
	do(t, os.MkdirAll(root+"/etc", 0o755))
	w := start(t, root, spec.Items{Files: []spec.File{{Path: "/etc/motd"}}})
	var before, after unix.Rusage
	do(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
	hints := 0
	begun := time.Now()
	for time.Since(begun) < time.Second {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo >"+root+"/etc/motd; done")
		do(t, cmd.Run())
		select {
		case <-w.Ready():
			w.Take()
			hints++
		default:
		}
	}
	lasted := time.Since(begun)
	do(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
	if hints == 0 || hints > int(lasted/gather)+10 {
		t.Errorf("%d hints in %v", hints, lasted)
	}
	if took := time.Duration(after.Utime.Nano()-before.Utime.Nano()) + time.Duration(after.Stime.Nano()-before.Stime.Nano()); took > lasted*2/5 {
		t.Errorf("%v of storm took %v of a processor", lasted, took)
	}
	i := w.sources[item.Inotify].(*inotify)
	w.mutex.Lock() // so that nobody reads
	for range 20000 {
		do(t, os.WriteFile(root+"/etc/motd", nil, 0o644))
		do(t, os.Remove(root+"/etc/motd"))
	}
	lost := false
	for range 100 {
		_, more := i.drain()
		lost = lost || more
	}
	w.mutex.Unlock()
	if !lost {
		t.Error("an overflow of the queue is not told")
	}
}

// inNamespaces is itemtest.InNamespaces without its package: this one knows no items.
func inNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv("CAISSON_TEST_NAMESPACES") != "" {
		return true
	}
	require.Root(t)
	require.Tool(t, "ip", "mount", "ethtool")
	t.Parallel()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "CAISSON_TEST_NAMESPACES=1")
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := child.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("in namespaces: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("it did not run:\n%s", out)
	}
	return false
}

// What the kernel tells of, in namespaces of the test's own.
func TestKernel(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	run := func(line string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	dir := t.TempDir()
	// Parameters are told of whichever namespace they are in: nobody else has this one.
	card := fmt.Sprint("c", os.Getpid())
	run("ip link add " + card + " type veth peer name cs1")
	parameter := "net/ipv4/conf/" + card + "/accept_redirects"
	run("echo 0 >/proc/sys/" + parameter)
	w := start(t, "", spec.Items{Sysctl: []spec.Sysctl{{Key: parameter, Value: "0"}}})
	w.silent(t, "nothing")

	run("mount -t tmpfs -o size=1m tmpfs " + dir)
	w.expect(t, "mounts", "mount")
	run("mount -o remount,ro,size=1m " + dir)
	w.expect(t, "mounts", "remount")
	run("umount " + dir)
	w.expect(t, "mounts", "umount")

	if exec.CommandContext(t.Context(), "sh", "-c", "dd if=/dev/zero of="+dir+"/swap bs=64k count=16 2>/dev/null && chmod 600 "+dir+"/swap && mkswap "+dir+"/swap && swapon "+dir+"/swap").Run() == nil {
		w.expect(t, "swaps", "swapon") // where files of this directory may be swapped to
		run("swapoff " + dir + "/swap")
		w.expect(t, "swaps", "swapoff")
	}

	run("ethtool -K " + card + " tso off")
	w.expect(t, "ethtool", "a feature")
	run("ip link set " + card + " mtu 1400")
	w.expect(t, "nics", "an interface's mtu")
	run("ip link add cs2 type veth peer name cs3")
	w.expect(t, "sysctl", "a new interface")

	if !slices.Contains(w.Of("sysctl"), item.BPF) {
		require.Missing(t, "bpf", "the kernel does not tell of writes of kernel parameters")
	}
	writes := func() (kinds []string) { // that nobody has taken yet
		w.mutex.Lock()
		defer w.mutex.Unlock()
		kinds, _ = w.sources[item.BPF].drain()
		return kinds
	}
	run("cat /proc/sys/" + parameter)
	if kinds := writes(); kinds != nil {
		t.Errorf("reading a parameter: hint at %v", kinds)
	}
	w.silent(t, "reading a parameter")
	rival := exec.CommandContext(t.Context(), "sh", "-c", "echo 1 >/proc/sys/"+parameter+"; read x")
	stays, err := rival.StdinPipe()
	do(t, err)
	do(t, rival.Start())
	w.expect(t, "sysctl", "a write")
	who := w.Rival(spec.Drift{Item: "sysctl", Key: parameter, From: "1", To: "0"})
	if !strings.HasPrefix(who, fmt.Sprintf("sh (pid %d)", rival.Process.Pid)) {
		t.Errorf("rival %q, not %d", who, rival.Process.Pid)
	}
	do(t, stays.Close())
	_ = rival.Wait() // its read has failed
	for _, d := range []spec.Drift{{Item: "sysctl", Key: parameter, From: "2"}, {Item: "sysctl", Key: "vm/swappiness", From: "1"}, {Item: "sysfs", Key: parameter, From: "1"}} {
		if who := w.Rival(d); who != "" {
			t.Errorf("%+v is laid to %q", d, who)
		}
	}
	other := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-c", "ip link add "+card+" type veth peer name cs1; echo 1 >/proc/sys/"+parameter+"; echo done; read x")
	stays, err = other.StdinPipe()
	do(t, err)
	says, err := other.StdoutPipe()
	do(t, err)
	do(t, other.Start())
	if _, err := io.ReadFull(says, make([]byte, len("done\n"))); err != nil {
		t.Fatal(err)
	}
	writes() // while it is there to be looked at
	if w.Rival(spec.Drift{Item: "sysctl", Key: parameter, From: "1"}) != who {
		t.Error("a write in another namespace is taken for one here")
	}
	do(t, stays.Close())
	_ = other.Wait() // its read has failed
	do(t, os.WriteFile("/proc/sys/"+parameter, []byte("0"), 0o644))
	w.quiet(t)
	if w.Rival(spec.Drift{Item: "sysctl", Key: parameter, From: "0"}) != "" {
		t.Error("the agent is its own rival")
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range events(b) {
			if len(e.name) > len(b) {
				t.Errorf("%+v", e)
			}
		}
		monitorGroup(b)
	})
}

func TestTheTable(t *testing.T) {
	for _, k := range items.Hints {
		if len(k.Sources) == 0 || slices.Contains(k.Sources, item.Inotify) != (k.Places != nil) {
			t.Errorf("%s: %v", k.Kind, k.Sources)
		}
	}
	w := &Watch{kinds: items.Hints}
	all := w.places(&spec.Items{Modules: &spec.Modules{}, Files: []spec.File{{Path: "/etc/a"}}})
	for _, p := range all {
		if !filepath.IsAbs(p.at.Path) || p.kind == "" {
			t.Errorf("%+v", p)
		}
	}
	if len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

// A directory that is made while its place is looked for is found: nothing would tell of
// what comes into it.
func TestDirectoriesThatCome(t *testing.T) {
	require.Slow(t)
	all := t.TempDir()
	for n := range 500 {
		root := fmt.Sprint(all, "/", n)
		do(t, os.MkdirAll(root+"/a", 0o755))
		s, err := newInotify(&Watch{root: root})
		do(t, err)
		i := s.(*inotify)
		made := make(chan error)
		go func() { made <- os.MkdirAll(root+"/a/b/c/d/e", 0o755) }()
		do(t, i.follow([]place{{item.Place{Path: "/a/b/c/d/e/x"}, "files"}}))
		do(t, <-made)
		i.drain()
		do(t, os.WriteFile(root+"/a/b/c/d/e/x", nil, 0o644))
		if kinds, _ := i.drain(); len(kinds) == 0 {
			t.Fatal("a file in directories that are new: no hint")
		}
		i.close()
	}
}
