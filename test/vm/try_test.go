// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// TestTry tries a node of a site that has no keys and that nobody has published: it is up
// with the site's values and cards, the site's gate and what is asked of it decide the exit
// code, and nothing is left. One that is interrupted when its machine has found its state
// disk leaves nothing either.
func TestTry(t *testing.T) {
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edit(t, "machine:\n", "health:\n  - {name: greeted, file: /run/hello}\nmachine:\n")
	before := tries(t)
	t.Run("interrupted", func(t *testing.T) { f.interrupted(t, before) })
	t.Run("walked", func(t *testing.T) { f.walked(t, before) })
}

// walked has two hours: a machine beside others may have little of a processor.
func (f *Fleet) walked(t *testing.T, before []string) {
	out, err := f.Caisson(t.Context(), "try", "site.yaml", "--node", "beta", "--nics", "2", "-o", "json", "--timeout", "2h",
		"--check", "cat /proc/sys/vm/swappiness /sys/class/net/*/address", "--check", "grep ^NAME= /etc/os-release; false")
	if err == nil || !strings.Contains(err.Error(), "exit status 5") {
		t.Fatalf("%v\n%s", err, out)
	}
	type check struct {
		Passed bool
		Exit   int
		Output string
	}
	var got struct {
		Passed                bool
		Reason, Health, Layer string
		Gates, FailedUnits    []string
		Checks                []check
		ProcessorSeconds      float64
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	if got.FailedUnits == nil || len(got.FailedUnits) > 0 {
		t.Errorf("units that failed: %q, want an empty list", got.FailedUnits)
	}
	if got.Passed || got.Health != "ok" || !slices.Equal(got.Gates, []string{"greeted"}) || got.Reason != "check grep ^NAME= /etc/os-release; false" || got.ProcessorSeconds == 0 {
		t.Errorf("%+v", got)
	}
	if len(got.Checks) != 2 || !got.Checks[0].Passed || got.Checks[0].Output != "1\n52:54:00:00:00:0b\n52:54:00:ca:15:01\n00:00:00:00:00:00" ||
		got.Checks[1].Passed || got.Checks[1].Exit != 1 || !strings.Contains(got.Checks[1].Output, "Debian") {
		t.Errorf("checks %+v", got.Checks)
	}
	leftNothing(t, before)
}

func (f *Fleet) interrupted(t *testing.T, before []string) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(f.Bin, "caisson"), "try", "site.yaml", "--node", "alpha", "--disk")
	cmd.Dir = f.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	talk, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(talk); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), "caisson: state disk /dev/vda1") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v\n%s", err, strings.Join(said[max(0, len(said)-30):], "\n"))
	}
	leftNothing(t, before)
}

// tries are the directories that 'caisson try' has for as long as it runs.
func tries(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/var/cache/caisson/try/*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// leftNothing wants each directory to be that of a process that lives, or of before.
func leftNothing(t *testing.T, before []string) {
	t.Helper()
	for _, name := range tries(t) {
		if slices.Contains(before, name) {
			continue
		}
		dir, err := os.Open(name)
		if err != nil {
			continue // it has just been removed
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			t.Errorf("it has left %s", name)
		}
		dir.Close() // only read
	}
}

// TestLongTryRoads tries a node by media: firmware starts its loader from a disc, and from the
// machine's own disk. Each comes to its gates, with the memory and the cards that were asked for.
func TestLongTryRoads(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edit(t, "machine:\n", "health:\n  - {name: greeted, file: /run/hello}\nmachine:\n")
	f.edit(t, withUEFI[0], withUEFI[1])
	f.edit(t, "machine:\n", "secrets: {token: {command: [echo, hunter2]}}\nmachine:\n")
	f.edit(t, "  sysctl:\n", "  files: {/etc/token: {secret: token}}\n  sysctl:\n")
	before := tries(t)
	const token = "test \"$(cat /etc/token)\" = "
	for road, flags := range map[string][]string{
		"cd":   {"--iso", "--memory", "1536", "--nics", "3", "--check", "test $(ls /sys/class/net | wc -l) = 4", "--check", token + "hunter2", "--with-secrets", "--check", "awk '/^MemTotal/ {exit !($2 > 1300000 && $2 < 1572864)}' /proc/meminfo"},
		"disk": {"--disk", "--check", "test $(stat -f -c %T /var/lib/caisson) = ext2/ext3", "--check", token + "made-up-token"},
	} {
		t.Run(road, func(t *testing.T) {
			out, err := f.Caisson(t.Context(), append([]string{"try", "site.yaml", "--node", "beta", "-o", "json", "--timeout", "2h", "--check", "test -d /sys/firmware/efi"}, flags...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got struct {
				Passed bool
				Road   string
				Gates  []string
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", out)
			if !got.Passed || got.Road != road || !slices.Equal(got.Gates, []string{"greeted"}) {
				t.Errorf("%+v", got)
			}
			leftNothing(t, before)
		})
	}
}
