// SPDX-License-Identifier: Apache-2.0

// A node gets to another layer by a soft-reboot where only
// what runs starts again, see systemd-soft-reboot.service(8), and else by a reboot.
//
// The kernel goes on, and with it its values, the boot id and the files below /run.
// Every mount of the old root ends: the next root has its own of the images, of the
// state disk and of persisted directories, made by the code that the loader uses.

package root

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// Next is the root that a soft-reboot leads to.
type Next struct {
	Pair     Pair
	Boot     *record.Boot // of the root that runs
	State    *state.Folder
	Store    *layers.Store
	Missing  []spec.Blob // images that are not in the store yet
	Unproven bool        // no boot has proved the pair yet
	UUID     string      // SMBIOS, "" where the firmware gives none
	Say      func(format string, args ...any)

	whenRead map[string]verity.Hash // of Check
	images   record.Images
	readAll  func(why error) error

	under string       // prefix of every path, for tests
	can   func() error // why the kernel cannot check images while they are read; nil is layers.CanCheck
}

func (n *Next) path(name string) string { return filepath.Join(n.under, name) }

func (n *Next) canCheck() error {
	switch {
	case n.Boot.Disk == "":
		return ErrInMemory
	case n.can != nil:
		return n.can()
	}
	return layers.CanCheck()
}

// Check brings the images into the store, or leaves them to the kernel, as the loader does.
// Where this root does not come up, the boot after it reads them all.
func (n *Next) Check(ctx context.Context, staged stage.Stager) (err error) {
	n.whenRead, n.images, err = Check(ctx, staged, *n.Pair.Layer, func() (*stage.Trees, error) {
		if err := n.canCheck(); err != nil {
			return nil, err
		}
		sound, err := n.Store.TakeSound()
		fault.Say(n.Say, fault.In(err, "all images are read"))
		return &stage.Trees{Sound: sound}, nil
	})
	n.readAll = func(why error) error {
		n.Say("images are not checked while they are read: %v", why)
		return staged.Verified(ctx, stage.Images(*n.Pair.Layer)...)
	}
	return err
}

// Stack makes the root at paths.NextRoot out of images that are checked, and leaves its
// record in it. When it fails, no part of it stays mounted.
func (n *Next) Stack() (err error) {
	if err := n.Clear(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Clear())
		}
	}()
	at := n.path(paths.NextRoot)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	var steps uptime.Recorder
	made := Root{At: at, Images: n.path(paths.RunNext + "/images"), Upper: n.path(paths.RunNext + "/upper"),
		Store: n.Store, Layer: n.Pair.Layer, Trace: &steps,
		WhenRead: n.whenRead, ReadAll: n.readAll, Node: handover.Node{Overlay: n.Pair.Overlay, State: n.State,
			Disk: n.Boot.Disk != "", Watchdog: time.Duration(n.Boot.Watchdog) * time.Second, Unproven: n.Unproven,
			UUID: n.UUID, Network: table.Boot{Lease: n.Boot.Lease, Made: n.Boot.Network}, Say: n.Say, SecretsLater: true}}
	boot := record.Boot{Mode: n.Boot.Mode, Disk: n.Boot.Disk, DiskTrouble: n.Boot.DiskTrouble,
		Source: spec.SourceCached, Sync: spec.SyncBehind, SyncDetail: n.Boot.SyncDetail,
		Generation: n.Pair.Generation, Upper: paths.RootUpper, Images: n.images,
		Live: record.Live{Asked: n.Boot.Live.Asked, Had: n.Boot.Live.Had, Began: n.Boot.Live.Began, Counts: n.Boot.Live.Counts}}
	if n.Unproven { // what the registry has, as far as is known
		boot.Sync, boot.SyncDetail = spec.SyncCurrent, ""
		if n.Boot.Sync != spec.SyncUnreachable {
			boot.Source = spec.SourceFetched
		}
	}
	core, err := spec.RootID(n.Pair.Overlay, n.Pair.Generation.Layer)
	if err != nil {
		return err
	}
	tpm.LogOf(n.under, n.Say).Add(spec.Measured{Event: spec.MeasuredSoftReboot, Layer: n.Pair.Generation.Layer, Core: core})
	if err := made.Make(&boot); err != nil {
		return err
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run"} { // systemd moves its own there
		if err := os.MkdirAll(at+dir, 0o755); err != nil {
			return err
		}
	}
	upper := at + paths.RootUpper
	if err := os.MkdirAll(upper, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(made.Upper, upper, "", unix.MS_BIND, ""); err != nil { // no mount below /run is left in the next root
		return fmt.Errorf("show the writable part at %s: %w", upper, err)
	}
	fault.Say(n.Say, fault.In(n.startWanted(), "the next root does not start what devices want"))
	boot.Trace, boot.Wrote = steps.Steps(), append(boot.Wrote, paths.RootBoot)
	if err := record.SaveBoot(at+paths.RootBoot, &boot); err != nil {
		return err
	}
	return n.unmount() // the root holds what it is made of, and systemd has less to end
}

// Clear unmounts a root that was made and is not wanted any more.
func (n *Next) Clear() error { return n.unmount(n.path(paths.NextRoot)) }

// unmount ends mounts, and those of the parts of a root.
func (n *Next) unmount(first ...string) error {
	parts, err := filepath.Glob(n.path(paths.RunNext + "/images/*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, at := range append(append(first, n.path(paths.RunNext+"/upper")), parts...) {
		// EINVAL: nothing is mounted there.
		errs = append(errs, fault.In(fault.But(unix.Unmount(at, unix.MNT_DETACH), unix.EINVAL, unix.ENOENT), "unmount %s", at))
	}
	return errors.Join(errs...)
}

// Pair is an overlay on a layer: what a root is made of.
type Pair struct {
	Generation state.Generation
	Overlay    *spec.Overlay
	Layer      *spec.Layer
}

// Class says how a node that runs an overlay on the root of a record gets to the root of a
// pair with another layer, and why it is not less.
func Class(boot *record.Boot, running *spec.Overlay, to Pair) (class, why string) {
	class, why = spec.RootMove(&boot.Layer, to.Layer)
	for _, e := range spec.Changes(running, to.Overlay) {
		if e.Part != spec.PartLayer && spec.Worse(e.Class, class) {
			class, why = e.Class, e.Why
		}
	}
	switch {
	case class != spec.ClassSoftReboot:
	case boot.ReadOnly:
		return spec.ClassReboot, "the state disk can only be read: no attempt can be counted"
	case to.Generation.Attempts > 0:
		return spec.ClassReboot, "it was begun before, and did not come up"
	}
	return class, why
}
