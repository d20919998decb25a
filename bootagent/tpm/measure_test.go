// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// newLog is that of a machine whose files are below a directory.
func newLog(t *testing.T, open func() (io.ReadWriteCloser, error)) (_ *Log, said *strings.Builder) {
	said = new(strings.Builder)
	l := LogOf(t.TempDir(), func(format string, args ...any) { fmt.Fprintf(said, format+"\n", args...) })
	if open != nil {
		l.TPM = TPM{Open: open, Limit: time.Minute}
	}
	if err := os.MkdirAll(filepath.Dir(l.Firmware), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Firmware, []byte("what the firmware has measured"), 0o600); err != nil {
		t.Fatal(err)
	}
	return l, said
}

// replays holds that the register has what the log says, and nothing else.
func replays(t *testing.T, l *Log, want ...spec.MeasuredEvent) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.Dir, OwnName))
	if err != nil {
		t.Fatal(err)
	}
	all, replayed, err := spec.Replay([32]byte{}, data)
	if err != nil || len(all) != len(want) {
		t.Fatalf("%+v, %v", all, err)
	}
	for i := range want {
		if all[i].Event != want[i] {
			t.Errorf("line %d is %s, want %s", i+1, all[i].Event, want[i])
		}
	}
	if got, err := l.TPM.Read(spec.PCR); err != nil || !bytes.Equal(got[0], replayed[:]) {
		t.Errorf("the register has %x, the log gives %x: %v", got, replayed, err)
	}
}

// TestOverAKexec: the loader behind it goes on with the log of the one before, and has the
// firmware's although its own kernel shows none.
func TestOverAKexec(t *testing.T) {
	require.Tool(t, "cpio")
	open := tpmtest.Start(t)
	first, said := newLog(t, open)
	first.Add(spec.Measured{Event: spec.MeasuredKexec, Layer: "sha256:l", Core: "sha256:c", Kernel: "sha256:k", Initrd: "sha256:i", Line: "quiet <1>"})
	archive := cpio.New()
	if err := first.Carry(archive); err != nil || said.Len() > 0 {
		t.Fatalf("%v, said %s", err, said)
	}

	second, said := newLog(t, open)
	if err := os.Remove(second.Firmware); err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSuffix(second.Carried, paths.Measured)
	unpack := exec.Command("cpio", "-idm", "--quiet")
	unpack.Dir, unpack.Stdin = root, bytes.NewReader(archive.Bytes())
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	second.Add(spec.Measured{Event: spec.MeasuredStack, Layer: "sha256:l", Core: "sha256:c"})
	second.Add(spec.Measured{Event: spec.MeasuredSoftReboot, Layer: "sha256:m", Core: "sha256:d"})
	if said.Len() > 0 {
		t.Error(said)
	}
	replays(t, second, spec.MeasuredKexec, spec.MeasuredStack, spec.MeasuredSoftReboot)
	if got, err := os.ReadFile(filepath.Join(second.Dir, FirmwareName)); err != nil || string(got) != "what the firmware has measured" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNothingIsWrittenThatWasNotMeasured: without a TPM, or with one that is ill, the node goes on
// and says so.
func TestNothingIsWrittenThatWasNotMeasured(t *testing.T) {
	ill := func() (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		return here, there.Close()
	}
	for name, row := range map[string]struct {
		open func() (io.ReadWriteCloser, error)
		said string
	}{
		"no TPM":     {nil, "stack is not measured: no TPM 2.0\n"},
		"an ill one": {ill, "stack is not measured: extend register 14: "},
	} {
		l, said := newLog(t, row.open)
		l.Add(spec.Measured{Event: spec.MeasuredStack})
		if _, err := os.Stat(filepath.Join(l.Dir, OwnName)); err == nil || !strings.HasPrefix(said.String(), row.said) {
			t.Errorf("%s: %v, said %q", name, err, said)
		}
	}
}

// TestALogThatIsFull is extended no more: a log that its readers refuse would help nobody.
func TestALogThatIsFull(t *testing.T) {
	l, said := newLog(t, tpmtest.Start(t))
	m := spec.Measured{Event: spec.MeasuredStack, Core: strings.Repeat("x", spec.MaxMeasured/2)}
	l.Add(m)
	l.Add(m)
	if !strings.HasPrefix(said.String(), "stack is not measured: the log has 13") {
		t.Errorf("said %q", said)
	}
	replays(t, l, spec.MeasuredStack)
}

// TestAKexecThatIsTriedAgain is one line: a kernel that the running one does not take fills no log.
func TestAKexecThatIsTriedAgain(t *testing.T) {
	l, said := newLog(t, tpmtest.Start(t))
	for _, line := range []string{"quiet", "quiet", "quiet splash"} {
		l.Add(spec.Measured{Event: spec.MeasuredKexec, Line: line})
	}
	l.Add(spec.Measured{Event: spec.MeasuredSoftReboot})
	l.Add(spec.Measured{Event: spec.MeasuredSoftReboot})
	if said.Len() > 0 {
		t.Error(said)
	}
	replays(t, l, spec.MeasuredKexec, spec.MeasuredKexec, spec.MeasuredSoftReboot, spec.MeasuredSoftReboot)
}
