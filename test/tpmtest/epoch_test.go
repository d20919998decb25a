// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

// TestEpoch: the highest epoch of a fleet is kept over a boot, another fleet's goes, and a TPM that is cleared
// knows of none.
func TestEpoch(t *testing.T) {
	open, again := Switched(t)
	machine := tpm.TPM{Open: open, Limit: time.Minute}
	notes := func(fleet string, accepted, want uint64) {
		t.Helper()
		if got, err := machine.Epoch(fleet, accepted); err != nil || got != want {
			t.Errorf("%s: after epoch %d it is %d, not %d: %v", fleet, accepted, got, want, err)
		}
	}
	notes("metal-a", 0, 0)
	notes("metal-a", 3, 3)
	notes("metal-a", 2, 3)
	again()
	notes("metal-a", 0, 3)
	notes("metal-b", 0, 0)
	notes("metal-a", 0, 3)
	notes("metal-b", 1, 1)
	notes("metal-a", 0, 0)
	notes("metal-a", 1<<53-1, 1<<53-1)
	clears(t, open)
	notes("metal-a", 0, 0)
	notes("metal-a", 4, 4)

	if got, err := tpm.Of(t.TempDir()).Epoch("metal-a", 3); got != 0 || err != nil {
		t.Errorf("without a TPM: %d, %v", got, err)
	}
	gives(t, open, func(to transport.TPM) error { // the owner's password is somebody's
		_, err := tpm2.HierarchyChangeAuth{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
			NewAuth: tpm2.TPM2BAuth{Buffer: []byte("hunter2")}}.Execute(to)
		return err
	})
	notes("metal-a", 0, 4)
	if got, err := machine.Epoch("metal-a", 5); got != 4 || err == nil || !strings.HasPrefix(err.Error(), "the epoch that the TPM keeps: note epoch 5: TPM_RC") {
		t.Errorf("%d, %v", got, err)
	}
}

// rising is a node of a machine with a TPM, and its disks.
type rising struct {
	t       *testing.T
	fleet   *fixture.Fleet
	machine track.Epochs
	said    []string
}

// on opens the node with a disk, as a loader does.
func (r *rising) on(disk string) *track.Tracker {
	r.t.Helper()
	folder, err := state.Open(disk)
	if err != nil {
		r.t.Fatal(err)
	}
	f := &track.Tracker{Source: r.fleet.Registry.Source(), Bootstrap: r.fleet.Bootstrap(), Identity: trust.Identity{Node: fixture.Node},
		Folder: folder, Epochs: r.machine, Say: func(format string, args ...any) { r.t.Logf(format, args...); r.said = append(r.said, format) }}
	if err := f.Recover(); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// publish signs an overlay of an epoch.
func (r *rising) publish(epoch, generation uint64) {
	r.t.Helper()
	var grant [][]byte
	if epoch > 0 {
		grant = append(grant, r.fleet.Permit(epoch))
	}
	r.fleet.Overlay(spec.Overlay{Core: spec.Core{Layer: "sha256:" + strings.Repeat("ab", 32)}},
		sign.Predicate{Epoch: epoch, Generation: generation, IssuedAt: fixture.Now(), Expires: fixture.Now().Add(time.Hour)}, grant...)
}

// proves has a node accept what is published and run it well.
func (r *rising) proves(f *track.Tracker) {
	r.t.Helper()
	if _, err := f.Sync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	s, err := f.Folder.Load()
	if err == nil {
		s.Promote()
		err = f.Folder.Save(s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func newRising(t *testing.T, open func() (io.ReadWriteCloser, error)) *rising {
	return &rising{t: t, fleet: fixture.NewFleet(t), machine: tpm.TPM{Open: open, Limit: time.Minute}}
}

// TestAnOldDisk that is put back after the fleet's epoch was raised is not booted from, nor does an old
// registry bring its node back. It waits for an overlay of that epoch, and takes it.
func TestAnOldDisk(t *testing.T) {
	open, again := Switched(t)
	r := newRising(t, open)
	disk, copied := t.TempDir(), t.TempDir()
	r.publish(0, 7)
	r.proves(r.on(disk))
	if out, err := exec.Command("cp", "-a", disk+"/.", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stolen := r.fleet.Registry.Source()
	r.publish(1, 1)
	r.proves(r.on(disk))
	if good, err := r.on(disk).Good(false); err != nil || len(good) != 1 || good[0].Generation.Epoch != 1 {
		t.Errorf("its own disk has %+v, %v", good, err)
	}

	again() // the machine is switched off, and begins with the copy
	f := r.on(copied)
	if good, err := f.Good(false); err != track.ErrNothing {
		t.Errorf("it would boot %+v, %v", good, err)
	}
	s, err := f.Folder.Load()
	if err != nil || s.Floor != (spec.Floor{Epoch: 1}) || len(s.Lost) != 1 ||
		!strings.HasPrefix(s.Lost[0], "the TPM of this machine has seen epoch 1, and the state disk knows of 0") {
		t.Errorf("%+v, %v", s, err)
	}
	r.publish(0, 9) // by the key that the epoch was raised against
	f.Source = stolen
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Epoch || err.Error() != "epoch 0, this node is at 1" {
		t.Errorf("of the epoch before: %v", err)
	}
	r.publish(1, 2)
	f = r.on(copied)
	r.proves(f)
	if s, err := f.Folder.Load(); err != nil || len(s.Lost) > 0 || s.Current.Generation != 2 {
		t.Errorf("%+v, %v", s, err)
	}

	diskless := r.on(t.TempDir())
	if s, err := diskless.Folder.Load(); err != nil || s.Floor.Epoch != 1 {
		t.Errorf("with an empty disk: %+v, %v", s, err)
	}
	r.proves(diskless)

	// Of a state that cannot be read no more comes back than of one that can.
	for _, name := range []string{"state.json", "state.copy.json"} {
		if err := os.WriteFile(copied+"/"+name, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.publish(2, 1)
	r.proves(r.on(disk))
	if good, err := r.on(copied).Good(false); err != track.ErrNothing {
		t.Errorf("of a damaged copy it would boot %+v, %v", good, err)
	}
}

// TestATPMThatForgets is no reason to stop, whatever it forgets: its disk counts, and the next
// generation has it know again.
func TestATPMThatForgets(t *testing.T) {
	open := Start(t)
	r := newRising(t, open)
	disk := t.TempDir()
	r.publish(1, 1)
	r.proves(r.on(disk))
	clears(t, open)
	if good, err := r.on(disk).Good(false); err != nil || len(good) != 1 {
		t.Errorf("%+v, %v", good, err)
	}
	r.proves(r.on(disk))
	if seen, err := r.machine.Epoch(fixture.Name, 0); seen != 0 || err != nil {
		t.Errorf("nothing was accepted, and it has %d, %v", seen, err)
	}
	r.publish(1, 2)
	r.proves(r.on(disk))
	if seen, err := r.machine.Epoch(fixture.Name, 0); seen != 1 || err != nil {
		t.Errorf("it has %d, %v", seen, err)
	}

	here, there := net.Pipe()
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	r.machine = tpm.TPM{Open: func() (io.ReadWriteCloser, error) { return here, nil }, Limit: time.Minute}
	r.said = nil
	r.publish(1, 3)
	r.proves(r.on(disk))
	if !slices.Contains(r.said, "%v") {
		t.Errorf("a TPM that is ill is not said: %q", r.said)
	}
}

// TestADiskSaysNothingOfEpochs: its floor is not signed, so one that somebody wrote raises nothing in the machine.
func TestADiskSaysNothingOfEpochs(t *testing.T) {
	r := newRising(t, Start(t))
	disk := t.TempDir()
	r.publish(0, 7)
	f := r.on(disk)
	r.proves(f)
	s, err := f.Folder.Load()
	if err == nil {
		s.Floor.Epoch = 60
		err = f.Folder.Save(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	f = r.on(disk)
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Epoch {
		t.Errorf("%v", err)
	}
	if seen, err := r.machine.Epoch(fixture.Name, 0); seen != 0 || err != nil {
		t.Errorf("it has seen %d, %v", seen, err)
	}
}
