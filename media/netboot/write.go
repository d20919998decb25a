// SPDX-License-Identifier: Apache-2.0

// Package netboot makes and serves the files that machines boot over the network: the loader's
// kernel and initrd, site.cpio with the trust anchor, and the iPXE script that loads the three; see
// [Serve].
//
// It takes a loader out of a released layer and adds what the site's nodes trust.
// It is not the registry that nodes ask afterwards, and it signs nothing: the
// loader is as safe as the wire or the firmware that brings it. Only cmd/caisson
// and package sandbox import it.
package netboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Files are the names of what [Write] writes, sorted.
var Files = []string{"boot.ipxe", "initrd", "kernel", "site.cpio"}

// Loader says what a directory holds.
type Loader struct {
	Layer     release.Layer  // whose kernel and initrd load
	Bootstrap spec.Bootstrap // whom the nodes trust
	URL       string         // where the directory is served; empty is beside the script
	Args      []string       // further arguments of the loader's kernel
}

// Line is the command line that the loader's kernel is started with, but for the card that
// it came by.
func (l Loader) Line() []string {
	return spec.KernelLine(slices.Concat(l.Bootstrap.KernelArgs, l.Args))
}

// Write fetches the loader's blobs and writes the directory. All blobs come first,
// under other names: a kernel beside the initrd of another layer boots nothing.
func Write(ctx context.Context, r *registry.Registry, dir string, l Loader) error {
	l.Bootstrap.SetNeeds()
	if err := l.Layer.Boots(&l.Bootstrap); err != nil {
		return fmt.Errorf("layer %s: %w", l.Layer.Digest, err)
	}
	cpio, err := boot.SiteCPIO(l.Bootstrap)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	blobs := map[string]string{"kernel": l.Layer.Kernel.Digest, "initrd": l.Layer.Initrd.Digest}
	for name, digest := range blobs {
		fresh := filepath.Join(dir, "."+name+".new")
		defer os.Remove(fresh) // when it did not come to the renames
		if err := release.Save(ctx, r, digest, fresh); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range blobs {
		if err := os.Rename(filepath.Join(dir, "."+name+".new"), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(dir, "site.cpio"), cpio, 0o644); err != nil {
		return err
	}
	script := ipxeScript(l.URL, l.Line())
	return durable.WriteFile(filepath.Join(dir, "boot.ipxe"), []byte(script), 0o644)
}

// ipxeScript loads the two archives one after the other: the kernel unpacks both
// into one tree. BIOS and UEFI differ in how they learn of them, this does for both.
func ipxeScript(url string, line []string) string {
	if url != "" {
		url = strings.TrimRight(url, "/") + "/"
	}
	return fmt.Sprintf(`#!ipxe
kernel %[1]skernel initrd=initrd initrd=site.cpio BOOTIF=01-${netX/mac:hexhyp} %[2]s || goto failed
initrd --name initrd %[1]sinitrd || goto failed
initrd --name site.cpio %[1]ssite.cpio || goto failed
boot || goto failed

:failed
echo caisson: could not load the node's loader, trying again in 10 seconds
sleep 10
chain --replace %[1]sboot.ipxe || goto failed
`, url, strings.Join(line, " "))
}

// IPXEDir is where Debian's package ipxe has its programs.
const IPXEDir = "/usr/lib/ipxe"

// ipxePrograms lists the programs that firmware loads by TFTP or HTTP: for BIOS and for UEFI.
var ipxePrograms = []string{"ipxe.efi", "undionly.kpxe"}

// CarryIPXE copies the iPXE programs of a directory beside boot.ipxe and returns
// their names. What is not there is left out: firmware that is iPXE itself needs
// none of them.
func CarryIPXE(from, dir string) ([]string, error) {
	var carried []string
	for _, name := range ipxePrograms {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = durable.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("include %s: %w", name, err)
		}
		carried = append(carried, name)
	}
	return carried, nil
}

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
	b.Keys, b.EpochKeys, b.Threshold = sign.PEMs(operators), sign.PEMs(epoch), s.Trust().Threshold
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
	b.Keys, b.Threshold = sign.PEMs(operators), 1
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
