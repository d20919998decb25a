// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// How long a first way to the registry is waited for: as long as soonest where something else can
// boot, which is asked then, since a stick may be there later than the loader.
const (
	soonest = 20 * time.Second
	longest = 2 * time.Minute
)

// ways holds the ways to the registry: the machine's network, and by which of its addresses the
// registry is asked.
type ways struct {
	say     say
	machine *machine
	disk    *stateDisk

	arp       []*kernel.Setting
	resolv    string           // /etc/resolv.conf
	secretDir string           // where secrets are opened; "" is the real place
	net       *network.Network // nil until it is made
	lease     *record.Lease    // the way to source
	source    oci.Source
	fleet     oci.Source // all that answered, where several did: one must not hide what another knows
	heard     bool       // the registry has answered
}

// network makes the machine's interfaces, once, and waits for a first way to the registry.
// With something to fall back on, it is not waited for as long.
func (w *ways) network(ctx context.Context) error {
	if w.source != nil {
		return nil
	}
	defer w.disk.stager(nil).Waiting("an address")()
	if w.net == nil {
		if err := w.makeNetwork(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	err := w.wait(ctx, soonest)
	if err != nil && !w.disk.hasGood() && !carries() {
		err = w.wait(ctx, longest-soonest)
	}
	return fault.In(err, "network")
}

// wait waits for a first way. Meanwhile it loads what devices ask for that come late: of a stick the
// hub's port, the stick and the disk in it ask for a driver one after the other.
func (w *ways) wait(ctx context.Context, patience time.Duration) (err error) {
	const slice = 2 * time.Second
	for end := time.Now().Add(patience); ; w.machine.coldplug() {
		part, cancel := context.WithTimeout(ctx, min(slice, time.Until(end)))
		err = w.net.Wait(part)
		cancel()
		if err == nil || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// makeNetwork makes what the first of the sources says that says anything, see package table.
func (w *ways) makeNetwork() error {
	fault.Say(w.say, network.Loopback())
	w.eachItsOwn()
	cards, err := network.Cards("/sys")
	if err != nil {
		return err
	}
	found := table.Machine{Words: w.machine.words, Cards: cards, UUIDs: w.machine.id.UUIDs, Boot: w.machine.bootMAC()}
	t, notes := table.Make(found, &w.machine.bootstrap)
	for _, note := range notes {
		w.say("network: %s", note)
	}
	w.say("network by %s", t.Source)
	w.net, err = network.Start(t, network.Options{Cards: cards, Load: w.machine.modules.Load, Say: w.say})
	return err
}

// eachItsOwn has each interface answer for its own addresses alone, until the new root is
// entered. Two cards on one network else answer for each other, and what comes by the wrong
// one is not heard: the loader asks by one card at a time.
func (w *ways) eachItsOwn() {
	if w.arp != nil {
		return
	}
	const conf, without = "/proc/sys/net/ipv4/conf/all/", "two cards on one network may answer for each other"
	w.arp = kernel.Change(w.say, &kernel.Setting{File: conf + "arp_ignore", Value: "1", Without: without},
		&kernel.Setting{File: conf + "arp_announce", Value: "2", Without: without})
}

const (
	together = 2 * time.Second  // how long after the first answer others still count
	others   = 10 * time.Second // and after the first that says only why it has nothing
)

// answered holds the answer of a registry or a medium for this node, by one way.
type answered struct {
	way    *record.Lease
	place  int // of the way, or of the medium, the preferred one first
	source oci.Source
	found  *track.Found
	weak   bool // found only by a name that DHCP gave
	reason error
}

// pickWay decides by which way the registry is asked. Where there are several, each is
// asked what it has, and of the answers that come within two seconds of the first, that with
// the highest epoch and generation wins, never the first: any network that a cable leads to
// may replay what the site once signed. What is found by the hardware goes before what is
// found by a name from DHCP, and of equal answers the card counts that the machine booted by.
func (w *ways) pickWay(ctx context.Context) error {
	if w.net == nil {
		return nil // the source was given
	}
	w.fleet = nil
	if ways, pending, _ := w.net.Ways(""); len(ways) == 1 && pending == 0 { // an interface without a carrier has nothing to say
		return w.take(ways[0], false)
	}
	return w.takeBest(ctx, w.askAll(ctx))
}

// askAll asks by each way, until there are no more or those that are left have had their
// time.
func (w *ways) askAll(ctx context.Context) (all []answered) {
	ctx, cancel := context.WithTimeout(ctx, w.machine.limits.ask)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers, asked := make(chan answered), map[string]bool{}
	var over <-chan time.Time
	good := false
	for waiting := 0; ; {
		ways, pending, changed := w.net.Ways(w.machine.bootMAC())
		for place, way := range ways {
			if name := way.Interface + " " + way.Address.String(); !asked[name] {
				asked[name] = true
				waiting++
				asking.Go(func() {
					a := answered{way: way, place: place}
					if source, err := w.open(way, true); err != nil {
						a.reason = err
					} else {
						a = w.look(ctx, source, way, place)
					}
					select {
					case answers <- a:
					case <-ctx.Done():
					}
				})
			}
		}
		if waiting == 0 && pending == 0 {
			return all
		}
		select {
		case a := <-answers:
			waiting--
			switch all = append(all, a); {
			case a.reason == nil && !good:
				good, over = true, time.After(together)
			case over == nil:
				over = time.After(others)
			}
		case <-changed:
		case <-over:
			return all
		case <-ctx.Done():
			return all
		}
	}
}

// look asks a source by one way, and keeps no answer.
func (w *ways) look(ctx context.Context, source oci.Source, way *record.Lease, place int) answered {
	a, name := answered{way: way, place: place, source: source}, ""
	f := w.of(source)
	a.found, name, a.reason = w.claim(ctx, f, way, f.Look)
	a.weak = name != ""
	return a
}

// join returns the sources that answered as the places of one, nil where fewer than two did.
func join(all []answered) oci.Source {
	var list []oci.Source
	for _, a := range all {
		if a.source != nil && (a.reason == nil || reached(a.reason)) {
			list = append(list, a.source)
		}
	}
	if len(list) < 2 {
		return nil
	}
	return oci.Places(list...)
}

// takeBest takes the way of the best answer, and of those that have none the one that the
// registry was at least reached by. Where several answered, each is judged again by the newest keys
// and the least generation that any of them has: a thief's network serves neither.
func (w *ways) takeBest(ctx context.Context, all []answered) error {
	if w.fleet = join(all); w.fleet != nil {
		ctx, cancel := context.WithTimeout(ctx, w.machine.limits.ask)
		defer cancel()
		for i, a := range all {
			if a.reason == nil {
				all[i] = w.look(ctx, a.source, a.way, a.place)
			}
		}
	}
	var best *answered
	for _, a := range all {
		what := fmt.Sprint(a.reason)
		if a.reason == nil {
			what = fmt.Sprintf("has epoch %d, generation %d", a.found.Generation.Epoch, a.found.Generation.Generation)
		}
		w.say("by %s, %s: %s", a.way.Interface, a.way.Address, what)
		if best == nil || a.compare(best) > 0 {
			best = &a
		}
	}
	if best == nil {
		return errors.New("network: no way has led to an answer")
	}
	return w.take(best.way, true)
}

// compare is above 0 where a counts rather than o.
func (a *answered) compare(o *answered) int {
	yes := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	if a.reason != nil || o.reason != nil {
		return cmp.Or(yes(a.reason == nil)-yes(o.reason == nil), yes(reached(a.reason))-yes(reached(o.reason)), o.place-a.place)
	}
	return cmp.Or(yes(o.weak)-yes(a.weak),
		cmp.Compare(a.found.Generation.Epoch, o.found.Generation.Epoch),
		cmp.Compare(a.found.Generation.Generation, o.found.Generation.Generation),
		o.place-a.place)
}

// take asks the registry by one way from now on. only that way is used where there are
// several.
func (w *ways) take(way *record.Lease, only bool) (err error) {
	if w.source != nil && w.lease != nil && w.lease.Interface == way.Interface && w.lease.Address == way.Address {
		return nil
	}
	w.say("address %s on %s (%s)", way.Address, way.Interface, way.MAC)
	if err := network.Resolver(w.resolv, way); err != nil {
		return err
	}
	first := w.lease == nil
	if w.lease = way; first {
		w.disk.late()
	}
	w.source, err = w.open(way, only)
	return err
}

// open reaches the registry by one way.
func (w *ways) open(way *record.Lease, only bool) (oci.Source, error) {
	s, err := w.disk.folder.Load()
	if err != nil {
		return nil, err
	}
	const silence = 10 * time.Second
	by := track.Way{Credentials: w.disk.folder.Path(paths.Credentials), Own: w.ownSecrets(s), Clock: track.Clock(s, w.machine.build),
		Silence: silence, Agent: track.UserAgent(w.machine.version, w.machine.id)}
	if only {
		by.Dial = network.Dial(way, silence)
	}
	return track.Open(w.machine.bootstrap, by)
}

// sync asks by what the machine is, and by the name that DHCP gave it only where
// nothing is published for that: the name is the weakest of its claims, and must
// not be held against an overlay that the hardware has found.
func (w *ways) sync(ctx context.Context) (*track.Found, error) {
	f := w.follower()
	found, name, err := w.claim(ctx, f, w.lease, f.Sync)
	if err != nil {
		return nil, err
	}
	return found, w.disk.folder.SetDHCPName(name)
}

// claim asks so by one way. name is that of DHCP where the answer is to it.
func (w *ways) claim(ctx context.Context, f *track.Tracker, way *record.Lease, ask asking) (found *track.Found, name string, err error) {
	found, err = ask(ctx)
	if errors.Is(err, oci.ErrNotFound) && w.machine.id.Node == "" && way != nil && way.HostName != "" {
		name = strings.ToLower(way.HostName)
		f.Identity.Node = name
		found, err = ask(ctx)
	}
	return found, name, err
}

func (w *ways) follower() *track.Tracker { return w.of(w.source) }

// of follows the overlay of one source, and the fleet by all that answered.
func (w *ways) of(source oci.Source) *track.Tracker {
	f := w.disk.follower(source)
	f.Fleet = w.fleet
	return f
}

// ownSecrets opens the credentials that came to this node as secrets, and returns where they are.
// They are those of the newest overlay that the disk has, verified again: what a registry
// sends is not known yet. Where there are none, or one cannot be opened, the node goes on with
// what it was installed with.
func (w *ways) ownSecrets(s *state.State) string {
	if w.disk.device == "" {
		return ""
	}
	dir := cmp.Or(w.secretDir, spec.SecretDir)
	for _, g := range []*state.Generation{s.Staged, s.Ahead, s.Current} {
		if g == nil {
			continue
		}
		found, err := w.follower().Recall(g)
		if err != nil {
			continue // the loader says why when it boots it
		}
		own := track.OwnSecrets(&found.Overlay)
		if len(own) == 0 {
			return ""
		}
		key, err := w.disk.keys().Read()
		if key == nil || err != nil {
			return "" // the handover says why
		}
		item := secrets.New(found.Overlay.Secrets, secrets.Place{Dir: dir, Ram: w.secretDir == ""}, key.Open).WithOwn(own)
		if err := item.OpenOwn(); err != nil {
			w.say("credentials that came as secrets: %v", err)
			return ""
		}
		return filepath.Join(dir, secrets.Own)
	}
	return ""
}

// show says that this node does not come up, with what the loader knows of it.
func (w *ways) show(f screen.Failure) {
	f.Registry, f.Machine, f.Disk, f.Now = w.machine.bootstrap.Registry, w.machine.id, w.disk.device, time.Now()
	if w.lease != nil {
		f.Address = w.lease.Address.String()
	}
	for _, line := range f.Lines() {
		w.say("%s", line)
	}
}
