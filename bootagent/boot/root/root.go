// SPDX-License-Identifier: Apache-2.0

// Package root makes a root that a node can enter, out of a layer whose images are
// verified and in the store: it stacks them, hands the node over and fills in the
// record. The loader enters it by switch_root(8), a running node by a soft-reboot where that is
// enough, see [Class], and else by way of the loader.
//
// What a root is entered with is held to the machine before: its kernel to what firmware would start,
// see [CheckKernel], and its AppArmor profiles to what the kernel that runs knows, which takes them as
// they were compiled at build time, see [LoadProfiles] and apparmor(7).
package root

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Root holds the parts of a root.
type Root struct {
	At     string // where it is stacked
	Images string // directory for the mounted images
	Upper  string // directory for its writable part
	Store  *layers.Store
	Layer  *spec.Layer
	Node   handover.Node // Make says where and of which version it is
	Trace  *uptime.Recorder

	WhenRead map[string]verity.Hash // roots of the hash trees of images that the kernel checks while they are read
	ReadAll  func(why error) error  // verifies all images, where that fails for one of them; none is checked while it is read then
}

// Stack returns the layers that Make mounts first.
func (r *Root) Stack() layers.Stack {
	stack := layers.Stack{Mounts: r.Images, Upper: r.Upper, Target: r.At}
	for _, image := range r.Layer.Images {
		i := layers.Image{Path: r.Store.Path(image.Digest), Type: image.MediaType}
		if root, ok := r.WhenRead[image.Digest]; ok {
			i.Tree = &layers.Tree{Path: r.Store.Tree(image.Digest), Root: root}
		}
		stack.Images = append(stack.Images, i)
	}
	return stack
}

// Make makes the root, and fills in of its record what is of the root.
func (r *Root) Make(made *record.Boot) error {
	end := r.Trace.Begin("stack")
	err := r.Stack().Mount()
	if err != nil && len(r.WhenRead) > 0 { // a node whose tree has rotted boots
		made.Images = record.Images{Why: err.Error()}
		if err = r.ReadAll(err); err == nil {
			r.WhenRead = nil
			err = r.Stack().Mount()
		}
	}
	end(err)
	if err != nil {
		return err
	}
	r.Node.Root, r.Node.Version = r.At, r.Layer.Version
	end = r.Trace.Begin("handover")
	wrote, err := r.Node.Do()
	end(err)
	if err != nil {
		return err
	}
	var id [16]byte
	rand.Read(id[:])
	made.RootID, made.Node, made.Layer = hex.EncodeToString(id[:]), r.Node.Overlay.Node, *r.Layer
	made.Lease, made.Network, made.ReadOnly, made.Watchdog = r.Node.Network.Lease, r.Node.Network.Made, r.Node.ReadOnly,
		int64(r.Node.Watchdog.Seconds())
	made.Wrote, made.Originals = wrote, r.Node.Originals
	return nil
}

// ErrInMemory says why nothing is checked while it is read on a node without a state disk:
// all was when it came, and nobody else can change memory.
var ErrInMemory = errors.New("they are in memory")

// Check brings a layer's images into the store. It returns the roots of those that the
// kernel is to check while they are read, and what the record says of them all. trees is
// asked for layers with roots alone; its error says why the kernel can check nothing.
func Check(ctx context.Context, staged stage.Stager, layer spec.Layer,
	trees func() (*stage.Trees, error)) (whenRead map[string]verity.Hash, noted record.Images, err error) {
	why := errors.New("the layer names no hash trees")
	if len(layer.Roots) > 0 {
		staged.Trees, why = trees()
	}
	parts := stage.Images(layer)
	if whenRead, err = staged.Checked(ctx, parts...); err != nil {
		return nil, noted, err
	}
	for _, part := range parts {
		if _, ok := whenRead[part.Digest]; ok {
			noted.WhenRead = append(noted.WhenRead, part.Digest)
		} else if why == nil {
			why = errors.New("the hash tree of " + part.Name + " could not be used")
		}
	}
	if why != nil {
		noted.Why = why.Error()
	}
	return whenRead, noted, nil
}

// Where udev notes what it knows of devices, and where the next root's systemd reads what its last target
// wants beside that root's own units: both are in memory that goes on.
const (
	udevData    = "/run/udev/data"
	wantedThere = "/run/systemd/system/multi-user.target.d/50-caisson-devices.conf"
)

// startWanted has the next root start what udev wants for devices: systemd starts that when a device
// comes, see SYSTEMD_WANTS in systemd.device(5), and behind a soft-reboot none does. Units that are of
// one device alone are left out: such a one has done what the device needed, as an array that was
// begun without all of its disks. A link in a directory .wants would have systemd call the unit enabled.
func (n *Next) startWanted() error {
	devices, _ := filepath.Glob(n.path(udevData + "/*")) // the pattern is one
	var wanted []string
	for _, device := range devices {
		text, err := os.ReadFile(device)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has just gone
			return err
		}
		wanted = append(wanted, wantedBy(string(text))...)
	}
	slices.Sort(wanted)
	if err := os.MkdirAll(n.path(filepath.Dir(wantedThere)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(n.path(wantedThere), []byte("[Unit]\nWants="+strings.Join(slices.Compact(wanted), " ")+"\n"), 0o644)
}

// wantedBy returns the units that the udev database wants for a device that systemd has.
func wantedBy(text string) (units []string) {
	lines := strings.Split(text, "\n")
	if !slices.Contains(lines, "G:systemd") || slices.Contains(lines, "E:SYSTEMD_READY=0") {
		return nil
	}
	for _, line := range lines {
		if list, ok := strings.CutPrefix(line, "E:SYSTEMD_WANTS="); ok {
			units = append(units, strings.Fields(list)...)
		}
	}
	return slices.DeleteFunc(units, func(unit string) bool { return strings.ContainsAny(unit, "@/%") })
}

// largest is more than any kernel or variable has.
const largest = 256 << 20

// CheckKexec refuses every kernel where the running one, of an architecture, enters none: Debian's for arm64
// have kexec_load(2) alone, which lockdown denies, and they are locked down where firmware verifies.
// variables is [efivar.Dir].
func CheckKexec(variables, arch string) error {
	on, err := verifies(variables)
	if err != nil || !on || arch != "arm64" {
		return err
	}
	return refusal.New(refusal.Kernel, "the running kernel is locked down, and those for arm64 enter no other then, whoever signed it")
}

// CheckKernel refuses a kernel, a file, that the firmware would not start. Where variables are not
// shown, or say that nothing is verified, every kernel is entered.
//
// A kernel under lockdown asks for less: whom its distribution trusts counts there beside the
// firmware's db, so that Debian's own kernels are entered whose loader the firmware would refuse.
// And it says no more than "key rejected", when the node has left what ran.
func CheckKernel(variables, kernel string) error {
	on, err := verifies(variables)
	if err != nil || !on {
		return err
	}
	var trusts cms.TrustsImage
	db, err := variable(variables, efivar.Allowed)
	if err == nil {
		trusts.Allowed, trusts.Digests, _, err = efivar.Entries(db)
	}
	if err != nil {
		return fmt.Errorf("read the firmware's db: %w", err)
	}
	dbx, err := variable(variables, efivar.Forbidden)
	if err == nil {
		trusts.ForbiddenBy, trusts.Forbidden, trusts.Revoked, err = efivar.Entries(dbx)
	}
	if err != nil {
		return fmt.Errorf("read the firmware's dbx: %w", err)
	}
	program, err := ownfiles.ReadPublic(kernel, largest)
	if err != nil {
		return err
	}
	if err := trusts.Verify(program); err != nil {
		return refusal.New(refusal.Kernel, "the firmware, which verifies, would not start the layer's kernel: %w", err)
	}
	return nil
}

func verifies(variables string) (bool, error) {
	on, err := variable(variables, efivar.SecureBoot)
	return bytes.Equal(on, []byte{1}), err
}

// variable returns the content of a variable, nothing where it is not there.
func variable(dir string, v efivar.Variable) ([]byte, error) {
	data, err := ownfiles.ReadPublic(filepath.Join(dir, v.File()), largest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(data) < 4 {
		return nil, err
	}
	return data[4:], nil // behind its attributes
}
