// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Waiting reports whether a change of this boot is in effect and waits for its operator.
func (n *Session) Waiting(s *state.State) bool {
	return s.Trial.Pending() && s.Trial.Boot == n.Scopes.Kernel && s.Trial.Ends != 0
}

// Start is the id of what this machine's init started last: a soft-reboot starts all of
// it again, and the kernel goes on.
func (n *Session) Start() string {
	if n.Boot.Mode == spec.ModeAttached || n.Boot.Upper == "" {
		return n.Scopes.Kernel
	}
	return n.Scopes.Root
}

// Now is the time by which windows are judged.
func (n *Session) Now() time.Time {
	if n.Options.Clock != nil {
		return n.Options.Clock()
	}
	return time.Now()
}

// clock tells how long the kernel runs, however the other one is set.
func (n *Session) clock() TrialClock {
	return cmp.Or[TrialClock](n.Options.Kernel, KernelClock{Uptime: uptime.Now})
}

// Up is how long this kernel runs.
func (n *Session) Up() time.Duration { return n.clock().Up() }

// Synchronised reports whether that time is to be trusted.
func (n *Session) Synchronised() bool { return n.Options.Clock != nil || uptime.Synchronised() }

// Dial asks the registry over a new connection, in all its places. What it says does not matter,
// nor that it ends the connection; one that is refused may be so by this machine's own rules, and one
// whose certificate is wrong may end before the registry.
func (n *Session) Dial(ctx context.Context) error {
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	source, err := n.Options.Source(n.Tracker.Bootstrap, n.Way(s, n.Tracker.Identity))
	if err != nil {
		return err
	}
	_, err = source.Manifest(ctx, oci.RepoFleet, "current", "")
	if refusal.Of(err) != "" {
		return nil
	}
	return fault.But(err, oci.ErrNotFound, oci.ErrAnswered, unix.ECONNRESET, io.EOF, io.ErrUnexpectedEOF)
}

// Reached asks the registry, which a node that is not cut off reaches, for as long as within.
func (n *Session) Reached(ctx context.Context, within time.Duration) error {
	return fault.In(ReachWithin(ctx, n.clock(), within, n.Dial), "the registry was not reached within %s", within.Round(time.Second))
}

// Within is how long a change has to prove that the node is still reached.
func (n *Session) Within() time.Duration {
	return cmp.Or(n.Options.Within, TrialTime)
}

// Store is where the images of layers are kept: on the state disk, or in memory.
func (n *Session) Store() (*layers.Store, error) {
	if n.Boot.Disk == "" {
		return layers.OpenStore(n.Path(paths.RunStore))
	}
	return layers.OpenStore(n.Folder.Path("store"))
}

// Say prints a message for the user.
func (n *Session) Say(format string, args ...any) { n.Options.Say(format, args...) }

// Path returns where a file of the machine is, below the root of a test.
func (n *Session) Path(name string) string { return filepath.Join(n.Options.Root, name) }

// Runner returns the runner of scripts and operations: services of systemd, where this is
// its system.
func (n *Session) Runner() process.Runner {
	switch {
	case n.Options.Runner != nil:
		return n.Options.Runner
	case n.Options.Root == "" && process.SystemdRuns():
		return process.Service{}
	}
	return nil
}

// Systemd is the one that runs this node, nil where none does.
func (n *Session) Systemd() units.Systemd {
	if n.Options.Root == "" && process.SystemdRuns() {
		return process.Manager{}
	}
	return nil
}

// Listen has metrics answered at an address, "" nowhere.
func (n *Session) Listen(address string) error {
	if n.Options.Metrics == nil {
		return nil // a verb, which ends
	}
	return n.Options.Metrics(address)
}

// Corrupt returns the images of which a block is not what was signed.
func (n *Session) Corrupt() ([]string, error) {
	if n.Options.Corrupt == nil {
		return layers.Corrupt()
	}
	return n.Options.Corrupt()
}

// Reboot starts the machine over.
func (n *Session) Reboot(ctx context.Context) error {
	if n.Options.Reboot != nil {
		return n.Options.Reboot(ctx)
	}
	return process.Manager{}.Reboot(ctx)
}

// SoftReboot starts all over but its kernel.
func (n *Session) SoftReboot(ctx context.Context, replug bool) error {
	if n.Options.SoftReboot != nil {
		return n.Options.SoftReboot(ctx, replug)
	}
	return process.Manager{}.SoftReboot(ctx, replug)
}

// Poster sends a letter as a machine that a bootstrap and a way describe.
type Poster func(ctx context.Context, b spec.Bootstrap, way track.Way, l post.Letter) error

var errNoPoster = errors.New("this program sends nothing to services")

// Send sends a letter as this machine, by the clock of now.
func (n *Session) Send(ctx context.Context, l post.Letter) error {
	if n.Options.Post == nil {
		return errNoPoster
	}
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	return n.Options.Post(ctx, n.Tracker.Bootstrap, n.Way(s, n.Tracker.Identity), l)
}

// ErrNoKey is for a node that keeps no key of secrets: its state is in memory, or its disk
// takes no writes.
var ErrNoKey = errors.New("this node keeps no key of secrets")

// keys are the keys of secrets of this node.
func (n *Session) keys() secrets.Keys {
	return secrets.Keys{State: n.Folder.Path(), Memory: n.Path(paths.RunUnlocked), TPM: tpm.Of(n.Options.Root)}
}

// keepsKey reports whether a key that is made now would last.
func (n *Session) keepsKey() bool {
	return n.Lock != nil && n.Scopes.Disk != "" && !n.Boot.ReadOnly && len(n.Boot.DiskTrouble) == 0
}

// ensureRecipient makes the key that opens this node's secrets, where it would last, and ends
// a rotation that is over. Without a key the node works all the same, but has no secrets.
func (n *Session) ensureRecipient() {
	if !n.keepsKey() {
		return
	}
	key, err := n.keys().Ensure(n.Say)
	if err == nil && key.Before() != "" {
		err = n.endRotation(key)
	}
	if _, locked := errors.AsType[*secrets.LockedError](err); err != nil && !locked { // who opens a secret says that
		n.Say("%v", err)
	}
}

// identity is the key that opens this node's secrets, nil where it has none that lasts.
func (n *Session) identity() (secrets.Identity, error) {
	if n.Scopes.Disk == "" {
		return nil, nil
	}
	return n.keys().Read()
}

// Recipient returns the key to seal secrets to for this node, "" where it has no key that
// lasts, and whether that is sealed to the machine's TPM.
func (n *Session) Recipient() (of string, sealed bool) {
	key, err := n.identity()
	if err != nil || key == nil {
		return "", false // who opens a secret says why
	}
	return key.Recipient(), key.Sealed()
}

// Recipients are the recipient of this node and, while a key is rotated, the one before.
func (n *Session) Recipients() (now, before string, err error) {
	if n.Boot.Disk == "" && n.Boot.Mode != spec.ModeAttached {
		return "", "", ErrNoKey
	}
	key, err := n.identity()
	if err == nil && key == nil {
		err = errors.New("there is no key of secrets yet: the first apply makes it")
	}
	if err != nil {
		return "", "", err
	}
	return key.Recipient(), key.Before(), nil
}

// RotateRecipient makes the next key, where no rotation is under way.
func (n *Session) RotateRecipient() error {
	if !n.keepsKey() {
		return ErrNoKey
	}
	_, err := n.keys().Rotate(n.Say)
	return err
}

// endRotation removes the key before, once what runs well is sealed to the next one, and
// nothing is sealed to the one before that the node goes on or back to by itself.
func (n *Session) endRotation(key secrets.Identity) error {
	if n.Tracker == nil {
		return nil
	}
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	best := s.Best()
	if best == nil {
		return nil
	}
	if is, err := n.isSealed(best, key.Recipient()); !is || err != nil {
		return err
	}
	for _, g := range s.Generations() {
		if needed, err := n.isSealed(g, key.Before()); needed || err != nil {
			return err
		}
	}
	if err := n.keys().Settle(); err != nil {
		return err
	}
	n.Say("the key of secrets is rotated: %s is removed", key.Before())
	return nil
}

// isSealed reports whether a generation has secrets for a recipient. One that is refused does
// not run, so what it has says nothing.
func (n *Session) isSealed(g *state.Generation, to string) (bool, error) {
	found, err := n.Tracker.Recall(g)
	switch {
	case refusal.Of(err) != "":
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(found.Overlay.Secrets, func(s spec.Secret) bool { return s.To == to }), nil
}
