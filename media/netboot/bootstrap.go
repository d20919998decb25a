// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Registry says how the nodes reach what is published.
type Registry struct {
	Ref       string // host[:port]/prefix; empty is the site's own
	PlainHTTP bool
	Mirrors   []string
	Proxy     string
	CAs       []string // PEM
}

// Bootstrap returns the trust anchor of a site's nodes, with the newest version of the keys
// that is beside the site: the registry may have a newer one, which [Follow] takes.
func Bootstrap(s *site.Site, r Registry) (spec.Bootstrap, error) {
	b, err := Anchor(s, r, nil)
	if err != nil {
		return b, err
	}
	operators, err := keys.Publics(s.Trust().Operator)
	if err != nil {
		return b, cli.WithHint(fmt.Errorf("operator keys: %w", err), "'caisson keys' makes keys, trust.keys.operator of the site names them")
	}
	epoch, err := keys.Publics(s.Trust().Epoch)
	if err != nil {
		return b, fmt.Errorf("epoch keys: %w", err)
	}
	b.Keys, b.EpochKeys, b.Threshold = texts(operators), texts(epoch), s.Trust().Threshold
	if name := s.Trust().Chain; name != "" {
		c, err := chain.ReadFile(name)
		if err != nil {
			return b, err
		}
		if c == nil {
			return b, cli.WithHint(fmt.Errorf("the site names root keys, and %s is not there", name),
				"'caisson keys rotate' makes the first version")
		}
		if of := c.Newest().Keys.Fleet; of != b.Fleet {
			return b, cli.WithHint(fmt.Errorf("%s is of fleet %q, the site is %q", name, of, b.Fleet),
				"take that of this site; 'caisson keys rotate' makes one where there is none")
		}
		b = Follow(b, c)
	}
	return b, nil
}

// Follow returns a bootstrap with the keys of the newest version of a chain, whatever the site
// names meanwhile. Without one it is as it was.
func Follow(b spec.Bootstrap, c *chain.Chain) spec.Bootstrap {
	if c == nil {
		return b
	}
	b = c.Bootstrap(b)
	b.Chain = c.Newest().Candidate.Document
	return b
}

// ForHost returns what of a bootstrap a host needs that caisson does not boot: not
// loaders, disks and cards.
func ForHost(b spec.Bootstrap) spec.Bootstrap {
	b.KernelArgs, b.Hints, b.NewStateDisk, b.BootFromDisk, b.Network, b.Nodes = nil, "", nil, false, nil, nil
	b.SetNeeds()
	return b
}

// Anchor is [Bootstrap] with other operators than the site's: one signature of theirs is
// enough, and none of them raises the epoch.
func Anchor(s *site.Site, r Registry, operators []sign.Verifier) (spec.Bootstrap, error) {
	b := s.Bootstrap()
	b.PlainHTTP, b.Mirrors, b.Proxy, b.CAs = r.PlainHTTP, r.Mirrors, r.Proxy, r.CAs
	b.Keys, b.Threshold = texts(operators), 1
	if r.Ref != "" {
		b.Registry = r.Ref
	}
	if ref, err := oci.ParseRef(b.Registry); err != nil {
		return b, fmt.Errorf("registry of the nodes: %w", err)
	} else if ref.IsLayout() {
		return b, cli.Usage("name with --registry what serves it, see 'caisson serve'", "nodes cannot ask a directory: registry is %q", b.Registry)
	}
	for _, m := range r.Mirrors {
		if ref, err := oci.ParseRef(m); err != nil || ref.IsLayout() {
			return b, cli.Usage("host[:port]/prefix", "--mirror: %q is not a registry", m)
		}
	}
	return b, checkProxy(r.Proxy)
}

// texts are keys in PEM, written by one hand.
func texts(found []sign.Verifier) []string {
	return plain.Each(found, func(k sign.Verifier) string { return string(k.PEM()) })
}

var partitionUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// NameStateDisk has the nodes of a bootstrap use the partition with a UUID; "" is none.
func NameStateDisk(b *spec.Bootstrap, uuid string) error {
	b.StateDisk = strings.ToLower(uuid)
	switch {
	case uuid == "":
		return nil
	case !partitionUUID.MatchString(b.StateDisk):
		return cli.Usage("'lsblk -o NAME,PARTUUID' shows them", "--state-disk: %q is not a partition UUID", uuid)
	case b.NewStateDisk != nil:
		return cli.Usage("name the disk in layer.stateDisk.disks",
			"--state-disk names a partition that is there, and layer.stateDisk.create has one made where none is")
	}
	return nil
}

// checkProxy refuses a proxy with a password, since site.cpio is given to everyone
// who asks; the error does not repeat it.
func checkProxy(proxy string) error {
	if proxy == "" {
		return nil
	}
	if u, err := url.Parse(proxy); err != nil || u.Host == "" || u.User != nil {
		return cli.Usage("http://host:port; everyone can read site.cpio, so it holds no password",
			"--proxy is not the URL of a proxy without user and password")
	}
	return nil
}
