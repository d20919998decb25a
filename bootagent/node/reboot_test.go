// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// What waits for a reboot is said where people and programs look for it, with its
// reason, and no longer when it does not wait any more. Lines of others stay.
func TestRebootRequired(t *testing.T) {
	m := runningMachine(t)
	read := func() (required bool, reasons string) {
		t.Helper()
		_, err := os.Stat(m.root + paths.RebootRequired)
		text, _ := os.ReadFile(m.root + paths.RebootReasons) // without the file there are no reasons
		return err == nil, string(text)
	}
	if required, reasons := read(); required || reasons != "" {
		t.Fatalf("nothing waits: %v, %q", required, reasons)
	}
	m.publish(2, layerNamed("b"), "10")
	m.sync()
	if required, reasons := read(); !required || reasons != "caisson: generation 2: another layer\n" {
		t.Errorf("a layer waits: %v, %q", required, reasons)
	}
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a"), KernelArgs: []string{"quiet"}}}, sign.Predicate{Generation: 3})
	m.confirm(time.Now())
	m.sync()
	if required, reasons := read(); !required || !strings.HasPrefix(reasons, "caisson: generation 3: arguments") {
		t.Errorf("arguments wait: %v, %q", required, reasons)
	}
	for range 2 { // the newest is as what runs
		m.publish(4, layerNamed("a"), "10")
		m.sync()
	}
	if required, reasons := read(); required || reasons != "" {
		t.Errorf("nothing waits any more: %v, %q", required, reasons)
	}
	for name, text := range map[string]string{paths.RebootRequired: "x\n", paths.RebootReasons: "linux-image\n"} {
		if err := os.WriteFile(m.root+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m.publish(5, layerNamed("b"), "10")
	m.sync()
	if _, reasons := read(); reasons != "linux-image\ncaisson: generation 5: another layer\n" {
		t.Errorf("beside others: %q", reasons)
	}
	m.publish(6, layerNamed("a"), "10")
	m.sync()
	if required, reasons := read(); !required || reasons != "linux-image\n" {
		t.Errorf("others wait still: %v, %q", required, reasons)
	}
}
