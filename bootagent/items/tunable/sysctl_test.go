// SPDX-License-Identifier: Apache-2.0

package tunable

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

func TestCheckSays(t *testing.T) {
	root := fake(t, map[string]string{"vm/ok": "1", "vm/fixed": "1", "vm/flush": "1"})
	for name, mode := range map[string]os.FileMode{"vm/fixed": 0o444} {
		if err := os.Chmod(root+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		want   spec.Sysctl
		action string // "" is not drift
	}{
		{"as wanted", spec.Sysctl{Key: "vm/ok", Value: "1"}, ""},
		{"differs", spec.Sysctl{Key: "vm/ok", Value: "2"}, spec.ActionChange},
		{"missing", spec.Sysctl{Key: "vm/none", Value: "2"}, spec.ActionDefer},
		{"missing, optional", spec.Sysctl{Key: "vm/none", Value: "2", Optional: true}, ""},
		{"read-only", spec.Sysctl{Key: "vm/fixed", Value: "2"}, spec.ActionRefuse},
		{"read-only, as wanted", spec.Sysctl{Key: "vm/fixed", Value: "1"}, ""},
		{"a folder", spec.Sysctl{Key: "vm", Value: "1"}, spec.ActionRefuse},
		{"outside", spec.Sysctl{Key: "../etc/passwd", Value: "1"}, spec.ActionRefuse},
		{"absolute", spec.Sysctl{Key: "/vm/ok", Value: "1"}, spec.ActionRefuse},
		{"unclean", spec.Sysctl{Key: "vm//ok", Value: "1"}, spec.ActionRefuse},
		{"empty key", spec.Sysctl{Key: "", Value: "1"}, spec.ActionRefuse},
		{"two lines", spec.Sysctl{Key: "vm/ok", Value: "1\n2"}, spec.ActionRefuse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			drift, err := NewSysctl([]spec.Sysctl{tc.want}, root, itemtest.Journal(t, t.TempDir())).Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tc.action == "" && len(drift) == 0 {
				return
			}
			if len(drift) != 1 || drift[0].Action != tc.action || tc.action != spec.ActionChange && drift[0].Reason == "" {
				t.Fatalf("drift %+v, want %q", drift, tc.action)
			}
		})
	}
}

// What the kernel keeps until it starts anew is neither a drift that comes back nor put back.
func TestOneWay(t *testing.T) {
	const key = "kernel/unprivileged_bpf_disabled"
	root := fake(t, map[string]string{key: "2"})
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysctl([]spec.Sysctl{{Key: key, Value: "1"}}, root, j)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionChange {
		t.Fatalf("%+v, %v", drift, err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	drift, err = NewSysctl([]spec.Sysctl{{Key: key, Value: "0"}}, root, j).Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionDefer || !strings.Contains(drift[0].Reason, "until it starts anew") {
		t.Errorf("another value: %+v, %v", drift, err)
	}
	if err := NewSysctl(nil, root, j).Restore(t.Context(), j.Entries(SysctlName)); err != nil || len(j.Entries(SysctlName)) > 0 {
		t.Errorf("restore: %v, %+v", err, j.Entries(SysctlName))
	}
	if data, err := os.ReadFile(root + "/" + key); err != nil || string(data) != "1\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// An interface that went takes its value with it: there is nothing to restore,
// and no failure for ever.
func TestVanishedKey(t *testing.T) {
	root := fake(t, map[string]string{"net/ipv4/conf/eth0.100/forwarding": "0"})
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysctl([]spec.Sysctl{{Key: "net/ipv4/conf/eth0.100/forwarding", Value: "1"}}, root, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(root + "/net"); err != nil {
		t.Fatal(err)
	}
	if err := NewSysctl(nil, root, j).Restore(t.Context(), j.Entries(SysctlName)); err != nil {
		t.Fatal(err)
	}
	if left := j.Entries(SysctlName); len(left) > 0 {
		t.Fatalf("entries are left: %+v", left)
	}
}

// A key that a coupled one covers and that is then wanted itself, and then not
// any more, gets its original back although the coupled one stays.
func TestSideThenOwn(t *testing.T) {
	root := fake(t, map[string]string{
		"net/ipv4/conf/all/forwarding": "0", "net/ipv4/conf/eth0/forwarding": "0",
	})
	j := itemtest.Journal(t, t.TempDir())
	all := spec.Sysctl{Key: "net/ipv4/conf/all/forwarding", Value: "1"}
	eth := spec.Sysctl{Key: "net/ipv4/conf/eth0/forwarding", Value: "2"}
	run := func(want ...spec.Sysctl) []spec.Drift {
		t.Helper()
		it := NewSysctl(want, root, j)
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
		return drift
	}
	run(all)
	run(all, eth)
	drift := run(all)
	if len(drift) != 1 || drift[0].Key != eth.Key || drift[0].Action != spec.ActionRemove || drift[0].To != "0" {
		t.Fatalf("drift %+v, want eth0 to go back to 0", drift)
	}
}

// What cannot be read could not be put back.
func TestWriteOnlyKey(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	drift, err := NewSysctl([]spec.Sysctl{{Key: "net/ipv4/route/flush", Value: "1"}}, "/proc/sys", itemtest.Journal(t, t.TempDir())).Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, "read") {
		t.Fatalf("drift %+v, %v", drift, err)
	}
}

// One bad key fails alone and is left as it was; no later one is skipped.
func TestOneFailureAlone(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysctl([]spec.Sysctl{
		{Key: "net/ipv4/conf/lo/rp_filter", Value: "2"},
		{Key: "net/ipv4/ip_default_ttl", Value: "bogus"},
		{Key: "net/ipv4/tcp_syn_retries", Value: "2e+06"},
		{Key: "net/ipv6/conf/lo/hop_limit", Value: "33"},
	}, "/proc/sys", j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = it.Apply(t.Context(), drift)
	if err == nil || !strings.Contains(err.Error(), `write sysctl "net.ipv4.ip_default_ttl" to "bogus": invalid argument`) || !strings.Contains(err.Error(), "tcp_syn_retries") {
		t.Fatalf("apply: %v, want both bad keys and why", err)
	}
	if drift, err = it.Check(t.Context()); err != nil || len(drift) != 2 {
		t.Fatalf("after apply: %+v, %v; want only the two bad keys", drift, err)
	}
	if entries := j.Entries(SysctlName); len(entries) != 2 {
		t.Fatalf("entries %+v, want those of the two good keys", entries)
	}
}

// fake is a directory that holds files as /proc/sys does.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for key, value := range files {
		name := filepath.Join(root, key)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func snapshot(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s=%q\n", strings.TrimPrefix(path, root), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// No user is at home where it acts: /proc/sys is the kernel's.
func TestConformance(t *testing.T) {
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		root := fake(t, map[string]string{
			"vm/swappiness":                      "60",
			"net/ipv4/tcp_rmem":                  "4096\t131072\t6291456",
			"net/ipv4/ip_local_reserved_ports":   "",
			"net/ipv4/conf/eth0.100/forwarding":  "0",
			"net/ipv4/conf/all/forwarding":       "0",
			"net/ipv4/ip_forward":                "0",
			"net/ipv4/conf/all/accept_redirects": "1",
		})
		want := []spec.Sysctl{
			{Key: "vm/swappiness", Value: "10"},
			{Key: "net/ipv4/tcp_rmem", Value: "4096 131072 8388608"},
			{Key: "net/ipv4/ip_local_reserved_ports", Value: "8080,9000-9010"},
			{Key: "net/ipv4/conf/all/forwarding", Value: "1"},
			{Key: "net/absent", Value: "1", Optional: true},
		}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return NewSysctl(want, root, j) },
			Empty:    func(j item.Journal) item.Item { return NewSysctl(nil, root, j) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}
