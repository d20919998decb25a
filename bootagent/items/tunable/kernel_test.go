// SPDX-License-Identifier: Apache-2.0

package tunable

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// values are all keys of IPv4 and IPv6 that can be read.
func values(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := newSysctlTree("/proc/sys")
	defer root.done()
	for _, family := range []string{"ipv4", "ipv6"} {
		err := filepath.WalkDir("/proc/sys/net/"+family, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			key := strings.TrimPrefix(path, "/proc/sys/")
			if value, err := root.Read(key); err == nil {
				all[key] = value
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func kernelSnapshot(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	all := values(t)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s=%q\n", key, all[key])
	}
	return out.String()
}

// reset puts every value back when the test is over, as a new namespace has it.
func reset(t *testing.T) {
	t.Helper()
	before := values(t)
	t.Cleanup(func() {
		root := newSysctlTree("/proc/sys")
		defer root.done()
		for range 3 {
			for key, now := range values(t) {
				if was, ok := before[key]; ok && was != now {
					_ = root.Write(key, was) // the next pass, and then the next test, see
				}
			}
		}
	})
}

// network makes a namespace's values mixed, which writing an "all" flattens.
func network(t *testing.T) {
	t.Helper()
	reset(t)
	if out, err := exec.Command("ip", "link", "add", "cs0", "type", "veth", "peer", "name", "cs0.100").CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "cs0").Run() })
	root := newSysctlTree("/proc/sys")
	defer root.done()
	for key, value := range map[string]string{
		"net/ipv4/conf/cs0/forwarding": "1", "net/ipv4/ip_local_reserved_ports": "7000",
		"net/ipv6/conf/cs0/addr_gen_mode":               "3",
		"net/ipv6/conf/cs0/ignore_routes_with_linkdown": "1", "net/ipv6/conf/cs0.100/forwarding": "1",
	} {
		if err := root.Write(key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// The real kernel, in a network namespace with interfaces of its own: restore
// gives back every value of IPv4 and IPv6, also those that were never written.
func TestKernel(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	want := []spec.Sysctl{
		{Key: "net/ipv4/tcp_rmem", Value: "4096 131072 8388608"},
		{Key: "net/ipv4/ip_local_reserved_ports", Value: ""},
		{Key: "net/ipv4/conf/cs0.100/rp_filter", Value: "2"},
		{Key: "net/ipv4/ip_default_ttl", Value: "0x20"},
		// The kernel wants the second before the first.
		{Key: "net/ipv4/ip_local_port_range", Value: "800 900"},
		{Key: "net/ipv4/ip_unprivileged_port_start", Value: "700"},
		// The second resets the first, which is as wanted before.
		{Key: "net/ipv4/conf/all/accept_redirects", Value: "1"},
		{Key: "net/ipv4/conf/all/forwarding", Value: "1"},
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		network(t)
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return NewSysctl(want, "/proc/sys", j) },
			Empty:    func(j item.Journal) item.Item { return NewSysctl(nil, "/proc/sys", j) },
			Snapshot: func() string { return kernelSnapshot(t) },
		}
	})
}

// Writing one of these changes others in passing. If the kernel gains such a
// pair, this is where it shows.
func TestKernelSides(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	for _, w := range []spec.Sysctl{
		{Key: "net/ipv4/ip_forward", Value: "1"},
		{Key: "net/ipv4/conf/all/forwarding", Value: "1"},
		{Key: "net/ipv4/conf/all/rp_filter", Value: "1"},
		{Key: "net/ipv6/conf/all/forwarding", Value: "1"},
		{Key: "net/ipv6/conf/all/disable_ipv6", Value: "1"},
		{Key: "net/ipv6/conf/default/disable_ipv6", Value: "1"},
		{Key: "net/ipv6/conf/default/forwarding", Value: "1"},
		{Key: "net/ipv6/conf/all/ignore_routes_with_linkdown", Value: "1"},
		{Key: "net/ipv6/conf/all/proxy_ndp", Value: "1"},
		{Key: "net/ipv6/conf/all/addr_gen_mode", Value: "1"},
		{Key: "net/ipv6/conf/all/accept_ra", Value: "2"},
	} {
		t.Run(w.Key, func(t *testing.T) {
			network(t)
			before := values(t)
			j := itemtest.Journal(t, t.TempDir())
			it := NewSysctl([]spec.Sysctl{w}, "/proc/sys", j)
			drift, err := it.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := it.Apply(t.Context(), drift); err != nil {
				t.Fatal(err)
			}
			if drift, err = it.Check(t.Context()); err != nil || len(drift) > 0 {
				t.Fatalf("after apply: %+v, %v", drift, err)
			}
			if err := NewSysctl(nil, "/proc/sys", j).Restore(t.Context(), j.Entries(SysctlName)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, values(t)); diff != "" {
				t.Fatalf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// ipOf returns ip(8) of a test.
func ipOf(t *testing.T) func(args ...string) {
	return func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
}

// An interface that was deleted and made again is another one: it gets no value of
// the old one.
func TestAnotherInterfaceOfTheName(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip := ipOf(t)
	const key = "net/ipv4/conf/sys0/rp_filter"
	root := newSysctlTree("/proc/sys")
	defer root.done()
	ip("link", "add", "sys0", "type", "veth", "peer", "name", "sys1")
	if err := root.Write(key, "0"); err != nil {
		t.Fatal(err)
	}
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysctl([]spec.Sysctl{{Key: key, Value: "1"}}, root.root, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	ip("link", "del", "sys0")
	ip("link", "add", "sys0", "type", "veth", "peer", "name", "sys1")
	if err := root.Write(key, "2"); err != nil {
		t.Fatal(err)
	}
	if err := NewSysctl(nil, root.root, j).Restore(t.Context(), j.Entries(SysctlName)); err != nil {
		t.Fatal(err)
	}
	if now, err := root.Read(key); err != nil || now != "2" || len(j.Entries(SysctlName)) > 0 {
		t.Errorf("the new interface has %q, %v; entries %+v", now, err, j.Entries(SysctlName))
	}
}

// What an apply keeps open is no longer there when its interface went: the check behind it sees
// the one that came, and leaves nothing open.
func TestAnotherInterfaceBehindAnApply(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip := ipOf(t)
	open := func() int {
		t.Helper()
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	ip("link", "add", "sys0", "type", "veth", "peer", "name", "sys1")
	want := []spec.Sysctl{{Key: "net/ipv4/conf/sys0/rp_filter", Value: "1"}, {Key: "net/ipv4/conf/sys1/rp_filter", Value: "1"}}
	it := NewSysctl(want, "/proc/sys", itemtest.Journal(t, t.TempDir()))
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := open()
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	ip("link", "del", "sys0")
	ip("link", "add", "sys0", "type", "veth", "peer", "name", "sys2")
	drift, err = it.Check(t.Context())
	if err != nil || len(drift) != 2 || drift[0].Key != want[0].Key || drift[0].Action != spec.ActionChange ||
		drift[1].Action != spec.ActionDefer {
		t.Fatalf("%+v, %v", drift, err)
	}
	if now := open(); now > before {
		t.Errorf("%d files are open, %d were", now, before)
	}
}

// The kernel keeps what was set for an interface under the interface's new name.
func TestRenamedInterface(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip := ipOf(t)
	ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
	holds := func(key, want string) {
		t.Helper()
		root := newSysctlTree("/proc/sys")
		defer root.done()
		if got, err := root.Read(key); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", key, got, err, want)
		}
	}
	apply := func(j item.Journal, want ...spec.Sysctl) {
		t.Helper()
		it := NewSysctl(want, "/proc/sys", j)
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left []item.Entry
		for _, e := range j.Entries(it.Name()) {
			if slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Key == e.Key && d.Action == spec.ActionRemove }) {
				left = append(left, e)
			}
		}
		if err := it.Restore(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
	}
	j := itemtest.Journal(t, t.TempDir())
	set := spec.Sysctl{Key: "net/ipv4/conf/v0/rp_filter", Value: "2"}
	apply(j, set)
	holds("net/ipv4/conf/v0/rp_filter", "2")
	ip("link", "set", "v0", "name", "v9")
	apply(j)
	holds("net/ipv4/conf/v9/rp_filter", "0")
	if left := j.Entries(SysctlName); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	// By its new name it is the site's again; one that was made again is another interface.
	ip("link", "set", "v9", "name", "v0")
	apply(j, set)
	ip("link", "set", "v0", "name", "v9")
	apply(j, spec.Sysctl{Key: "net/ipv4/conf/v9/rp_filter", Value: "1"})
	holds("net/ipv4/conf/v9/rp_filter", "1")
	apply(j)
	holds("net/ipv4/conf/v9/rp_filter", "0")
	ip("link", "set", "v9", "name", "v0")
	apply(j, set)
	ip("link", "del", "v0")
	ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
	apply(j)
	holds("net/ipv4/conf/v0/rp_filter", "0")
	// Another one takes its name: each gets back what it had itself, also where a change comes first.
	for _, first := range []bool{false, true} {
		ip("link", "add", "w0", "type", "veth", "peer", "name", "w1")
		apply(itemtest.Journal(t, t.TempDir()), spec.Sysctl{Key: "net/ipv4/conf/w0/rp_filter", Value: "1"})
		apply(j, set)
		ip("link", "set", "v0", "name", "v9")
		ip("link", "set", "w0", "name", "v0")
		if first {
			it := NewSysctl([]spec.Sysctl{set}, "/proc/sys", j)
			if err := it.Apply(t.Context(), []spec.Drift{{Item: SysctlName, Key: set.Key, From: "1", To: set.Value, Action: spec.ActionChange}}); err != nil {
				t.Fatal(err)
			}
		} else {
			apply(j, set)
		}
		holds("net/ipv4/conf/v9/rp_filter", "0")
		holds("net/ipv4/conf/v0/rp_filter", "2")
		apply(j)
		holds("net/ipv4/conf/v0/rp_filter", "1")
		ip("link", "del", "v0")
		ip("link", "set", "v9", "name", "v0")
	}
}

// An interface has its parameters and attributes by its alternative names, too, and they go back
// under whatever name it has by then.
func TestOtherNames(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	sys, ip := kernel(t), ipOf(t)
	ip("link", "property", "add", "dev", "cs0", "altname", "enp3s0")
	j := itemtest.Journal(t, t.TempDir())
	keys := []string{"net/ipv4/conf/%s/rp_filter", "net/ipv6/neigh/%s/ucast_solicit", "/sys/class/net/%s/tx_queue_len", "/sys/class/net/%s/queues/rx-0/rps_cpus"}
	read := func(name string) (values []string) {
		t.Helper()
		root := newSysctlTree("/proc/sys")
		defer root.done()
		for n, key := range keys {
			files := []Files{root, root, sysfsTree{sys, "/proc"}, sysfsTree{sys, "/proc"}}
			value, err := files[n].Read(fmt.Sprintf(key, name))
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return values
	}
	before := read("cs0")
	for _, name := range []string{"enp3s0", "cs0"} {
		key := func(n int) string { return fmt.Sprintf(keys[n], name) }
		for _, it := range []*Item{
			NewSysctl([]spec.Sysctl{{Key: key(0), Value: "2"}, {Key: key(1), Value: "9"}}, "/proc/sys", j),
			NewSysfs([]spec.Sysfs{{Path: key(2), Value: "123"}, {Path: key(3), Value: "1"}}, sys, "/proc", j),
		} {
			drift, err := it.Check(t.Context())
			if err != nil || len(drift) != 2 || drift[0].Action != spec.ActionChange || drift[1].Action != spec.ActionChange {
				t.Fatalf("%+v, %v", drift, err)
			}
			if err := it.Apply(t.Context(), drift); err != nil {
				t.Fatal(err)
			}
		}
		if now := read("cs0"); now[0] != "2" || now[1] != "9" || now[2] != "123" || mask(now[3]) != "1" {
			t.Errorf("%s: %q", name, now)
		}
		ip("link", "set", "cs0", "name", "cs9")
		if err := errors.Join(NewSysctl(nil, "/proc/sys", j).Restore(t.Context(), j.Entries(SysctlName)),
			NewSysfs(nil, sys, "/proc", j).Restore(t.Context(), j.Entries(SysfsName))); err != nil {
			t.Fatal(err)
		}
		if now := read("cs9"); !slices.Equal(now, before) {
			t.Errorf("%s: %q is not put back to %q", name, now, before)
		}
		ip("link", "set", "cs9", "name", "cs0")
	}
}
