// SPDX-License-Identifier: Apache-2.0

// Package node is the running node: it loads what the loader left, applies the
// overlay's items, asks for newer generations and says what is true.
//
// The service and the one-shot verbs are the same code under one lock; a verb
// that finds the service at work waits for it. On a host that caisson did not
// boot (attached mode) there is no boot record, and what needs a layer is
// reported, not done. [Enroll] makes a host one. Package daemon calls it in its rhythm,
// cmd/caisson-agent for a verb.
package node

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
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/journal"
	"github.com/caisson-os/caisson/bootagent/policy"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/takeover"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/trial"
	"github.com/caisson-os/caisson/internal/flock"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// Service is who acts when nobody asked.
const Service = "service"

// Options are the seams; the zero value is this machine.
type Options struct {
	Root       string // prefix of every path, for tests
	Build      time.Time
	Version    string                          // of the agent
	Name       string                          // of this node; "" is what the loader, the enrollment or the host says
	Runner     Runner                          // what programs run in; nil is services of systemd, or else process groups
	By         string                          // who acts, for the records: Service, or a person and the verb
	Within     time.Duration                   // that a change has to prove that the node is still reached; 0 is trial.Within
	Made       time.Duration                   // that a change has to be made, and to be taken back; 0 is madeWithin, and what its scripts may take
	Rival      func(spec.Drift) string         // who made a drift so; nil, and "": nobody knows
	Hints      func(kind string) []string      // what tells of changes; nil is what the service has said
	Fetch      Opener                          // how the registry is asked; nil is track.Open, in this process
	Post       Poster                          // how reports are sent; nil sends none
	Metrics    func(listen string) error       // answers there who asks for metrics, "" nowhere; nil answers nobody
	Cgroup     string                          // whose processes protection binds; "" is all of this machine, of a test's root nobody
	Clock      func() time.Time                // by which windows are judged; nil is this machine's, where it is synchronised
	Kernel     trial.Clock                     // by which checks and trials are timed; nil is the kernel's
	Reboot     func(ctx context.Context) error // nil asks systemd
	SoftReboot func(ctx context.Context) error // nil asks systemd
	Corrupt    func() ([]string, error)        // images of which a block is not what was signed; nil is layers.Corrupt
	Say        func(format string, args ...any)
	Decided    func(f *decide.Facts, s decide.Step) // is called with each decision; nil is nobody
}

func (o Options) listen(address string) error {
	if o.Metrics == nil {
		return nil // a verb, which ends
	}
	return o.Metrics(address)
}

// Runner is what scripts and operations run in, see package process.
type Runner = process.Runner

// Opener opens the place that a bootstrap names.
type Opener func(b spec.Bootstrap, way track.Way) (oci.Source, error)

// patience is how long a registry may say nothing.
const patience = 20 * time.Second

// errNotEnrolled is for a host that trusts nobody yet.
var errNotEnrolled error = notEnrolled{}

type notEnrolled struct{}

func (notEnrolled) Error() string {
	return "this host has no " + paths.Bootstrap + ": it is not enrolled in a fleet"
}

func (notEnrolled) Hint() string {
	return "caisson-agent enroll --from registry.example:5000/metal-a --fleet metal-a --key operator.pub"
}

func (o Options) opener() Opener {
	if o.Fetch == nil {
		return track.Open
	}
	return o.Fetch
}

// Node is an open node. Close releases its lock.
type Node struct {
	o        Options
	boot     *state.Boot
	lost     error // why originals of earlier boots are not known
	unbound  error // why there is no follower: nobody is trusted yet
	folder   *state.Folder
	journal  *journal.Journal
	scopes   item.Scopes
	follower *track.Tracker
	retry    bool            // also what was left out
	lock     *os.File        // nil when only looking
	began    []item.Item     // all that this node made, for Settle
	book     *policy.Book    // opened when it is asked for
	taken    *takeover.Found // what Divingbell left and is not put away yet

	decided string // name of the transition that is made, "" between two

	layers    map[string]*beside // that this root can have, by digest
	unfetched map[string]error   // images of services that could not be had just now, by digest
}

// Open takes the lock and reads what the loader left. bootstrap, when given,
// stands in for the one that the loader left behind (apply --from).
func Open(ctx context.Context, o Options, bootstrap *spec.Bootstrap) (*Node, error) {
	n := &Node{o: o}
	if err := n.makeRun(); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(n.path(paths.RunLock), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	n.lock = lock
	if err := n.turn(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), n.Close())
	}
	if err := n.open(bootstrap, journal.Open); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// makeRun makes the directory of what lasts a boot. Metrics in it are for everybody,
// whatever the umask of who comes first is: the service's is 0077.
func (n *Node) makeRun() error {
	dir := n.path(paths.Run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o755 || os.Geteuid() != 0 {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// turn waits for the lock, and says so where it takes a while.
func (n *Node) turn(ctx context.Context) error {
	late := time.AfterFunc(time.Second, func() { n.say("waiting for another caisson-agent to finish") })
	defer late.Stop()
	return flock.Wait(ctx, n.lock, false)
}

// Read opens the node for looking only: it waits for nobody, and what would
// write is an error.
func Read(_ context.Context, o Options, bootstrap *spec.Bootstrap) (*Node, error) {
	n := &Node{o: o}
	return n, n.open(bootstrap, journal.Read)
}

// Close releases the lock. Scripts in the background go on; see Settle.
func (n *Node) Close() error {
	var errs []error
	if n.lock != nil {
		errs = append(errs, n.exempt(0))
	}
	if n.journal != nil {
		errs = append(errs, n.journal.Close())
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
	}
	return errors.Join(errs...)
}

func (n *Node) open(bootstrap *spec.Bootstrap, openJournal func(string, item.Scopes) (*journal.Journal, error)) (err error) {
	n.boot, err = state.LoadRecord(n.o.Root)
	if errors.Is(err, fs.ErrNotExist) {
		n.boot, err = n.attached()
	}
	if err != nil {
		return err
	}
	if n.lock != nil {
		if err := n.exempt(os.Getpid()); err != nil {
			n.say("%v", err) // what cannot be written is said, too
		}
	}
	n.folder = state.View(n.path(paths.State))
	if n.lock != nil {
		if n.folder, err = state.Open(n.path(paths.State)); err != nil {
			return err
		}
		n.folder.Alone()
		if n.boot.Mode == spec.ModeAttached || n.boot.Disk != "" && !n.boot.ReadOnly {
			if err := n.folder.Reserve(); err != nil {
				n.say("keep room on the state disk: %v", err) // nothing is worse than without
			}
		}
	}
	n.folder.Beside(n.path(paths.RunState))
	if err := n.trusts(bootstrap); err != nil {
		return err
	}
	if n.scopes, err = n.readScopes(); err != nil {
		return err
	}
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
func (n *Node) originals(openJournal func(string, item.Scopes) (*journal.Journal, error)) (err error) {
	n.journal, err = openJournal(n.folder.Path("journal"), n.scopes)
	if n.lock != nil && errors.Is(err, unix.ENOSPC) && n.folder.MakeRoom() == nil {
		n.journal, err = openJournal(n.folder.Path("journal"), n.scopes)
	}
	if err == nil || len(n.boot.DiskTrouble) == 0 {
		return err
	}
	n.lost = fmt.Errorf("the originals of earlier boots are not known: %w", err)
	n.journal, err = openJournal(n.path(paths.Run+"/journal"), n.scopes)
	return err
}

// trusts sets whom the node trusts, and makes its state usable. A host that
// trusts nobody yet can still take back what was applied.
func (n *Node) trusts(bootstrap *spec.Bootstrap) error {
	own, err := n.readBootstrap()
	switch {
	case bootstrap == nil && own == nil:
		n.unbound = err
		return nil
	case bootstrap == nil:
		bootstrap = own
	case own != nil && own.Fleet != bootstrap.Fleet && n.boot.Mode == spec.ModeAttached:
		// What is needed to take the fleet's settings back would be set aside.
		return fmt.Errorf("this host is enrolled in fleet %q, not in %q: run restore --all, then enroll with --replace", own.Fleet, bootstrap.Fleet)
	}
	n.follower = &track.Tracker{Bootstrap: *bootstrap, Identity: n.identity(bootstrap), Folder: n.folder, Build: n.o.Build, Say: n.say}
	if n.lock == nil {
		return nil
	}
	return n.follower.Recover()
}

// attached stands for the boot record on a host that caisson did not boot. Its
// root lives as long as the host's installation.
func (n *Node) attached() (*state.Boot, error) {
	id, err := os.ReadFile(n.path("/etc/machine-id"))
	if err != nil {
		return nil, fmt.Errorf("attached mode needs a machine-id: %w", err)
	}
	return &state.Boot{Mode: spec.ModeAttached, RootID: strings.TrimSpace(string(id)), Sync: spec.SyncUnreachable, SyncDetail: "the registry was not asked since this host started"}, nil
}

// adopt puts into the journal what the handover replaced in this root. An
// original that is there already stays as it is.
func (n *Node) adopt() error {
	if n.lock == nil {
		return nil // only looking
	}
	var late []item.Entry
	for _, e := range n.boot.Originals {
		known := slices.ContainsFunc(n.journal.Entries(e.Item), func(k item.Entry) bool { return k.Key == e.Key })
		if !known {
			late = append(late, e)
		}
	}
	if len(late) == 0 {
		return nil
	}
	if err := n.journal.Record(late...); err != nil {
		return fmt.Errorf("keep the originals of this root: %w", err)
	}
	n.boot.Originals = nil
	return n.remember()
}

func (n *Node) readScopes() (item.Scopes, error) {
	id, err := kernelID()
	if err != nil {
		return item.Scopes{}, err
	}
	s := item.Scopes{Kernel: id, Root: n.boot.RootID}
	if n.boot.Disk != "" || n.boot.Mode == spec.ModeAttached {
		s.Disk = diskID(n.folder.Path())
	}
	return s, nil
}

// kernelID is the id of this boot.
func kernelID() (string, error) {
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

func (n *Node) readBootstrap() (*spec.Bootstrap, error) {
	for _, name := range []string{paths.RunBootstrap, paths.Bootstrap} {
		data, err := os.ReadFile(n.path(name))
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
	return nil, errNotEnrolled
}

func (n *Node) connect() error {
	if n.follower == nil {
		return nil
	}
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	if n.follower.Source, err = n.o.opener()(n.follower.Bootstrap, n.way(s, n.follower.Identity)); err != nil {
		n.follower.Source = nowhere{err} // much is done without
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

// way is how the registry is reached as a machine.
func (n *Node) way(s *state.State, as trust.Identity) track.Way {
	return track.Way{Credentials: n.folder.Path(paths.Credentials), Clock: track.Clock(s, n.o.Build), Silence: patience, Agent: track.UserAgent(n.o.Version, as)}
}

// identity is what this machine is. A host that caisson did not boot has the name
// that it was enrolled with, and else its own.
func (n *Node) identity(b *spec.Bootstrap) trust.Identity {
	line, _ := os.ReadFile("/proc/cmdline") // without it the hardware alone says who this is
	id := identity.Look(identity.CommandLine(string(line)), "/sys")
	if n.boot.Mode == spec.ModeAttached {
		host, _ := os.Hostname() // without it the hardware alone says who this is
		id.Node = cmp.Or(n.o.Name, b.Node, id.Node, strings.ToLower(host))
		return id
	}
	id.Node = cmp.Or(n.o.Name, n.boot.Node, id.Node)
	return id
}

func (n *Node) say(format string, args ...any) { n.o.Say(format, args...) }

func (n *Node) path(name string) string { return filepath.Join(n.o.Root, name) }

// items are all kinds with what a generation wants of them.
func (n *Node) items(f *track.Found) []item.Item {
	o := &f.Overlay
	table := items.Table(o.Items, items.Options{Accounts: n.accountsOf(f.Generation.Layer), Services: n.effective(o.Services), Images: n.images(),
		Journal: n.journal, Scopes: n.scopes, State: n.folder.Path(), Exec: n.folder.Path("exec"), Log: n.say,
		Proc: n.seam("/proc"), Etc: n.seam("/etc"), Sys: n.seam("/sys"), Lib: n.seam("/lib"), Dev: n.seam("/dev"), Runner: n.runner(), Systemd: n.systemd(), Signed: n.signed, Past: n.past(), Leaving: n.leaving()})
	n.began = append(n.began, table...)
	return table
}

// runner is what scripts and operations run in: services of systemd, where this is
// its system.
func (n *Node) runner() process.Runner {
	switch {
	case n.o.Runner != nil:
		return n.o.Runner
	case n.o.Root == "" && process.SystemdRuns():
		return process.Service{}
	}
	return nil
}

// systemd is the one that runs this node, nil where none does.
func (n *Node) systemd() units.Systemd {
	if n.o.Root == "" && process.SystemdRuns() {
		return process.Manager{}
	}
	return nil
}

// seam is a directory of a test's root, and the real one where there is none.
func (n *Node) seam(name string) string {
	if n.o.Root == "" {
		return ""
	}
	return n.path(name)
}
