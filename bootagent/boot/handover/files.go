// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/timeservice"
)

// files writes the overlay's files and those that other kinds are made of, with the
// code that keeps them later, so that services find them when they start. A file
// that cannot be written does not stop the boot: the service tries again and shows
// why. The service's journal gets the originals.
//
// Secrets are opened before, in memory that goes on over switch_root: a unit may name one, and
// starts before the agent, and an operator may log in on the console. A soft-reboot loses that memory: there the agent opens them, and
// units that name one wait for it, see [Node.order].
func (n *Node) files() error {
	var j originals
	etc, want := n.path("/etc"), n.Overlay.Items
	ctx := context.Background()
	sealed, at := n.secrets()
	kinds := []item.Item{
		sealed,
		files.New(want.Files, etc, &j).WithSecrets(files.Secrets{Dir: at, Lacks: sealed.Lacks, Later: n.SecretsLater,
			Ask: func(ctx context.Context, path, secret string) error {
				value, _ := sealed.Open(secret) // where there is none it lacks
				return configcheck.Hide(configcheck.Ask(ctx, n.Root, path, string(value)))
			}}).WithReaders(func(ctx context.Context, path, content string) error {
			return configcheck.Ask(ctx, n.Root, path, content)
		}),
		files.Named(modules.Name, modules.Files(want.Modules), etc, &j),
		units.New(want.Units, n.Root, nil, &j).WithSecrets(units.Secrets{Dir: at, Lacks: sealed.Lacks}),
		files.Named(service.Name, service.Files(n.Overlay.Services, n.Root), etc, &j),
	}
	if n.SecretsLater {
		kinds = kinds[1:]
	} else {
		kinds = append(kinds, accounts.NewPasswords(want.Passwords, n.Root, sealed.Open, &j))
	}
	for _, it := range kinds {
		drift, err := it.Check(ctx)
		if err == nil {
			err = it.Apply(ctx, drift)
		}
		if err != nil {
			n.Say("%v", err)
		}
		for _, d := range drift {
			if d.Action == spec.ActionRefuse || d.Action == spec.ActionCannot {
				n.Say("%s %s is not written: %s", strings.TrimSuffix(d.Item, "s"), d.Key, d.Reason)
			}
		}
	}
	n.Originals = j.entries
	for _, e := range j.entries {
		if e.Item == accounts.PasswordsName { // of which a key is not a path
			e.Key = "/etc/shadow"
		}
		n.wrote = append(n.wrote, e.Key)
	}
	return nil
}

// secrets are those of the overlay, and where they are opened.
func (n *Node) secrets() (*secrets.Item, string) {
	var open func(spec.Secret) ([]byte, error)
	if n.Disk && len(n.Overlay.Secrets) > 0 {
		key, err := secrets.Keys{State: n.State.Path(), Memory: paths.RunUnlocked}.Read()
		if err != nil {
			n.Say("%v", err)
		}
		if key != nil {
			open = key.Open
		}
	}
	at := cmp.Or(n.SecretDir, spec.SecretDir)
	return secrets.New(n.Overlay.Secrets, secrets.Place{Dir: at, Ram: n.SecretDir == ""}, open).WithOwn(track.OwnSecrets(n.Overlay)), at
}

// originals is a journal in memory: a root that is cut here never ran.
type originals struct{ entries []item.Entry }

// Record implements item.Journal.
func (o *originals) Record(entries ...item.Entry) error {
	o.entries = append(o.entries, entries...)
	return nil
}

// Entries implements item.Journal.
func (o *originals) Entries(kind string) []item.Entry {
	return slices.DeleteFunc(slices.Clone(o.entries), func(e item.Entry) bool { return e.Item != kind })
}

// Forget implements item.Journal.
func (o *originals) Forget(...item.Entry) error { return nil }

// Replace implements item.Journal.
func (o *originals) Replace(_, moved []item.Entry) error { return o.Record(moved...) }

// stamps say that /etc and /var are as new as /usr, or systemd would take every
// boot for the first one after an update and run all that waits for that.
func (n *Node) stamps() error {
	usr, err := os.Stat(n.path("/usr"))
	if err != nil {
		return err
	}
	at := usr.ModTime()
	text := fmt.Sprintf("# This file was created by caisson: the root is stacked again at each boot.\nTIMESTAMP_NSEC=%d\n", at.UnixNano())
	for _, name := range []string{"/etc/.updated", "/var/.updated"} {
		if err := n.write(name, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(n.path(name), at, at); err != nil {
			return err
		}
	}
	return nil
}

// network writes what systemd-networkd makes of the site's interfaces and the loader's. That
// no value holds a line break was decided with the overlay, see trust: the publisher's
// rehearsal finds it as well.
func (n *Node) network() error {
	files := table.NetworkdFiles(n.Overlay.Network, table.Boot{Lease: n.Lease, Made: n.Network})
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
		return n.put("/etc/resolv.conf", safepath.Thing{Mode: unix.S_IFLNK, Target: "../run/systemd/resolve/stub-resolv.conf",
			UID: os.Geteuid(), GID: os.Getegid()})
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
		servers = plain.Each(n.Lease.DNS, netip.Addr.String)
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
