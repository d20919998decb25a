// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"golang.org/x/sys/unix"
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
	if n.Options.Kernel != nil {
		return n.Options.Kernel
	}
	return KernelClock{Uptime: uptime.Now}
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
	for _, answer := range []error{oci.ErrNotFound, oci.ErrAnswered, unix.ECONNRESET, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, answer) {
			return nil
		}
	}
	if refusal.Of(err) != "" {
		return nil
	}
	return err
}

// Reached asks the registry, which a node that is not cut off reaches, for as long as within.
func (n *Session) Reached(ctx context.Context, within time.Duration) error {
	if err := ReachWithin(ctx, n.clock(), within, n.Dial); err != nil {
		return fmt.Errorf("the registry was not reached within %s: %w", within.Round(time.Second), err)
	}
	return nil
}

// Within is how long a change has to prove that the node is still reached.
func (n *Session) Within() time.Duration {
	if n.Options.Within > 0 {
		return n.Options.Within
	}
	return TrialTime
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
