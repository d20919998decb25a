// SPDX-License-Identifier: Apache-2.0

// Package network makes the interfaces by which a loader reaches the registry, and tells by
// which of them it is: cards, bonds and VLANs with addresses that are given, or asked for by
// DHCPv4, DHCPv6 and router advertisements. Which they are is decided in package table.
//
// Each interface by which something may be reached is a way. All are brought up at once, and
// for as long as the loader runs: one whose switch takes minutes, or whose cable comes late,
// is a way then. What is waited for is reported by the kernel (a carrier, an address that is
// settled, an advertisement); LACP alone is looked for each second. DHCP is asked again
// until it answers, and once more after half of a lease.
//
// The new root carries on what is here: the client identifier is the hardware address, as
// systemd-networkd's ClientIdentifier=mac sends it, and by DHCPv6 DUID-LL. The package
// follows RFC 2131, 4361, 4861 and 8415, and configures through rtnetlink(7).
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/lease"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// ErrNoInterface is returned where there is no interface to reach anything by.
var ErrNoInterface = errors.New("no network interface")

// Network holds the interfaces made from a table, while they exist.
type Network struct {
	Table table.Table // its interfaces have the names and addresses of this kernel

	say     func(format string, args ...any)
	load    func(module string) error
	within  time.Duration // how long a server may take for an answer
	lacp    time.Duration // how long a partner may take after the carrier
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	ways    []*record.Lease  // as they came
	silent  map[string]error // interfaces that are not a way yet, and why
	changed chan struct{}    // closed when one of both has changed
}

// Options holds the inputs of a network beside its table.
type Options struct {
	Cards []table.Card
	Load  func(module string) error // of the kernel
	Say   func(format string, args ...any)
}

// Start makes the interfaces and begins to look for ways, until Leave.
func Start(t table.Table, o Options) (*Network, error) {
	n := &Network{Table: t, say: o.Say, load: o.Load, within: 2 * time.Second, lacp: 20 * time.Second,
		silent: map[string]error{}, changed: make(chan struct{})}
	if n.Table.Any != "" {
		n.Table.Interfaces = slices.Clone(t.Interfaces)
		for _, c := range o.Cards {
			if !used(t.Interfaces, c) {
				n.Table.Interfaces = append(n.Table.Interfaces, spec.Interface{Name: c.Name, MAC: c.MAC, DHCP: t.Any})
			}
		}
	}
	if len(n.Table.Interfaces) == 0 {
		return nil, ErrNoInterface
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // each request has had its answer
	hear := lease.HearRouters()
	if err := n.makeLinks(conn, o.Cards); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { hear.Until(ctx) })
	for _, i := range n.Table.Interfaces {
		if len(i.Addresses) > 0 {
			n.begin(ctx, i.Name, func(s seek) error { return s.given(ctx, i) })
		}
		if i.DHCP == spec.DHCPv4 || i.DHCP == spec.DHCPBoth {
			var had *record.Lease
			n.begin(ctx, i.Name+" by DHCP", func(s seek) error { return s.lease(ctx, i, &had) })
		}
		if i.DHCP == spec.DHCPv6 || i.DHCP == spec.DHCPBoth {
			n.begin(ctx, i.Name+" by IPv6", func(s seek) error { return s.advertised(ctx, i, hear) })
		}
	}
	return n, nil
}

// used reports whether the interfaces of a table are made of a card.
func used(all []spec.Interface, c table.Card) bool {
	return slices.ContainsFunc(all, func(i spec.Interface) bool {
		return i.MAC == c.MAC || i.Bond != nil && slices.Contains(i.Bond.Members, c.MAC)
	})
}

// seek looks for one way.
type seek struct {
	*Network
	name string // of the interface, and how it gets its address
}

// pause is how long nothing is done about an interface after an error.
const pause = time.Second

// begin looks for a way, and after an error again: an interface may be away for a moment, a
// server may give what cannot be used, and there may be no other way.
func (n *Network) begin(ctx context.Context, name string, look func(seek) error) {
	n.change(func() { n.silent[name] = errors.New("no carrier") })
	n.running.Go(func() {
		s := seek{n, name}
		for err := look(s); err != nil && ctx.Err() == nil; err = look(s) {
			s.waits(err)
			_ = stall.Rest(ctx, pause) // the loop asks the context
		}
	})
}

// waits notes why there is no way yet.
func (s seek) waits(why error) {
	s.change(func() {
		if s.silent[s.name] != nil {
			s.silent[s.name] = why
		}
	})
}

// found adds the way, in the place of what it was before.
func (s seek) found(l *record.Lease) {
	s.change(func() {
		delete(s.silent, s.name)
		is := func(w *record.Lease) bool {
			return w.Interface == l.Interface && w.Address.Addr().Is4() == l.Address.Addr().Is4()
		}
		if i := slices.IndexFunc(s.ways, is); i >= 0 {
			s.ways[i] = l
		} else {
			s.ways = append(s.ways, l)
		}
	})
}

func (n *Network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Ways are those that there are, the one of the card with the address boot first; pending
// is how many more there may soon be, and changed is closed when one comes or gives up.
// A way whose interface has no carrier is not pending: nobody can answer there.
func (n *Network) Ways(boot string) (ways []*record.Lease, pending int, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := func(w *record.Lease) bool { return w.MAC == boot }
	others := slices.DeleteFunc(slices.Clone(n.ways), first)
	ways = append(slices.DeleteFunc(slices.Clone(n.ways), func(w *record.Lease) bool { return !first(w) }), others...)
	for name := range n.silent {
		name, _, _ = strings.Cut(name, " ")
		if up, err := hasCarrier(name); err == nil && up {
			pending++
		}
	}
	return ways, pending, n.changed
}

// Wait waits for a first way until ctx ends, and says then why there is none.
func (n *Network) Wait(ctx context.Context) error {
	for {
		ways, _, changed := n.Ways("")
		if len(ways) > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			n.mu.Lock()
			defer n.mu.Unlock()
			var errs []error
			for name, why := range n.silent {
				errs = append(errs, fmt.Errorf("interface %s: %w", name, why))
			}
			slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
			return errors.Join(errs...)
		}
	}
}

// Under are the interface of a way and what that is made of, the way's own last. The new root
// makes them again.
func (n *Network) Under(l *record.Lease) spec.Network {
	own := spec.Network{DNS: n.Table.DNS, Search: n.Table.Search}
	for name := l.Interface; name != ""; {
		i := slices.IndexFunc(n.Table.Interfaces, func(i spec.Interface) bool { return i.Name == name })
		if i < 0 {
			break
		}
		one := n.Table.Interfaces[i]
		own.Interfaces = append([]spec.Interface{one}, own.Interfaces...)
		if name = ""; one.VLAN != nil {
			name = one.VLAN.On
		}
	}
	return own
}

// Leave ends the search for ways and keeps one: the interfaces of the others lose the
// addresses that they got here. The new root asks by itself where it wants them.
func (n *Network) Leave(keep *record.Lease) error {
	n.stop()
	n.running.Wait()
	var errs []error
	for _, w := range n.ways {
		if w.Interface != keep.Interface {
			errs = append(errs, drop(w))
		}
	}
	return errors.Join(errs...)
}

// Resolver writes what the loader's own /etc/resolv.conf says.
func Resolver(file string, l *record.Lease) error {
	var text strings.Builder
	for _, server := range l.DNS {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	fmt.Fprintf(&text, "search %s\n", cmp.Or(strings.Join(l.Search, " "), "."))
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// Loopback brings lo up.
func Loopback() error {
	return with("lo", func(conn *rtnetlink.Conn, index uint32) error {
		return fault.In(fault.But(linkUp(conn, index), unix.EEXIST), "interface lo up")
	})
}
