// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// full is an overlay with everything in it.
func full() Overlay {
	return Overlay{
		Core: Core{
			APIVersion: APIVersion, Kind: KindOverlay, Fleet: "f", Node: "n", Match: Match{MACs: []string{"52:54:00:00:00:01"}, UUIDs: []string{"u"}},
			Layer: "sha256:0", Variant: "default", KernelArgs: []string{"quiet", "a<b>&c"}, Persist: []string{"/home"},
			Network: Network{DNS: []string{"192.0.2.1"}, Search: []string{"example.org"}, NTP: []string{"t"}, Interfaces: []Interface{{MAC: "m", Addresses: []string{"a"}, Gateway: "g", MTU: 9000, Optional: true, Routes: []Route{{To: "t", Via: "v", Metric: 1}}}, {Name: "b", Bond: &Bond{Members: []string{"m"}, Mode: Bond8023AD, LACPRate: LACPFast, MinLinks: 1, HashPolicy: HashPolicies[1], Primary: "m"}, DHCP: DHCPBoth}, {Name: "v", VLAN: &VLAN{ID: 1, On: "b"}}}},
			CAs:     []string{"pem\n"}, OnExpired: "hold", Needs: []string{"x"},
		},
		NeedsLayer: []NeedsLayer{{Item: "apt", Key: "jq", To: "installed"}},
		Maintenance: &Maintenance{Horizon: time.Unix(1800000000, 0).UTC(), Windows: map[string]Window{"w": {Intervals: []Interval{{time.Unix(1790000000, 0).UTC(), time.Unix(1790003600, 0).UTC()}}, StartGuard: 60, OnClose: "stop"}},
			Operations: []Operation{{ID: "sha256:1", Name: "m/o", Type: Cron, Windows: []string{"w"}, Disruptive: true, Runs: []time.Time{time.Unix(1790000000, 0).UTC()}, Jitter: 60, CatchUp: true, Retries: 1, Backoff: 60,
				Action: Action{Exec: Command{Argv: []string{"/bin/true"}, Timeout: 60}, Check: &Command{Argv: []string{"/bin/false"}, Timeout: 1}, Reboots: true},
				From:   "t@1@sha256:1", Order: &Order{When: []Condition{{File: "/a", Absent: "/b", Unit: "c.service", Command: &Command{Argv: []string{"/bin/true"}, Timeout: 1}}}, Slot: "g", Spread: 1, Drain: &Drain{Check: Command{Argv: []string{"/a"}, Timeout: 1}}, Soak: 1}}},
			Slots: map[string]Slot{"g": {Max: 1, FleetLock: "https://h", Directory: "/d"}}},
		Pause: &Pause{Reason: "r", Until: 1}, Confirm: &Confirm{Within: 60},
		Secrets: []Secret{{Name: "s", To: "age1", Sealed: "YQ=="}},
		Swap:    &LayerSwap{Windows: []string{"w"}, Order: Order{When: []Condition{{File: "/a"}}, Slot: "g", Spread: 1, Soak: 1}},
		Gates:   &Gates{Checks: []HealthCheck{{Name: "c", Command: []string{"/bin/true"}, Unit: "u.service", TCP: "h:1", HTTP: "http://h/", Status: 200, File: "/f", Timeout: 1, Interval: 1, Retries: 1, Soak: 1, Watch: true}}},
		Agent:   &Agent{Report: &Reporting{URL: "https://h", Interval: 300}, Metrics: &Metrics{File: "/f.prom", Listen: "127.0.0.1:1"}, Enforce: []Enforcement{{Item: "sysctl", Key: "vm/swappiness", Policy: PolicyReport, Budget: &Budget{Corrections: 3, Per: 60}}}, Credentials: &Credentials{Registry: "r", Report: "t"}},
		Services: []Service{{Name: "s", Unit: "s.service", Commit: "c", Image: Blob{Digest: "sha256:d", Size: 1}, User: "u", Package: "p", Action: ServiceStart,
			Directories: []ServiceDirectory{{From: "f", To: "/t", File: true}}}},
		Items: Items{
			Mounts:  []Mount{{ID: "a", Device: "d", Target: "/t", Type: "tmpfs", Options: []string{"ro"}, Before: []string{"b"}, After: []string{"c"}}},
			Limits:  []Limit{{ID: "a", Domain: "*", Type: "-", Item: "nofile", Value: "1"}},
			Sysctl:  []Sysctl{{Key: "vm/swappiness", Value: "", Optional: true}},
			Ethtool: []Feature{{Interface: "eth0", Feature: "rx-gro-hw", On: true}},
			Perm:    &Perm{Paths: []PermPath{{Path: "/x", Owner: "o", Group: "g", Mode: "0640"}}, Rerun: "never", Interval: -1, IgnoreMissing: true},
			Exec: []Exec{{Name: "e", Data: "#!/bin/sh\n\u2028", Args: []string{"1"}, Env: map[string]string{"B": "1", "A": "2"}, Rerun: "never", Blocking: "background",
				Timeout: 1, RerunInterval: 60, RetryInterval: 60, RerunMax: 1, RetryMax: 2, RerunForget: true, RetryForget: true, Once: "per-machine", Revert: "#!"}},
			Files:   []File{{Path: "/etc/motd", Content: "a\n", Mode: "0600", Owner: "root", Group: "adm"}},
			Modules: &Modules{Load: []string{"a"}, Parameters: []ModuleParameter{{Module: "b", Name: "c", Value: "1"}}, Blacklist: []string{"d"}},
			Units:   []Unit{{Name: "a.service", Content: "[Service]\n", DropIns: []DropIn{{Name: "b", Content: "[Unit]\n"}}, State: UnitEnabled, Run: RunStarted, Restart: true}},
			Swaps:   []Swap{{Device: "LABEL=s", Priority: new(int), Discard: "once"}},
			NICs:    []NIC{{ID: "a", Match: NICMatch{Driver: "d"}, Settings: []NICSetting{{Group: "ring", Name: "rx", Value: "1"}}}},
			Sysfs:   []Sysfs{{Path: "/sys/block/a/queue/scheduler", Value: "none", Optional: true}},

			Passwords: []Password{{User: "u", Secret: "s"}},
		},
	}
}

func TestDecodeTakesWhatEncodeGives(t *testing.T) {
	for name, doc := range map[string]Overlay{"full": full(), "empty": {}} {
		data, err := Encode(doc)
		if err != nil {
			t.Fatal(err)
		}
		var again Overlay
		if err := Decode(data, &again); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What two readers could read differently is refused.
func TestDecodeRefuses(t *testing.T) {
	data, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, bad := range map[string]string{
		"space":         strings.Replace(good, `":`, `": `, 1),
		"trailing":      good + "\n",
		"two documents": good + good,
		"duplicate key": strings.Replace(good, `"node":"n"`, `"node":"other","node":"n"`, 1),
		"case":          strings.Replace(good, `"node":"n"`, `"Node":"n"`, 1),
		"unknown":       strings.Replace(good, `"node":"n"`, `"node":"n","extra":1`, 1),
		"order":         strings.Replace(good, `"fleet":"f","node":"n"`, `"node":"n","fleet":"f"`, 1),
		"escape":        strings.Replace(good, `"node":"n"`, `"node":"\u006e"`, 1),
		"escaped html":  strings.Replace(good, `a<b>&c`, `a\u003cb>&c`, 1),
		"null":          strings.Replace(good, `"node":"n"`, `"node":null`, 1),
		"written zero":  strings.Replace(good, `"mtu":9000`, `"mtu":0`, 1),
		"float":         strings.Replace(good, `"mtu":9000`, `"mtu":9e3`, 1),
		"map order":     strings.Replace(good, `{"A":"2","B":"1"}`, `{"B":"1","A":"2"}`, 1),
		"empty list":    strings.Replace(good, `"cas":["pem\n"]`, `"cas":[]`, 1),
		"bad UTF-8":     strings.Replace(good, `"node":"n"`, "\"node\":\"\xff\"", 1),
		"cut":           good[:len(good)-1],
		"nothing":       "",
		"number":        "1",
	} {
		if bad == good {
			t.Fatalf("%s changes nothing", name)
		}
		var o Overlay
		if err := Decode([]byte(bad), &o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	var o Overlay
	if err := Decode([]byte(good+" "), &o); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("err = %v, want ErrNotCanonical", err)
	}
}

// FuzzDecode: what is taken encodes to the very bytes it was read from.
func FuzzDecode(f *testing.F) {
	for _, doc := range []any{full(), Overlay{}, Layer{}, Bootstrap{}, Status{}, Recipe{}} {
		data, err := Encode(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion":"","kind":"","node":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, doc := range []any{&Overlay{}, &Layer{}, &Bootstrap{}, &Status{}, &Recipe{}} {
			if Decode(data, doc) != nil {
				continue
			}
			again, err := Encode(doc)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, data) {
				t.Errorf("%T: %q is taken, but encodes to %q", doc, data, again)
			}
		}
	})
}
