// SPDX-License-Identifier: Apache-2.0

// Package node is the running node: the verbs of the agent, each of which opens the node,
// does one thing and closes it. Package daemon calls it in its rhythm, cmd/caisson-agent for
// a verb; a verb that finds the service at work waits for it.
//
// It has no rules of its own. What a node does next stands in one table, in package decide,
// printed in docs/decisions.md; what it does it with is a package each, from the bottom up:
//
//	session      the open node: lock, records, state, journal, trust
//	stacked      the layers that this root can have
//	services     the images of services
//	protect      parameters that the kernel guards
//	effect       what is in effect: overlay, items, corrections, deadlines
//	destination  where a reboot leads, and by which way
//	soak         what has yet to prove itself
//	post         what is sent to the fleet's services
//	operate      operations and their turns
//	hold         what an operator says of the node
//	look         status and metrics
//	cycle        facts, decision, act
//
// On a host that caisson did not boot (attached mode) what needs a layer is reported, not
// done. Package enroll makes a host a node of a fleet.
package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/node/cycle"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/early"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/look"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/policy"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Node is an open node. Close releases its lock.
type Node struct {
	session     *session.Session
	root        *stacked.Root
	services    *stacked.Services
	protect     *policy.Protection
	effect      *effect.Effect
	destination *destination.Destination
	soak        *soak.Soak
	post        *post.Post
	operate     *operate.Operations
	holds       *operate.Holds
	look        *look.Look
	cycle       *cycle.Cycle
}

// Open takes the lock and reads what the loader left. bootstrap, when given, stands in for
// the one that the loader left behind (apply --from).
func Open(ctx context.Context, o session.Options, bootstrap *spec.Bootstrap) (*Node, error) {
	s, err := session.Open(ctx, o, bootstrap)
	if err != nil {
		return nil, err
	}
	n := assemble(s)
	fault.Say(s.Say, n.protect.Exempt(os.Getpid())) // what cannot be written is said, too
	return n, nil
}

// Read opens the node for looking only: it waits for nobody, and what would write is an
// error.
func Read(_ context.Context, o session.Options, bootstrap *spec.Bootstrap) (*Node, error) {
	s, err := session.Read(o, bootstrap)
	if err != nil {
		return nil, err
	}
	return assemble(s), nil
}

// assemble makes the parts of a node, each of those below it.
func assemble(s *session.Session) *Node {
	o, dir, root, kernel, alone := s.Options, s.Options.Root, s.Scopes.Root, s.Scopes.Kernel, s.Lock != nil
	n := &Node{session: s}
	n.root = &stacked.Root{Dir: dir, ID: root, Alone: alone, Owner: s.Owner, Journal: s.Journal, Tracker: s.Tracker, Store: s.Store,
		Log: s.Record, Say: s.Say}
	n.services = &stacked.Services{Root: dir, Attached: s.Boot.Mode == spec.ModeAttached, Folder: s.Folder, Tracker: s.Tracker,
		Store: s.Store, Log: s.Record, Say: s.Say}
	n.protect = &policy.Protection{Root: dir, Cgroup: o.Cgroup, Owner: s.Owner, Log: s.Record}
	n.post = &post.Post{Folder: s.Folder, Boot: kernel, Lasts: s.Scopes.Disk != "", Tracker: s.Tracker, Unbound: s.Unbound, By: s.Send,
		TPM: tpm.LogOf(dir, s.Say), Log: s.Record, Say: s.Say}
	n.holds = &operate.Holds{Owner: s.Owner, By: o.By, Log: s.Record}
	n.effect = &effect.Effect{Unbound: s.Unbound, Last: s.Last, Clock: s, Made: o.Made, Within: s.Within(), Rival: o.Rival,
		Table: effect.Table{Dir: dir, Scopes: s.Scopes, Alone: alone, Owner: s.Owner, Folder: s.Folder, Journal: s.Journal, Tracker: s.Tracker,
			Root: n.root, Services: n.services, Runner: s.Runner(), Systemd: s.Systemd(), Log: s}}
	n.destination = &destination.Destination{Dir: dir, Owner: s.Owner, Folder: s.Folder, Tracker: s.Tracker, Store: s.Store, Root: n.root,
		Services: n.services, Effect: n.effect, Machine: s, Runner: s.Runner(), Lift: n.protect.Lift, Log: s}
	n.soak = &soak.Soak{Dir: dir, Root: root, Kernel: kernel, Owner: s.Owner, Tracker: s.Tracker, Running: n.effect.Running, Up: s.Up,
		Dial: s.Dial, Runner: s.Runner(), Systemd: s.Systemd() != nil, Log: s}
	n.operate = &operate.Operations{Base: engine(s), Root: root, Kernel: kernel, Owner: s.Owner, Destination: n.destination, Effect: n.effect,
		Soak: n.soak, Post: n.post, Decided: o.Decided}
	n.look = &look.Look{Agent: o.Version, Owner: s.Owner, Tracker: s.Tracker, Effect: n.effect, Destination: n.destination, Soak: n.soak,
		Operations: n.operate, Protection: n.protect, Node: s, Events: s.Box().Events, Hints: o.Hints}
	if s.Systemd() != nil {
		n.look.Units = process.Manager{}
	}
	starts := &early.Early{Dir: dir, Kernel: kernel, Owner: s.Owner, Journal: s.Journal, Items: n.effect.Items, Kept: n.effect.Kept,
		Within: s.Within(), Log: s}
	n.cycle = &cycle.Cycle{ByHand: o.By != session.Service, Owner: s.Owner, Reached: s.Reached, Decided: o.Decided, Log: s,
		Effect: n.effect, Destination: n.destination, Soak: n.soak, Operations: n.operate, Holds: n.holds, Look: n.look, Starts: starts}
	return n
}

// engine returns the engine of operations of an open node.
func engine(s *session.Session) operation.Engine {
	e := operation.Engine{Dir: s.Folder.Path("ops"), Root: s.Options.Root, Boot: s.Start(), Remembers: s.Scopes.Disk != "",
		Clock: operation.Clock{Now: s.Now, Up: s.Up, Synchronised: s.Synchronised}, Runner: s.Runner()}
	if units := s.Systemd(); units != nil {
		e.Units = units
	}
	if e.Runner == nil {
		e.Runner = new(process.Group) // which knows only its own
	}
	return e
}

// running does something with what a node runs.
func running[T any](n *Node, do func(*track.Found) (T, error)) (out T, err error) {
	found, err := n.effect.Running()
	if err != nil {
		return out, err
	}
	return do(found)
}

// Close releases the lock. Scripts in the background go on; see Settle.
func (n *Node) Close() error {
	var err error
	if n.session.Lock != nil {
		err = n.protect.Exempt(0)
	}
	return errors.Join(err, n.session.Close())
}

// Apply reconciles the node with the overlay it runs. A generation that was staged for this
// boot is promoted: it came up and was applied.
func (n *Node) Apply(ctx context.Context) (*spec.Status, error) { return n.cycle.Apply(ctx) }

// Sync asks for a newer generation and applies it when the running root can take it, all of
// it or nothing. What needs another root is staged for the next boot. A refusal changes
// nothing: the node goes on as it is. So does a change that fails; then there is a status
// and an error.
func (n *Node) Sync(ctx context.Context) (*spec.Status, error) { return n.cycle.Sync(ctx) }

// Status looks again at everything and writes nothing.
func (n *Node) Status(ctx context.Context) (*spec.Status, error) { return n.look.Status(ctx) }

// Reboot starts this node over, by the least disturbing way to what waits. It says which
// way that is, and returns when it is begun.
func (n *Node) Reboot(ctx context.Context) (class, why string, err error) {
	return n.destination.Reboot(ctx)
}

// Stage brings what the generation that waits for a reboot needs. It needs no lock.
func (n *Node) Stage(ctx context.Context) error { return n.destination.Stage(ctx) }

// Protected are the parameters of which the kernel refuses writes, as paths.
func (n *Node) Protected() []string { return n.protect.Protected() }

// NoteRefused writes down which writes the kernel has refused.
func (n *Node) NoteRefused(list []spec.RefusedWrite) error { return n.protect.NoteRefused(list) }

// Lift has the kernel refuse nothing any more, until the next run. Values stay.
func (n *Node) Lift() error { return n.protect.Lift() }

// Report returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay names no reports.
func (n *Node) Report(st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, nil, err
	}
	return n.look.ForFleet(found, st)
}

// Poll is how long this node's overlay wants from one question to the registry to the
// next; 0 where it says nothing, or what nobody may want.
func (n *Node) Poll() time.Duration {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Agent == nil || rules.Poll(found.Overlay.Agent.Poll) != nil {
		return 0
	}
	return time.Duration(found.Overlay.Agent.Poll) * time.Second
}

// lastStatus is the status after the last run of the service, or where there was none since this root
// came up, what is found now.
func (n *Node) lastStatus(ctx context.Context) (*spec.Status, error) {
	last := n.session.Last()
	if last.Kind != "" && last.RootID == n.session.Scopes.Root {
		return &last, nil
	}
	return n.Status(ctx)
}

// Told is what a node tells of the service's last run.
type Told struct {
	To      string       `json:"to,omitempty"`  // absent where the overlay names nobody
	Key     string       `json:"key,omitempty"` // id; absent before the first report
	Waiting int          `json:"waiting"`       // reports that are not yet delivered
	Report  *spec.Report `json:"report"`        // without number and time, which are given when it is signed
}

// Told returns what this node tells.
func (n *Node) Told(ctx context.Context) (t Told, err error) {
	st, err := n.lastStatus(ctx)
	if err != nil {
		return t, err
	}
	one, to, err := n.Report(st)
	if err != nil {
		return t, err
	}
	if t.Report = one; to == nil {
		t.Report = spec.NewReport(st)
	} else {
		t.To = to.String()
	}
	t.Key, t.Waiting, err = post.Peek(n.post.ReportDir())
	return t, err
}

// Quote returns what the machine's TPM says of its registers over a nonce.
func (n *Node) Quote(ctx context.Context, nonce []byte) (*spec.Quote, error) {
	st, err := n.lastStatus(ctx)
	if err != nil {
		return nil, err
	}
	log := tpm.LogOf(n.session.Options.Root, n.session.Say)
	q, err := log.Quote(nonce)
	if err != nil {
		return nil, err
	}
	fault.Say(n.session.Say, log.Endorse(q))
	q.Fleet, q.Node = st.Fleet, st.Node
	return q, nil
}

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (n *Node) Reporter() (*post.Reporter, error) { return n.post.Reporter() }

// RecordReport notes in systemd's journal that the node tells news.
func (n *Node) RecordReport(r *spec.Report) { n.post.RecordReport(r) }

// LastRun returns the last run of a script of this node and what it printed.
func (n *Node) LastRun(name string) (*exec.Last, error) {
	return running(n, func(f *track.Found) (*exec.Last, error) { return n.effect.LastRun(f, name) })
}

// Trace says how long the steps took that made this node as it is.
func (n *Node) Trace() (*spec.Trace, error) {
	return running(n, func(f *track.Found) (*spec.Trace, error) { return n.look.Trace(f) })
}

// Why says what is wrong with this node.
func (n *Node) Why(ctx context.Context) (spec.Why, error) { return n.look.Why(ctx) }

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) ([]spec.ServiceStatus, error) { return n.services.List(&f.Overlay), nil })
}

// FreezeService keeps a service at the image that it has.
func (n *Node) FreezeService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Freeze(&f.Overlay, name, reason) })
}

// RollbackService takes a service to the image that it had before, and keeps it there.
func (n *Node) RollbackService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Rollback(&f.Overlay, name, reason) })
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Forward(&f.Overlay, name) })
}

// Operate notes which operations have ended and starts those that are due. It waits
// for none of them. What an operation does not manage is in its status, and makes the
// node degraded; an error is of the ledger.
func (n *Node) Operate(ctx context.Context) ([]spec.OperationStatus, error) {
	if err := n.cycle.Settle(ctx); err != nil {
		return nil, err
	}
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	switch paused, err := n.effect.PausedBy(found); {
	case err != nil:
		return nil, err
	case paused != "":
		return n.operate.View(found), nil
	}
	list, err := n.operate.Engine(found).Look(ctx, found.Overlay.Maintenance)
	return append(list, n.operate.Realtime(found)...), err
}

// Operations says where the operations stand.
func (n *Node) Operations() ([]spec.OperationStatus, error) {
	return running(n, func(f *track.Found) ([]spec.OperationStatus, error) { return n.operate.View(f), nil })
}

// Ask notes that an operator wants an operation to run: now, or else again, in its
// windows. The service starts it within a minute; runs is true where it runs already.
func (n *Node) Ask(name string, atOnce bool) (runs bool, err error) {
	found, err := n.effect.Running()
	if err != nil {
		return false, err
	}
	return n.operate.Ask(found, name, atOnce)
}

// Window is a maintenance window of a node.
type Window struct {
	Name      string          `json:"name"`
	Intervals []spec.Interval `json:"intervals"` // that are not over
}

// Windows returns the windows of this node, by name.
func (n *Node) Windows() ([]Window, error) {
	found, err := n.effect.Running()
	list := []Window{}
	if err != nil || found.Overlay.Maintenance == nil {
		return list, err
	}
	all, over := found.Overlay.Maintenance.Windows, func(i spec.Interval) bool { return !i.To.After(time.Now()) }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, Window{name, slices.DeleteFunc(append([]spec.Interval{}, all[name].Intervals...), over)})
	}
	return list, nil
}
