// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/caisson-os/caisson/spec" // rules imports it
	"github.com/caisson-os/caisson/spec/rules"
)

// readers say what is wrong with a document whose key, by TYPE.FIELD, is a number, or a text
// or a list of that many of what [Bounds] counts.
var readers = map[string]func(n int64) error{
	"Agent.Poll":           rules.Poll,
	"Budget.Corrections":   func(n int64) error { return rules.Budget(Budget{Corrections: n, Per: 600}) },
	"Budget.Per":           func(n int64) error { return rules.Budget(Budget{Corrections: 5, Per: n}) },
	"Command.Argv":         func(n int64) error { return rules.Argv(argv(n)) },
	"Command.Timeout":      func(n int64) error { return operation(Command{Argv: []string{"/bin/true"}, Timeout: n}) },
	"Confirm.Within":       func(n int64) error { return rules.Confirm(&Confirm{Within: n}) },
	"Exec.Data":            func(n int64) error { return script(func(x *Exec) { x.Data = text(n) }) },
	"Exec.Revert":          func(n int64) error { return script(func(x *Exec) { x.Revert = text(n) }) },
	"Exec.Timeout":         func(n int64) error { return script(func(x *Exec) { x.Timeout = n }) },
	"Exec.RerunInterval":   func(n int64) error { return script(func(x *Exec) { x.RerunInterval = n }) },
	"Exec.RetryInterval":   func(n int64) error { return script(func(x *Exec) { x.RetryInterval = n }) },
	"Exec.MemoryMax":       func(n int64) error { return script(func(x *Exec) { x.MemoryMax = n }) },
	"Exec.CPUQuota":        func(n int64) error { return script(func(x *Exec) { x.CPUQuota = n }) },
	"Exec.TasksMax":        func(n int64) error { return script(func(x *Exec) { x.TasksMax = n }) },
	"File.Content":         func(n int64) error { return rules.File(File{Path: "/etc/a", Content: text(n)}) },
	"HealthCheck.Timeout":  func(n int64) error { return check(func(h *HealthCheck) { h.Timeout = n }) },
	"HealthCheck.Interval": func(n int64) error { return check(func(h *HealthCheck) { h.Interval = n }) },
	"HealthCheck.Retries":  func(n int64) error { return check(func(h *HealthCheck) { h.Retries = n }) },
	"HealthCheck.Soak":     func(n int64) error { return check(func(h *HealthCheck) { h.Soak = n }) },
	"Report.Seq":           report,
	"Reporting.Interval": func(n int64) error {
		return rules.Reporting(Reporting{URL: "https://fleet.example", Interval: n})
	},
	"Service.Directories": service,
	"Slot.Max":            func(n int64) error { return rules.Slot(Slot{Max: n, FleetLock: "https://lock.example"}) },
	"Swap.Priority": func(n int64) error {
		priority := int(n)
		return rules.Swap(Swap{Device: "/dev/vdb", Priority: &priority})
	},
	"Sysctl.Value": func(n int64) error { return rules.Sysctl(Sysctl{Key: "vm/swappiness", Value: text(n)}) },
	"Sysfs.Value":  func(n int64) error { return rules.Sysfs(Sysfs{Path: "/sys/block/sda/queue/scheduler", Value: text(n)}) },
}

func text(n int64) string { return strings.Repeat("a", int(n)) }

// argv returns arguments of n bytes, each with its NUL.
func argv(n int64) []string {
	if n < 10 {
		return slices.Repeat([]string{"/t"}, int(n)) // one is the least
	}
	return []string{"/" + text(n-2)}
}

func operation(c Command) error {
	return rules.Operation(Operation{Name: "a", ID: "sha256:" + strings.Repeat("a", 64), Type: OneShot, Action: Action{Exec: c}})
}

func script(set func(*Exec)) error {
	x := Exec{Name: "a", Data: "true"}
	set(&x)
	return rules.Exec(x)
}

func check(set func(*HealthCheck)) error {
	h := HealthCheck{Name: "a", File: "/run/ready", Timeout: 1, Interval: 1}
	set(&h)
	return rules.HealthCheck(h)
}

func report(n int64) error {
	if n < 0 {
		return fmt.Errorf("%d is not written", n)
	}
	data, err := Report{APIVersion: APIVersion, Kind: KindReport, Fleet: "a", Node: "b", Key: "c", BootID: "d", Grade: KeyPinned, Seq: uint64(n)}.Encode()
	if err == nil {
		_, err = DecodeReport(data)
	}
	return err
}

func service(n int64) error {
	s := Service{Name: "a", Unit: "a.service"}
	for i := range n {
		s.Directories = append(s.Directories, ServiceDirectory{From: ".", To: fmt.Sprintf("/opt/%03d", i)})
	}
	return rules.Service(s)
}

// TestBounds: readers take what the pages of docs/formats say, and nothing beyond it.
func TestBounds(t *testing.T) {
	if a, b := slices.Sorted(maps.Keys(Bounds)), slices.Sorted(maps.Keys(readers)); !slices.Equal(a, b) {
		t.Fatalf("the pages have bounds of %q, readers are asked of %q", a, b)
	}
	for key, b := range Bounds {
		for n, isFine := range map[int64]bool{b.Least: true, b.Most: true, b.Most + 1: false} {
			if err := readers[key](n); (err == nil) != isFine {
				t.Errorf("%s: %d: %v", key, n, err)
			}
		}
		if below := b.Least - 1; b.Of == "" || below >= 0 {
			if err := readers[key](below); (err == nil) != (b.Unset && below == 0) {
				t.Errorf("%s: %d: %v", key, below, err)
			}
		}
	}
}
