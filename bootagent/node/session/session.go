// SPDX-License-Identifier: Apache-2.0

// Package session opens a node: its lock, the record that its loader left, its state, its
// journal and whom it trusts. Everything that is done to a node is done in a session of
// one process, and written down by it; others may look meanwhile.
//
// On a host that caisson did not boot (attached mode) there is no boot record, and a
// session makes one.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Service names the actor of changes for which nobody asked.
const Service = "service"

// Options are the seams; the zero value is this machine.
type Options struct {
	Root    string // prefix of every path, for tests
	Build   time.Time
	Version string        // of the agent
	Name    string        // of this node; "" takes it from the loader, the enrollment or the host
	Runner  Runner        // what programs run in; nil is services of systemd, or else process groups
	By      string        // who acts, for the records: Service, or a person and the verb
	Within  time.Duration // that a change has to prove that the node is still reached; 0 is trial.Within
	// that a change has to be made, and to be taken back, beside what its scripts take; 0 is five
	// minutes, and one for each program
	Made       time.Duration
	Rival      func(spec.Drift) string                      // who made a drift so; nil, and "": nobody knows
	Hints      func(kind string) []string                   // the sources that tell of changes; nil stands for those the service has named
	Fetch      Opener                                       // how the registry is asked; nil is track.Open, in this process
	Post       Poster                                       // how reports are sent; nil sends none
	Metrics    func(listen string) error                    // answers there who asks for metrics, "" nowhere; nil answers nobody
	Cgroup     string                                       // whose processes protection binds; "" is all of this machine, in a test nobody
	Clock      func() time.Time                             // by which windows are judged; nil is this machine's, where that is right
	Kernel     TrialClock                                   // by which checks and trials are timed; nil is the kernel's
	Reboot     func(ctx context.Context) error              // nil asks systemd
	SoftReboot func(ctx context.Context, replug bool) error // nil asks systemd
	Corrupt    func() ([]string, error)                     // images of which a block is not what was signed; nil is layers.Corrupt
	Say        func(format string, args ...any)
	Decided    decide.Observer
}

// Runner runs scripts and operations, see package process.
type Runner = process.Runner

// Opener opens the place that a bootstrap names.
type Opener func(b spec.Bootstrap, way track.Way) (oci.Source, error)

// patience is how long a registry may say nothing.
const patience = 20 * time.Second

// ErrNotEnrolled is for a host that trusts no key yet.
var ErrNotEnrolled = cli.WithHint(errors.New("this host has no "+paths.Bootstrap+": it is not enrolled in a fleet"),
	"caisson-agent enroll --from registry.example:5000/metal-a --fleet metal-a --key operator.pub")

// Source opens the place that a bootstrap names.
func (o Options) Source(b spec.Bootstrap, way track.Way) (oci.Source, error) {
	if o.Fetch == nil {
		return track.Open(b, way)
	}
	return o.Fetch(b, way)
}

// Session is an open node. Close releases its lock.
type Session struct {
	Options Options
	Boot    *record.Boot
	Owner   *record.Owner // of Boot and of the state in Folder
	Lost    error         // why originals of earlier boots are not known
	Unbound error         // why there is no Tracker: no key is trusted yet
	Folder  *state.Folder
	Journal *journal.Journal
	Scopes  item.Scopes
	Tracker *track.Tracker
	Lock    *os.File // nil when only looking
}

// Open takes the lock and reads what the loader left. bootstrap, when given,
// stands in for the one that the loader left behind (apply --from).
func Open(ctx context.Context, o Options, bootstrap *spec.Bootstrap) (*Session, error) {
	n := &Session{Options: o}
	if err := n.makeRun(); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(n.Path(paths.RunLock), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	n.Lock = lock
	late := time.AfterFunc(time.Second, func() { n.Say("waiting for another caisson-agent to finish") })
	err = stall.Lock(ctx, n.Lock, false)
	late.Stop()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), n.Close())
	}
	if err := n.open(bootstrap, journal.Open); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// makeRun makes the directory of what lasts a boot. Metrics in it are for everybody,
// whatever the umask of who comes first is: the service's is 0077.
func (n *Session) makeRun() error {
	dir := n.Path(paths.Run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o755 || os.Geteuid() != 0 {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// Read opens the node for looking only: it waits for nobody, and what would
// write is an error.
func Read(o Options, bootstrap *spec.Bootstrap) (*Session, error) {
	n := &Session{Options: o}
	return n, n.open(bootstrap, journal.Read)
}

// Close releases the lock. Scripts in the background go on; see Settle.
func (n *Session) Close() error {
	var errs []error
	if n.Journal != nil {
		errs = append(errs, n.Journal.Close())
	}
	if n.Lock != nil {
		errs = append(errs, n.Lock.Close())
	}
	return errors.Join(errs...)
}

func (n *Session) open(bootstrap *spec.Bootstrap, openJournal func(string, item.Scopes) (*journal.Journal, error)) (err error) {
	n.Boot, err = record.Load(n.Options.Root)
	if errors.Is(err, fs.ErrNotExist) {
		n.Boot, err = n.Attached()
	}
	if err != nil {
		return err
	}
	n.Folder = state.View(n.Path(paths.State))
	if n.Lock != nil {
		if n.Folder, err = state.Open(n.Path(paths.State)); err != nil {
			return err
		}
		n.Folder.Alone()
		if n.Boot.Mode == spec.ModeAttached || n.Boot.Disk != "" && !n.Boot.ReadOnly {
			fault.Say(n.Say, fault.In(n.Folder.Reserve(), "keep room on the state disk")) // nothing is worse than without
		}
	}
	n.Folder.Beside(n.Path(paths.RunState))
	n.Owner = record.New(n.Folder, n.Boot, n.Path(paths.RunBoot))
	if err := n.trusts(bootstrap); err != nil {
		return err
	}
	if n.Scopes, err = n.readScopes(); err != nil {
		return err
	}
	n.ensureRecipient()
	if err := n.originals(openJournal); err != nil {
		return err
	}
	if err := n.adopt(); err != nil {
		return err
	}
	return n.connect()
}

// originals opens the journal. A disk that takes no writes could not finish what it was
// at when its power went, so the file may be unreadable there: then the originals of
// earlier boots are not known, and those of this boot are kept in memory.
func (n *Session) originals(openJournal func(string, item.Scopes) (*journal.Journal, error)) (err error) {
	n.Journal, err = openJournal(n.Folder.Path("journal"), n.Scopes)
	if n.Lock != nil && errors.Is(err, unix.ENOSPC) && n.Folder.MakeRoom() == nil {
		n.Journal, err = openJournal(n.Folder.Path("journal"), n.Scopes)
	}
	if err == nil || len(n.Boot.DiskTrouble) == 0 {
		return err
	}
	n.Lost = fmt.Errorf("the originals of earlier boots are not known: %w", err)
	n.Journal, err = openJournal(n.Path(paths.Run+"/journal"), n.Scopes)
	return err
}

// trusts sets whom the node trusts, and makes its state usable. A host that
// trusts no key yet can still take back what was applied.
func (n *Session) trusts(bootstrap *spec.Bootstrap) error {
	own, err := n.ReadBootstrap()
	switch {
	case bootstrap == nil && own == nil:
		n.Unbound = err
		return nil
	case bootstrap == nil:
		bootstrap = own
	case own != nil && own.Fleet != bootstrap.Fleet && n.Boot.Mode == spec.ModeAttached:
		// What is needed to take the fleet's settings back would be set aside.
		return fmt.Errorf("this host is enrolled in fleet %q, not in %q: run restore --all, then enroll with --replace",
			own.Fleet, bootstrap.Fleet)
	}
	n.Tracker = &track.Tracker{Bootstrap: *bootstrap, Identity: n.Identity(bootstrap), Folder: n.Folder, Build: n.Options.Build, Say: n.Say,
		Epochs: tpm.Of(n.Options.Root)}
	if n.Lock == nil {
		return nil
	}
	return n.Tracker.Recover()
}

// Attached stands for the boot record on a host that caisson did not boot. Its
// root lives as long as the host's installation.
func (n *Session) Attached() (*record.Boot, error) {
	id, err := os.ReadFile(n.Path("/etc/machine-id"))
	if err != nil {
		return nil, fmt.Errorf("attached mode needs a machine-id: %w", err)
	}
	return &record.Boot{Mode: spec.ModeAttached, RootID: strings.TrimSpace(string(id)), Sync: spec.SyncUnreachable,
		SyncDetail: "the registry was not asked since this host started"}, nil
}

// adopt puts into the journal what the handover replaced in this root. An
// original that is there already stays as it is.
func (n *Session) adopt() error {
	if n.Lock == nil {
		return nil // only looking
	}
	late := slices.DeleteFunc(slices.Clone(n.Boot.Originals), func(e item.Entry) bool {
		return slices.ContainsFunc(n.Journal.Entries(e.Item), func(k item.Entry) bool { return k.Key == e.Key })
	})
	if len(late) == 0 {
		return nil
	}
	if err := n.Journal.Record(late...); err != nil {
		return fmt.Errorf("keep the originals of this root: %w", err)
	}
	return n.Owner.Commit(record.Change{Boot: func(b *record.Boot) { b.Originals = nil }})
}

func (n *Session) readScopes() (item.Scopes, error) {
	id, err := KernelID()
	if err != nil {
		return item.Scopes{}, err
	}
	s := item.Scopes{Kernel: id, Root: n.Boot.RootID}
	if n.Boot.Disk != "" || n.Boot.Mode == spec.ModeAttached {
		s.Disk = diskID(n.Folder.Path())
	}
	return s, nil
}

// KernelID is the id of this boot.
func KernelID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// diskID is the file system's own identity.
func diskID(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%08x%08x", uint32(st.Fsid.Val[0]), uint32(st.Fsid.Val[1]))
}

// ReadBootstrap returns whom this machine trusts: what the loader left, or its enrollment.
func (n *Session) ReadBootstrap() (*spec.Bootstrap, error) {
	for _, name := range []string{paths.RunBootstrap, paths.Bootstrap} {
		data, err := os.ReadFile(n.Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, _, err := spec.DecodeBootstrap(data) // what is left out, its loader or 'enroll' has said
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		return &b, nil
	}
	return nil, ErrNotEnrolled
}

func (n *Session) connect() error {
	if n.Tracker == nil {
		return nil
	}
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	if n.Tracker.Source, err = n.Options.Source(n.Tracker.Bootstrap, n.Way(s, n.Tracker.Identity)); err != nil {
		n.Tracker.Source = nowhere{err} // much is done without
	}
	return nil
}

// nowhere is a registry that there is no way to.
type nowhere struct{ err error }

func (s nowhere) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return oci.Response{}, s.err
}

func (s nowhere) Blob(context.Context, string, oci.Descriptor, int64) (io.ReadCloser, error) {
	return nil, s.err
}

// Way is how the registry is reached as a machine.
func (n *Session) Way(s *state.State, as trust.Identity) track.Way {
	return track.Way{Credentials: n.Folder.Path(paths.Credentials), Own: filepath.Join(n.Path(spec.SecretDir),
		spec.OwnSecrets), Clock: track.Clock(s, n.Options.Build), Silence: patience, Agent: track.UserAgent(n.Options.Version, as)}
}

// Identity returns the name and the hardware of this machine. A host that caisson did not boot has the name
// that it was enrolled with, and else its own.
func (n *Session) Identity(b *spec.Bootstrap) trust.Identity {
	line, _ := os.ReadFile("/proc/cmdline") // without it the hardware alone says who this is
	id := identity.Look(identity.CommandLine(string(line)), "/sys")
	if n.Boot.Mode == spec.ModeAttached {
		host, _ := os.Hostname() // without it the hardware alone says who this is
		id.Node = cmp.Or(n.Options.Name, b.Node, id.Node, strings.ToLower(host))
		return id
	}
	id.Node = cmp.Or(n.Options.Name, n.Boot.Node, id.Node)
	return id
}
