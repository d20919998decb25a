// SPDX-License-Identifier: Apache-2.0

package bootdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Installation is a disk that an operator wants this machine to boot from.
type Installation struct {
	Target *disk.Target
	Loader spec.Loader

	look *following
	own  *disk.ESP // the disk is this node's state disk, and has room
}

// Install looks at a disk, named by its path, serial number or WWN, and at what it would
// start. Nothing is changed. An error says why the disk cannot be installed on.
func Install(ctx context.Context, o session.Options, name string) (*Installation, error) {
	n, err := session.Read(o, nil)
	if err != nil {
		return nil, err
	}
	defer n.Close() // only read
	if n.Tracker == nil {
		return nil, n.Unbound
	}
	want, err := namedLoader(n)
	if err != nil {
		return nil, err
	}
	if want == nil {
		return nil, cli.WithHint(fmt.Errorf("fleet:current names no loader for %s", runtime.GOARCH),
			"'caisson loader' publishes one; 'caisson-agent sync' fetches it")
	}
	if err := loader.Check(*want); err != nil {
		return nil, err
	}
	f := &disk.Finder{Sys: n.Path("/sys"), Dev: n.Path("/dev"), Fleet: n.Tracker.Bootstrap.Fleet, Say: n.Say}
	if disk.E2fsInstalled() {
		f.Programs = disk.E2fsPrograms{}
	}
	i := &Installation{Loader: *want, look: &following{session: n, want: want, ctx: ctx}}
	if i.Target, err = f.Target(name); err != nil {
		return nil, err
	}
	if i.Target.Holds(n.Boot.Disk) {
		if i.own, err = disk.ESPBeside(f.Sys, f.Dev, n.Boot.Disk); err != nil {
			return nil, err
		}
		if i.own.Device != "" {
			return nil, fmt.Errorf("%s has a loader, which this node keeps up to date", i.Target.Device)
		}
	}
	return i, nil
}

// Own reports whether the disk is this node's state disk, which stays as it is: it gets a
// partition beside it.
func (i *Installation) Own() bool { return i.own != nil }

// Check is that of the disk.
func (i *Installation) Check(wipe bool) error {
	if i.Own() {
		return nil
	}
	err := i.Target.Check(wipe)
	if errors.Is(err, disk.ErrNotEmpty) {
		err = cli.WithHint(err, "--wipe erases what is on it")
	}
	return err
}

// Run installs. The loader is fetched onto the disk, and verified on the way: of what was there
// nothing is erased before it comes.
func (i *Installation) Run() error {
	if i.Own() {
		return i.look.install(i.own)
	}
	body, err := i.look.bring(oci.TypeESP)(i.Loader.ESP)
	if err != nil {
		return err
	}
	err = i.Target.Install(func(w io.WriterAt) error {
		_, err := io.Copy(io.NewOffsetWriter(w, 0), loader.Verified(body, i.Loader.ESP))
		return err
	})
	return errors.Join(err, body.Close())
}
