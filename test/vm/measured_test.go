// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media/uki"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// TestLongMeasured walks a machine with a TPM from a medium through a kexec to its root, and by
// a soft-reboot to the next one: the register replays from the log, and the stub's has what
// is computed of the medium's loader.
func TestLongMeasured(t *testing.T) {
	require.Long(t)
	tpm := tpmtest.ForMachine(t)
	f := fleet(t, append([]string{"machine:\n", "machine:\n  agent: {poll: 1m}\n"}, withUEFI...)...)
	o := f.medium("beta", "52:54:00:00:00:0b")
	const other = "caisson.measured=1" // an argument that the overlay does not name is why there is a kexec
	o.CD, o.Memory, o.Extra = f.image(t, "boot.iso", "--kernel-arg", other), 1536, tpm
	m, s := f.arrives(t, o)
	if !strings.Contains(m.Console.String(), "caisson: kexec: kernel ") {
		t.Error("there was no kexec")
	}
	loader, err := os.ReadFile(f.image(t, "boot.efi", "--kernel-arg", other))
	if err != nil {
		t.Fatal(err)
	}
	_, stub, err := uki.Measure(loader)
	if err != nil {
		t.Fatal(err)
	}
	if got := register(t, s, uki.Register); got != hex.EncodeToString(stub[:]) {
		t.Errorf("the stub's register has %s, the loader gives %x", got, stub)
	}
	logReplays(t, s, spec.MeasuredKexec, spec.MeasuredStack)
	f.attested(t, s, "accepted.json")

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	staged(t, s)
	s = f.leaps(t, m, s)
	logReplays(t, s, spec.MeasuredKexec, spec.MeasuredStack, spec.MeasuredSoftReboot)
	f.attested(t, s, "now.json")
}

// attested asks the machine for a quote, keeps it in a file, and wants it attested by a loader of
// boot.efi, like the first one.
func (f *Fleet) attested(t *testing.T, s *machine.Session, name string) {
	t.Helper()
	const nonce = "000102030405060708090a0b0c0d0e0f"
	quote := run(t, s, "sudo caisson-agent quote --nonce "+nonce+" -o json")
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(quote), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(t, "verify-quote", name, f.To(), "--site", "site.yaml", "--node", "beta", "--nonce", nonce, "--like", "accepted.json", "--loader", "boot.efi")
}

// logReplays holds that the machine's register has what its log says.
func logReplays(t *testing.T, s *machine.Session, want ...spec.MeasuredEvent) {
	t.Helper()
	all, last, err := spec.Replay([32]byte{}, []byte(run(t, s, "sudo cat /run/caisson/measured/log")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var events []spec.MeasuredEvent
	for _, m := range all {
		events = append(events, m.Event)
	}
	if !slices.Equal(events, want) {
		t.Errorf("%v, want %v", events, want)
	}
	if got := register(t, s, spec.PCR); got != hex.EncodeToString(last[:]) {
		t.Errorf("the register has %s, the log gives %x", got, last)
	}
}

// register returns what is in a register of a machine's TPM.
func register(t *testing.T, s *machine.Session, number int) string {
	t.Helper()
	return strings.ToLower(run(t, s, fmt.Sprintf("sudo cat /sys/class/tpm/tpm0/pcr-sha256/%d", number)))
}
