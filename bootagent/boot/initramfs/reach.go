// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
)

// How long a first way to the registry is waited for: as long as soonest where something else can
// boot, which is asked then, since a stick may be there later than the loader.
const (
	soonest = 20 * time.Second
	longest = 2 * time.Minute
)

// network makes the machine's interfaces, once, and waits for a first way to the registry.
// With something to fall back on, it is not waited for as long.
func (b *boot) network(ctx context.Context) error {
	if b.source != nil {
		return nil
	}
	defer b.stager(nil).Waiting("an address")()
	if b.net == nil {
		if err := b.makeNetwork(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	err := b.wait(ctx, soonest)
	if err != nil && !b.hasGood() && !carries() {
		err = b.wait(ctx, longest-soonest)
	}
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

// wait waits for a first way. Meanwhile it loads what devices ask for that come late: of a stick the
// hub's port, the stick and the disk in it ask for a driver one after the other.
func (b *boot) wait(ctx context.Context, patience time.Duration) (err error) {
	const slice = 2 * time.Second
	for end := time.Now().Add(patience); ; b.coldplug() {
		part, cancel := context.WithTimeout(ctx, min(slice, time.Until(end)))
		err = b.net.Wait(part)
		cancel()
		if err == nil || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// makeNetwork makes what the first of the sources says that says anything, see package table.
func (b *boot) makeNetwork() error {
	if err := network.Loopback(); err != nil {
		b.say("%v", err)
	}
	b.eachItsOwn()
	cards, err := network.Cards("/sys")
	if err != nil {
		return err
	}
	t, notes := table.Make(table.Machine{Words: b.words, Cards: cards, UUIDs: b.id.UUIDs, Boot: b.bootMAC()}, &b.bootstrap)
	for _, note := range notes {
		b.say("network: %s", note)
	}
	b.say("network by %s", t.Source)
	b.net, err = network.Start(t, network.Options{Cards: cards, Load: b.modules.Load, Say: b.say})
	return err
}

// eachItsOwn has each interface answer for its own addresses alone, until the new root is
// entered. Two cards on one network else answer for each other, and what comes by the wrong
// one is not heard: the loader asks by one card at a time.
func (b *boot) eachItsOwn() {
	if b.arp != nil {
		return
	}
	const conf = "/proc/sys/net/ipv4/conf/all/"
	b.arp = []*setting{{file: conf + "arp_ignore", value: "1"}, {file: conf + "arp_announce", value: "2"}}
	for _, s := range b.arp {
		if err := s.change(); err != nil {
			b.say("two cards on one network may answer for each other: %v", err)
		}
	}
}

// bootMAC is the address of the card that the machine booted by, "" where nobody said so.
func (b *boot) bootMAC() string {
	if identity.Option(b.words, "BOOTIF") == "" || len(b.id.MACs) == 0 {
		return ""
	}
	return b.id.MACs[0]
}

const (
	together = 2 * time.Second  // how long after the first answer others still count
	others   = 10 * time.Second // and after the first that says only why it has nothing
)

// answered holds the registry's answer for this node, by one way.
type answered struct {
	way    *state.Lease
	place  int // of the way, the preferred one first
	found  *track.Found
	weak   bool // found only by a name that DHCP gave
	reason error
}

// pickWay decides by which way the registry is asked. Where there are several, each is
// asked what it has, and of the answers that come within two seconds of the first, that with
// the highest epoch and generation wins, never the first: any network that a cable leads to
// may replay what the site once signed. What is found by the hardware goes before what is
// found by a name from DHCP, and of equal answers the card counts that the machine booted by.
func (b *boot) pickWay(ctx context.Context) error {
	if b.net == nil {
		return nil // the source was given
	}
	if ways, pending, _ := b.net.Ways(""); len(ways) == 1 && pending == 0 { // an interface without a carrier has nothing to say
		return b.take(ways[0], false)
	}
	return b.takeBest(b.askAll(ctx))
}

// askAll asks by each way, until there are no more or those that are left have had their
// time.
func (b *boot) askAll(ctx context.Context) (all []answered) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.ask)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers, asked := make(chan answered), map[string]bool{}
	var over <-chan time.Time
	good := false
	for waiting := 0; ; {
		ways, pending, changed := b.net.Ways(b.bootMAC())
		for place, way := range ways {
			if name := way.Interface + " " + way.Address.String(); !asked[name] {
				asked[name] = true
				waiting++
				asking.Go(func() {
					a := b.looks(ctx, way)
					a.place = place
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

// looks asks by one way, and remembers nothing of it.
func (b *boot) looks(ctx context.Context, way *state.Lease) answered {
	a := answered{way: way}
	source, err := b.open(way, true)
	if err != nil {
		a.reason = err
		return a
	}
	f := b.follower()
	f.Source = source
	var name string
	a.found, name, a.reason = b.claim(ctx, f, way, f.Look)
	a.weak = name != ""
	return a
}

// takeBest takes the way of the best answer, and of those that have none the one that the
// registry was at least reached by.
func (b *boot) takeBest(all []answered) error {
	var best *answered
	for _, a := range all {
		what := fmt.Sprint(a.reason)
		if a.reason == nil {
			what = fmt.Sprintf("has epoch %d, generation %d", a.found.Generation.Epoch, a.found.Generation.Generation)
		}
		b.say("by %s, %s: %s", a.way.Interface, a.way.Address, what)
		if best == nil || a.compare(best) > 0 {
			best = &a
		}
	}
	if best == nil {
		return errors.New("network: no way has led to an answer")
	}
	return b.take(best.way, true)
}

// compare is above 0 where a is to be believed rather than o.
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
func (b *boot) take(way *state.Lease, only bool) (err error) {
	if b.source != nil && b.lease != nil && b.lease.Interface == way.Interface && b.lease.Address == way.Address {
		return nil
	}
	b.say("address %s on %s (%s)", way.Address, way.Interface, way.MAC)
	if err := network.Resolver(b.resolv, way); err != nil {
		return err
	}
	first := b.lease == nil
	if b.lease = way; first {
		b.lateState()
	}
	b.source, err = b.open(way, only)
	return err
}

// open reaches the registry by one way.
func (b *boot) open(way *state.Lease, only bool) (oci.Source, error) {
	s, err := b.folder.Load()
	if err != nil {
		return nil, err
	}
	const silence = 10 * time.Second
	by := track.Way{Credentials: b.folder.Path(paths.Credentials), Own: b.ownSecrets(s), Clock: track.Clock(s, b.build), Silence: silence, Agent: track.UserAgent(b.version, b.id)}
	if only {
		by.Dial = network.Dial(way, silence)
	}
	return track.Open(b.bootstrap, by)
}
