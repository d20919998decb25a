// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media/uki"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// TestLongMeasured walks a machine with a TPM from a medium through a kexec to its root: the
// register replays from the log, and the stub's has what is computed of the medium's loader.
func TestLongMeasured(t *testing.T) {
	require.Long(t)
	tpm := tpmtest.ForMachine(t)
	f := fleet(t, withUEFI...)
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
