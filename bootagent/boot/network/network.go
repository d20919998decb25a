// SPDX-License-Identifier: Apache-2.0

// Package network gives the loader an IPv4 address by DHCP and tells what it
// got, so that the new root can carry the same lease on.
//
// Every interface with hardware behind it is tried at once, the one the machine
// booted from is preferred, and nobody gives up before the deadline: a bonded
// switch port may take more than a minute to pass packets. The client identifier
// is the hardware address, as systemd-networkd's ClientIdentifier=mac sends it.
// It follows RFC 2131 and RFC 4361, and configures through rtnetlink(7).
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"golang.org/x/sys/unix"
)

// ErrNoInterface is returned where no interface has hardware behind it.
var ErrNoInterface = errors.New("no network interface")

// Up brings the machine's interfaces up and returns the first lease that any of
// them gets, configured. bootMAC names the interface to prefer, "" for none.
func Up(ctx context.Context, bootMAC string) (*state.Lease, error) {
	cards, err := hardware()
	if err != nil {
		return nil, err
	}
	if len(cards) == 0 {
		return nil, ErrNoInterface
	}
	type answer struct {
		lease *state.Lease
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(cards))
	for _, card := range cards {
		go func() {
			if bootMAC != "" && card.HardwareAddr.String() != bootMAC {
				// The others are only asked where the preferred one stays silent.
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
			}
			lease, err := ask(ctx, card, answerTime)
			answers <- answer{lease, err}
		}()
	}
	var errs []error
	for range cards {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		cancel()
		return a.lease, configure(a.lease)
	}
	return nil, errors.Join(errs...)
}

// hardware lists the interfaces that a device stands behind.
func hardware() ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var cards []net.Interface
	for _, card := range all {
		if _, err := os.Stat("/sys/class/net/" + card.Name + "/device"); err == nil {
			cards = append(cards, card)
		}
	}
	return cards, nil
}

// answerTime is how long a server may take for an answer, before it is asked once more.
const answerTime = 2 * time.Second

// ask repeats the DHCP exchange until it gets a lease or ctx ends.
func ask(ctx context.Context, card net.Interface, within time.Duration) (*state.Lease, error) {
	if err := linkUp(card.Index); err != nil {
		return nil, fmt.Errorf("interface %s up: %w", card.Name, err)
	}
	id := append([]byte{1}, card.HardwareAddr...)
	for {
		ack, err := exchange(ctx, card, id, within)
		if err == nil {
			return parse(card, ack)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("interface %s: no answer to DHCP: %w", card.Name, err)
		case <-time.After(within / 4):
		}
	}
}

func exchange(ctx context.Context, card net.Interface, id []byte, within time.Duration) (*dhcpv4.DHCPv4, error) {
	client, err := nclient4.New(card.Name, nclient4.WithTimeout(within), nclient4.WithRetry(2))
	if err != nil {
		return nil, err
	}
	defer client.Close() // each request has had its answer
	lease, err := client.Request(ctx,
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(id)),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer,
			dhcpv4.OptionDomainName, dhcpv4.OptionHostName))
	if err != nil {
		return nil, err
	}
	return lease.ACK, nil
}

// parse takes what the node needs from an answer, and trusts none of it
// beyond its form.
func parse(card net.Interface, ack *dhcpv4.DHCPv4) (*state.Lease, error) {
	ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	ones, bits := ack.SubnetMask().Size()
	if !ok || bits != 32 || ones == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, fmt.Errorf("interface %s: DHCP offers no usable address", card.Name)
	}
	l := &state.Lease{Interface: card.Name, MAC: card.HardwareAddr.String(), Address: netip.PrefixFrom(ip, ones)}
	if routers := ack.Router(); len(routers) > 0 {
		l.Gateway, _ = netip.AddrFromSlice(routers[0].To4())
	}
	for _, server := range ack.DNS() {
		if addr, ok := netip.AddrFromSlice(server.To4()); ok {
			l.DNS = append(l.DNS, addr)
		}
	}
	if name := ack.DomainName(); plainName(name) {
		l.Domain = name
	}
	if name := ack.HostName(); plainName(name) {
		l.HostName = name
	}
	return l, nil
}

// plainName keeps what DHCP says out of files where a newline would begin a
// line of its own.
func plainName(name string) bool {
	return len(name) > 0 && len(name) <= 253 &&
		strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// Resolver writes /etc/resolv.conf for the loader itself.
func Resolver(l *state.Lease) error {
	var text strings.Builder
	for _, server := range l.DNS {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	return os.WriteFile("/etc/resolv.conf", []byte(text.String()), 0o644)
}

// Loopback brings lo up.
func Loopback() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if err := linkUp(lo.Index); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("interface lo up: %w", err)
	}
	return nil
}
