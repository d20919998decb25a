// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func TestKmsgLine(t *testing.T) {
	for record, want := range map[string]string{
		"6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n": "[    5.140900] NET: Registered",
		"3,1,77,c,caller=T1;caisson: a; b":                  "[    0.000077] caisson: a; b",
		"6,339":                                             "",
		"6,339,soon,-;x":                                    "",
		"6,1,1000000,-;" + strings.Repeat("x", 2*maxLine):   "[    1.000000] " + strings.Repeat("x", maxLine-15),
	} {
		if got, ok := kmsgLine(record); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", record, got, ok)
		}
	}
}

func TestConsole(t *testing.T) {
	require.Root(t)
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skip("the kernel's log may not be read here:", err)
	} else {
		_ = f.Close() // only read
	}
	if lines := Console("/dev/kmsg"); len(lines) == 0 || len(lines) > maxLines || !strings.HasPrefix(lines[0], "[") {
		t.Errorf("%q", lines)
	}
	if lines := Console("/nowhere"); lines != nil {
		t.Errorf("%q", lines)
	}
}

// TestUnderTheAgentsUnit: the service reads it, too, where the kernel shows it to nobody
// without CAP_SYSLOG, as Debian's does.
func TestUnderTheAgentsUnit(t *testing.T) {
	if !itemtest.InSystemd(t, itemtest.Confinement(t, systemd.Units, "caisson-agent.service")...) {
		return
	}
	if lines := Console("/dev/kmsg"); len(lines) == 0 {
		t.Error("nothing is read of the kernel's log")
	}
}

// Firmware takes a dump in pieces, the newest lines first; reserved memory in one.
func TestDumps(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(1_700_000_000, 0)
	write := func(name, text string, when time.Time) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	write("dmesg-efi_pstore-170000000001001", "Panic#1 Part1\n<4>[    9.2] Call Trace:\n<0>[    9.3] end Kernel panic\n", at.Add(time.Second))
	write("dmesg-efi_pstore-170000000002001", "Panic#1 Part2\n<6>[    9.0] caisson: entering the layer\n<0>[    9.1] Kernel panic - not syncing\n", at)
	write("dmesg-ramoops-0", "Oops#2 Part1\n<1>[    3.0] BUG: unable to handle\n", at.Add(-time.Hour))
	write("dmesg-ramoops-1.enc.z", "\x78\x9c\x00", at)
	write("console-ramoops-0", "Panic#1 Part1\nnot a dump\n", at)
	dumps := Dumps(dir)
	if len(dumps) != 2 || dumps[0].Reason != "Oops" || dumps[1].Reason != "Panic" {
		t.Fatalf("%+v", dumps)
	}
	want := []string{"[    9.0] caisson: entering the layer", "[    9.1] Kernel panic - not syncing", "[    9.2] Call Trace:", "[    9.3] end Kernel panic"}
	if !slices.Equal(dumps[1].Console, want) {
		t.Errorf("%q", dumps[1].Console)
	}
	if err := dumps[1].Forget(); err != nil {
		t.Fatal(err)
	}
	if left := Dumps(dir); len(left) != 1 || left[0].Reason != "Oops" {
		t.Errorf("%+v", left)
	}
	if none := Dumps(filepath.Join(dir, "none")); none != nil {
		t.Errorf("%+v", none)
	}
}

// A trace is longer than what an event keeps of the console: the line that says why the
// kernel died is kept, and what was before it, rather than the registers.
func TestADumpKeepsWhyTheKernelDied(t *testing.T) {
	lines := func(n int, text string) (all string) {
		for i := range n {
			all += fmt.Sprintf("<4>[    2.%06d] %s\n", i, text)
		}
		return all
	}
	for name, c := range map[string]struct{ text, why, first string }{
		"panic": {
			text: lines(40, "before") + "<6>[    3.1] the last words\n<0>[    3.2] Kernel panic - not syncing: sysrq triggered crash\n" + lines(39, " ? do_syscall_64+0x93/0x180"),
			why:  "Panic: Kernel panic - not syncing: sysrq triggered crash", first: "[    2.000033] before",
		},
		"oops": {
			text: "<1>[    3.2] Oops: general protection fault\n" + lines(30, " ? a") + "<0>[    3.3] Kernel panic - not syncing: Fatal exception\n" + lines(9, " ? b"),
			why:  "Panic: Oops: general protection fault", first: "[    3.2] Oops: general protection fault",
		},
		"short": {text: "<0>[    3.2] Kernel panic - not syncing\n", why: "Panic: Kernel panic - not syncing", first: "[    3.2] Kernel panic - not syncing"},
		"late":  {text: lines(40, "before") + "<0>[    3.2] Kernel panic\n", why: "Panic: Kernel panic", first: "[    2.000017] before"},
		"none":  {text: lines(40, "nothing says why"), why: "Panic", first: "[    2.000016] nothing says why"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "dmesg-ramoops-0"), []byte("Panic#1 Part1\n"+c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		dumps := Dumps(dir)
		if len(dumps) != 1 || dumps[0].Why() != c.why || dumps[0].Console[0] != c.first || len(dumps[0].Console) != min(maxLines, strings.Count(c.text, "\n")) {
			t.Errorf("%s: %+v", name, dumps)
		}
	}
}
