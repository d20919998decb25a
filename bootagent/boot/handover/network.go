// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/networkd"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec/timeservice"
)

// network writes what systemd-networkd makes of the site's interfaces and the loader's. That
// no value holds a line break was decided with the overlay, see trust: the publisher's
// rehearsal finds it as well.
func (n *Node) network() error {
	files := networkd.Files(n.Overlay.Network, networkd.Boot{Lease: n.Lease, Made: n.Network})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := n.write("/etc/systemd/network/"+name, []byte(files[name]), 0o644); err != nil {
			return err
		}
	}
	return n.timeServers()
}

// timeServers tells the layer's time service which servers the site has. A file of the site
// in that place wins.
func (n *Node) timeServers() error {
	servers := n.Overlay.Network.NTP
	s, ok := timeservice.In(n.exists)
	if len(servers) == 0 || !ok {
		return nil
	}
	was, err := os.ReadFile(n.path(s.Config))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return n.write(s.Config, []byte(s.Text(string(was), servers)), 0o644)
}

// resolver points at systemd-resolved where the layer has it, else it writes
// what is known.
func (n *Node) resolver() error {
	if n.exists("/usr/lib/systemd/systemd-resolved") {
		return n.put("/etc/resolv.conf", safepath.Thing{Mode: unix.S_IFLNK, Target: "../run/systemd/resolve/stub-resolv.conf"})
	}
	var b strings.Builder
	search := n.Overlay.Network.Search
	if len(search) == 0 && n.Lease != nil {
		search = n.Lease.Search
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	servers := n.Overlay.Network.DNS
	if len(servers) == 0 && n.Lease != nil {
		for _, server := range n.Lease.DNS {
			servers = append(servers, server.String())
		}
	}
	for _, server := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	return n.write("/etc/resolv.conf", []byte(b.String()), 0o644)
}

// certificates adds the site's CAs to the store that the layer's programs read.
func (n *Node) certificates() error {
	if len(n.Overlay.CAs) == 0 {
		return nil
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	text, err := os.ReadFile(n.path(bundle))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, ca := range n.Overlay.CAs {
		text = append(append(text, strings.TrimSpace(ca)...), '\n')
	}
	return n.write(bundle, text, 0o644)
}
