// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/spec"
)

// limit is how long one step of a machine may take, without KVM and on a busy
// host, before the test gives up.
const limit = 4 * time.Minute

// fleet builds the programs and a layer of the quickstart, once a test.
// edits are pairs of texts, replaced in the site before.
func fleet(t *testing.T, edits ...string) *Fleet {
	t.Helper()
	require.Root(t)
	require.Tool(t, "qemu-system-x86_64", "busybox", "mmdebstrap", "mksquashfs", "sgdisk", "mkfs.ext4")
	if testing.Short() {
		t.Skip("short: virtual machines take minutes")
	}
	bin := t.TempDir() // what is tested is what the tree says now
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "build", "BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	f := &Fleet{Dir: t.TempDir(), Bin: bin, Show: t.Output()}
	f.must(t, "init", ".")
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		f.edit(t, edits[i], edits[i+1])
	}
	f.must(t, "build", "site.yaml", "--to", f.To(), "--key", "keys/release.key", "--fast")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Fleet) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.Caisson(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// boot starts a machine whose console is shown when the test fails.
func (f *Fleet) boot(t *testing.T, o Options) *Machine {
	t.Helper()
	m, err := f.Boot(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.PowerCut()
		if t.Failed() {
			t.Logf("end of the console of %s:\n%s", m.Name, m.Tail(60))
		}
	})
	return m
}

func waitFor(t *testing.T, m *Machine, from int, markers ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	marker, err := m.Console.Wait(ctx, from, markers...)
	if err != nil {
		t.Fatal(err)
	}
	return marker
}

// login waits for sshd and for the service's first run.
func (f *Fleet) login(t *testing.T, m *Machine) *Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s, err := m.Login(ctx, "admin", f.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // the test is over
	if _, err := s.Run(ctx, "systemctl is-system-running --wait >/dev/null; true"); err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, s *Session, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := s.Run(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func status(t *testing.T, s *Session) spec.Status {
	t.Helper()
	var st spec.Status
	if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent status -o json")), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestDisklessNode is the life of a node without a disk: it boots by PXE, holds
// what the site says, refuses what is not for it, changes layer and goes back.
func TestDisklessNode(t *testing.T) {
	f := fleet(t)
	m := f.boot(t, Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	s := f.login(t, m)
	for _, c := range Quickstart("beta", "1") {
		if _, err := c.Run(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	first := status(t, s)
	if first.Mode != "netboot" || first.Source != "fetched" || first.Sync != "current" || first.Generation == 0 {
		t.Errorf("status %+v", first)
	}
	if len(first.Foreign) > 0 {
		t.Errorf("files that nobody wrote are in the upper: %v", first.Foreign)
	}
	f.memory(t, s)
	if t.Failed() {
		t.FailNow() // what follows takes minutes
	}

	t.Run("a running node refuses and goes on", func(t *testing.T) { f.refuseWhileRunning(t, s, first) })
	t.Run("a live change", func(t *testing.T) { f.liveChange(t, s) })
	t.Run("another layer and back", func(t *testing.T) { f.swapAndPin(t, m, s, first.Layer) })
}

// TestBookworm is the same site on the release before: another kernel, systemd
// and AppArmor.
func TestBookworm(t *testing.T) {
	f := fleet(t, "suite: trixie", "suite: bookworm", "abi <abi/4.0>", "abi <abi/3.0>")
	s := f.login(t, f.boot(t, Options{Name: "beta", MAC: "52:54:00:00:00:0b"}))
	for _, c := range Quickstart("beta", "1") {
		if _, err := c.Run(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
}

// memory holds the running agent to its budget: 24 MiB at its peak, which is
// reached while it applies. It says nothing of speed, so it may be a test.
func (f *Fleet) memory(t *testing.T, s *Session) {
	out := run(t, s, "awk '/^VmHWM|^VmRSS/{print $2}' /proc/$(systemctl show -P MainPID caisson-agent)/status")
	var peak, now int
	if _, err := fmt.Sscan(out, &peak, &now); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Logf("agent: %.1f MiB at its peak, %.1f MiB now", float64(peak)/1024, float64(now)/1024)
	if peak > 24*1024 {
		t.Errorf("the agent took %d KiB", peak)
	}
}

// refuseWhileRunning shows a tampered overlay and another node's to a live node.
func (f *Fleet) refuseWhileRunning(t *testing.T, s *Session, before spec.Status) {
	for _, attack := range []struct {
		name, code string
		do         func() error
	}{
		{"tampered", "subject", func() error { return f.Tamper(t.Context(), "beta", `"value":"1"`, `"value":"9"`) }},
		{"another node's", "wrong-node", func() error { return f.Impersonate(t.Context(), "beta", "alpha") }},
	} {
		if err := attack.do(); err != nil {
			t.Fatal(err)
		}
		out := run(t, s, "sudo caisson-agent sync -o json 2>&1 >/tmp/status; echo code $?; grep -o '\"sync\": *\"[^\"]*\"' /tmp/status")
		if !strings.Contains(out, "refused ("+attack.code+")") || !strings.Contains(out, "code 4") || !strings.Contains(out, "refused:"+attack.code) {
			t.Errorf("%s: the node says\n%s", attack.name, out)
		}
		if got := run(t, s, "cat /proc/sys/vm/swappiness"); got != "1" {
			t.Errorf("%s: the node took swappiness %s", attack.name, got)
		}
		if after := status(t, s); after.Overlay != before.Overlay || after.Generation != before.Generation || after.Health != "ok" {
			t.Errorf("%s: the node changed to %+v", attack.name, after)
		}
		f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key", "--all")
	}
}

// liveChange publishes a runtime change and takes it back: no reboot, and what
// left the config has its original value again.
func (f *Fleet) liveChange(t *testing.T, s *Session) {
	boot := run(t, s, "cat /proc/sys/kernel/random/boot_id")
	f.edit(t, "    kernel.panic: 30\n", "    kernel.panic: 40\n    kernel.pid_max: 100000\n")
	original := run(t, s, "cat /proc/sys/kernel/pid_max")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/pid_max"); got != "40\n100000" {
		t.Errorf("after the change: %q", got)
	}
	f.edit(t, "    kernel.panic: 40\n    kernel.pid_max: 100000\n", "    kernel.panic: 30\n")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/pid_max"); got != "30\n"+original {
		t.Errorf("after it was taken back: %q, the original was %s", got, original)
	}
	if got := run(t, s, "cat /proc/sys/kernel/random/boot_id"); got != boot {
		t.Error("the node rebooted for a runtime change")
	}
}

// swapAndPin reboots into a layer with one more package and back by a pin; in
// between the node is shown another node's overlay and waits for its own.
func (f *Fleet) swapAndPin(t *testing.T, m *Machine, s *Session, previous string) {
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.must(t, "build", "site.yaml", "--to", f.To(), "--key", "keys/release.key", "--fast")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
	if out := run(t, s, "sudo caisson-agent sync"); !strings.Contains(out, "waits for a reboot: another layer") {
		t.Errorf("the running node says\n%s", out)
	}
	s = f.reboot(t, m, s)
	if got := run(t, s, "echo 6*7 | bc"); got != "42" {
		t.Errorf("the new package prints %q", got)
	}
	if st := status(t, s); st.Layer == previous || st.Health != "ok" {
		t.Errorf("after the reboot: %+v", st)
	}

	if err := f.Impersonate(t.Context(), "beta", "alpha"); err != nil {
		t.Fatal(err)
	}
	from := m.Console.Len()
	s.Run(t.Context(), "sudo systemctl reboot")           // the connection may end before the answer
	waitFor(t, m, from, "caisson: refused:wrong-machine") // it knows only its hardware
	waitFor(t, m, from, "caisson: next try in")
	f.must(t, "pin", f.To(), "--node", "beta", "--layer", previous, "--key", "keys/operator.key")
	waitFor(t, m, from, "caisson: entering the layer")
	s = f.login(t, m)
	if st := status(t, s); st.Layer != previous || st.Health != "ok" {
		t.Errorf("after the pin: %+v", st)
	}
	if got := run(t, s, "command -v bc || echo none"); got != "none" {
		t.Errorf("the package of the newer layer is still there: %s", got)
	}
}

// TestStateDisk is a node that remembers: it boots without a registry, and what
// is not for it does not keep it from its last good overlay.
func TestStateDisk(t *testing.T) {
	f := fleet(t)
	disk := filepath.Join(f.Dir, "state.raw")
	if err := StateDisk(t.Context(), disk, 1024); err != nil {
		t.Fatal(err)
	}
	f.edit(t, "layer:\n", "layer:\n  persist: [/home]\n")
	f.must(t, "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
	options := Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: "4c4c4544-0000-2010-8020-80c04f202020", Disk: disk}
	m := f.boot(t, options)
	s := f.login(t, m)
	first := status(t, s)
	id := run(t, s, "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub")
	if first.Source != "fetched" || first.Health != "ok" {
		t.Fatalf("first boot: %+v", first)
	}
	if got := run(t, s, "stat -c %U:%a ~; echo kept > note; sync; ls -a /etc/ssh/authorized_keys.d"); !strings.HasPrefix(got, "admin:7") {
		t.Errorf("the persisted home: %q", got)
	}
	m.PowerCut()

	t.Run("registry unreachable", func(t *testing.T) {
		alone := options
		alone.Name = "alpha-alone"
		alone.Forwards = map[string]string{} // the loader comes by PXE, the registry is dead
		kernel, initrd := f.loader(t)
		alone.Kernel, alone.Initrd, alone.Append = kernel, initrd, "console=ttyS0 net.ifnames=0" // one argument is missing: the node enters its kernel by kexec
		alone.Dir = f.Dir
		m, err := Start(t.Context(), alone)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			m.PowerCut()
			if t.Failed() {
				t.Log(m.Tail(60))
			}
		})
		s := f.login(t, m)
		st := status(t, s)
		if st.Source != "cached" || st.Sync != "unreachable" || st.Overlay != first.Overlay || st.Health != "ok" {
			t.Errorf("without a registry: %+v", st)
		}
		if got := run(t, s, "cat note"); got != "kept" {
			t.Errorf("the persisted home has %q", got)
		}
		if got := run(t, s, "grep -o transparent_hugepage=never /proc/cmdline"); got == "" || !strings.Contains(m.Console.String(), "caisson: kexec: kernel") {
			t.Errorf("kernel argument %q, without a kexec", got)
		}
		if got := run(t, s, "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub"); got != id {
			t.Errorf("the node is another one: %s, before %s", got, id)
		}
	})

	t.Run("tampered overlay", func(t *testing.T) {
		if err := f.Tamper(t.Context(), "alpha", `"value":"10"`, `"value":"99"`); err != nil {
			t.Fatal(err)
		}
		m := f.boot(t, options)
		waitFor(t, m, 0, "caisson: refused:subject")
		waitFor(t, m, 0, "caisson: booting the last good overlay")
		s := f.login(t, m)
		st := status(t, s)
		if st.Source != "cached" || st.Sync != "refused:subject" || st.Overlay != first.Overlay || st.Health != "ok" {
			t.Errorf("with a tampered overlay: %+v", st)
		}
		if got := run(t, s, "cat /proc/sys/vm/swappiness"); got != "10" {
			t.Errorf("swappiness is %s", got)
		}
	})
}

// reboot restarts the machine from inside and logs in again.
func (f *Fleet) reboot(t *testing.T, m *Machine, s *Session) *Session {
	t.Helper()
	from := m.Console.Len()
	_, _ = s.Run(t.Context(), "sudo systemctl reboot") // the connection may end before the answer
	waitFor(t, m, from, "caisson: entering the layer")
	return f.login(t, m)
}

// edit changes the site file; a text that is not there is a broken test.
func (f *Fleet) edit(t *testing.T, from, to string) {
	t.Helper()
	name := filepath.Join(f.Dir, "site.yaml")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("the site has no %q", from)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// loader joins the parts of the network boot for a direct one.
func (f *Fleet) loader(t *testing.T) (kernel, initrd string) {
	t.Helper()
	dir := filepath.Join(f.Dir, "netboot")
	var all []byte
	for _, part := range []string{"initrd", "site.cpio"} {
		data, err := os.ReadFile(filepath.Join(dir, part))
		if err != nil {
			t.Fatal(err)
		}
		for len(all)%4 != 0 { // where the kernel looks for the next archive; boot loaders do the same
			all = append(all, 0)
		}
		all = append(all, data...)
	}
	initrd = filepath.Join(f.Dir, "loader.img")
	if err := os.WriteFile(initrd, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kernel"), initrd
}
