// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"
)

// TestStateDisk is a node that remembers: it boots without a registry, and what
// is not for it does not keep it from its last good overlay.
func TestStateDisk(t *testing.T) {
	f := fleet(t)
	options := f.withDisk(t)
	f.edit(t, "layer:\n", "layer:\n  persist: [/home]\n")
	f.publish(t)
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
		m := f.start(t, alone)
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

	byHand := f.byHand(t, options)
	t.Run("no network card", func(t *testing.T) { f.noCard(t, byHand) })
	t.Run("a disk that takes no writes", func(t *testing.T) { f.readOnlyDisk(t, byHand) })

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

	t.Run("a registry that sends a byte a second", func(t *testing.T) { f.slowRegistry(t, byHand, first.Generation) })
}
