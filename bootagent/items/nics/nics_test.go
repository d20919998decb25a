// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// ip runs ip(8) in the namespace of the test.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cards makes a veth with four channels, and a tap, whose driver has coalescing and
// a speed that can be set.
func cards(t *testing.T) {
	t.Helper()
	ip(t, "link", "add", "cs0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "name", "cs1", "numrxqueues", "4", "numtxqueues", "4")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "cs0").Run() }) // a test may have done it
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		require.Missing(t, "net", err.Error())
	}
	ip(t, "tuntap", "add", "dev", "tap0", "mode", "tap")
	t.Cleanup(func() { ip(t, "tuntap", "del", "dev", "tap0", "mode", "tap") })
}

func nic(name string, settings ...spec.NICSetting) spec.NIC {
	return spec.NIC{ID: name, Match: spec.NICMatch{Name: name}, Settings: settings}
}

func set(group, name, value string) spec.NICSetting {
	return spec.NICSetting{Group: group, Name: name, Value: value}
}

// The real kernel: what its drivers hold is set and comes back.
//
// No user is at home where it acts: it asks the kernel by a socket.
func TestKernel(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	want := []spec.NIC{
		nic("cs0", set("channels", "rx", "2"), set("channels", "tx", "3")),
		nic("tap0", set("coalesce", "rx-frames", "7"), set("link", "duplex", "half"), set("link", "speed", "100")),
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		cards(t)
		return itemtest.World{
			Wanted: func(j item.Journal) item.Item { return New(want, "/sys", j) },
			Empty:  func(j item.Journal) item.Item { return New(nil, "/sys", j) },
			Snapshot: func() string {
				var out strings.Builder
				for _, key := range []string{"cs0/channels/rx", "cs0/channels/tx", "cs0/channels/combined", "tap0/coalesce/rx-frames", "tap0/link/speed", "tap0/link/duplex", "tap0/link/autoneg"} {
					value, err := kernel{}.Read(key)
					if err != nil {
						t.Fatalf("%s: %v", key, err)
					}
					fmt.Fprintln(&out, key, value)
				}
				return out.String()
			},
		}
	})
}

func TestCheckSays(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	cards(t)
	for _, c := range []struct {
		want           spec.NIC
		action, reason string
	}{
		{nic("none0", set("ring", "rx", "1")), spec.ActionDefer, "no such key"},
		{spec.NIC{ID: "a", Match: spec.NICMatch{Driver: "ixgbe"}, Settings: []spec.NICSetting{set("ring", "rx", "1")}}, spec.ActionDefer, "no such key"},
		{nic("cs0", set("channels", "rx", "5")), spec.ActionRefuse, "at most 4"},
		{nic("cs0", set("ring", "rx", "5")), spec.ActionRefuse, "not supported"},
		{nic("cs0", set("private", "turbo", "on")), spec.ActionRefuse, `no private flag "turbo"`},
		{nic("cs0", set("ring", "rx-max", "5")), spec.ActionRefuse, "not a setting of ring"},
		{nic("a/b", set("ring", "rx", "5")), spec.ActionRefuse, "not the name of an interface"},
		{nic("cs0", set("channels", "rx", "2")), spec.ActionChange, ""},
		{nic("cs0", set("channels", "rx", "4")), "", ""},
	} {
		drift, err := New([]spec.NIC{c.want}, "/sys", itemtest.Journal(t, t.TempDir())).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.action == "" && len(drift) == 0 {
			continue
		}
		if len(drift) != 1 || drift[0].Action != c.action || !strings.Contains(drift[0].Reason, c.reason) {
			t.Errorf("%+v: %+v", c.want, drift)
		}
	}
}

// What a later release set and this one does not know is an error of the item, and is kept to be
// taken back by the release that knows it.
func TestRestoreOfUnknown(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	cards(t)
	for key, says := range map[string]string{
		"cs0/channels/later":  "there is no setting later of channels",
		"tap0/link/later":     "there is no setting later of link",
		"cs0/private/later":   `no private flag "later"`,
		"cs0/later/rx":        "there is no setting rx of later",
		"cs0/channels":        "there is no setting  of channels",
		"cs0":                 "there is no setting  of ",
		"tap0/coalesce/a/b/c": "there is no setting a/b/c of coalesce",
	} {
		j := itemtest.Journal(t, t.TempDir())
		index, err := NewEthtoolKernel().Index(strings.Split(key, "/")[0])
		if err != nil {
			t.Fatal(err)
		}
		prior := fmt.Sprintf(`{"value": "1", "index": %d, "later": 1}`, index)
		e := item.Entry{Item: Name, Key: key, Prior: []byte(prior), Applied: []byte(`"2"`), Scope: item.Kernel}
		if err := j.Record(e); err != nil {
			t.Fatal(err)
		}
		it := New(nil, "/sys", j)
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRemove {
			t.Errorf("%s: %+v, %v", key, drift, err)
		}
		if err := it.Restore(t.Context(), j.Entries(Name)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", key, err, says)
		}
		if len(j.Entries(Name)) != 1 {
			t.Errorf("%s: its original is forgotten", key)
		}
		var kept spec.Items
		if it.Kept(&kept); len(kept.NICs) > 0 {
			t.Errorf("%s: kept as %+v", key, kept.NICs)
		}
	}
	if err := (kernel{}).Write("tap0/link/later", "1"); err == nil {
		t.Error("a link is set for a setting that is not known")
	}
}

// Two entries that mean one interface and differ are refused.
func TestTwoEntries(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip(t, "link", "add", "cs0", "numrxqueues", "4", "type", "veth", "peer", "name", "cs1")
	sys := t.TempDir()
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) }) // the namespace ends with the test
	address, err := os.ReadFile(sys + "/class/net/cs0/address")
	if err != nil {
		t.Fatal(err)
	}
	byMAC := spec.NIC{ID: "b", Match: spec.NICMatch{MAC: strings.TrimSpace(string(address))}, Settings: []spec.NICSetting{set("channels", "rx", "3")}}
	for value, action := range map[string]string{"2": spec.ActionRefuse, "3": spec.ActionChange} {
		drift, err := New([]spec.NIC{nic("cs0", set("channels", "rx", value)), byMAC}, sys, itemtest.Journal(t, t.TempDir())).Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != action || drift[0].Key != "cs0/channels/rx" {
			t.Errorf("%s: %+v, %v", value, drift, err)
		}
	}
}

// Every name that a site may write is one that the kernel is asked for.
func TestNamesAgree(t *testing.T) {
	for group, g := range groups {
		for _, name := range g.names {
			if strings.HasSuffix(name, "-max") {
				continue
			}
			n := nic("none0", set(group, name, "on"))
			if name != "adaptive-rx" && name != "adaptive-tx" && group != "pause" {
				n.Settings[0].Value = "1"
			}
			drift, err := New([]spec.NIC{n}, t.TempDir(), itemtest.Journal(t, t.TempDir())).Check(t.Context())
			if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionDefer {
				t.Errorf("%s %s: %+v, %v", group, name, drift, err)
			}
		}
	}
}
