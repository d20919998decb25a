// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/internal/safepath"
)

// machineID writes /etc/machine-id. A node with a disk has a random one for
// life; a diskless one is always the same without remembering anything.
func (n *Node) machineID() error {
	id := derivedID(n.Overlay.Fleet, n.Overlay.Node, n.UUID)
	if n.Disk {
		var random [16]byte
		rand.Read(random[:])
		kept, err := n.keep("machine-id", []byte(formatID(random)), func(data []byte) bool {
			return len(data) == 33 && data[32] == '\n' && strings.Trim(string(data[:32]), "0123456789abcdef") == ""
		})
		if err != nil {
			n.Say("the machine-id is not kept over a reboot: %v", err)
		} else {
			id = string(kept)
		}
	}
	return n.write("/etc/machine-id", []byte(id), 0o444)
}

// derivedID returns the id of a node that remembers nothing. It is an HMAC and not a
// plain hash, so that one fleet's ids tell nothing to another; but it is not a secret: a
// diskless node has none, and fleet, name and UUID lead to it.
func derivedID(fleet, node, uuid string) string {
	mac := hmac.New(sha256.New, []byte("caisson machine-id "+fleet))
	fmt.Fprintf(mac, "%d %s %s", len(node), node, uuid)
	return formatID([16]byte(mac.Sum(nil)[:16]))
}

// formatID sets the bits that make the id a random UUID (version 4), as
// systemd-machine-id-setup does.
func formatID(id [16]byte) string {
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id[:]) + "\n"
}

func (n *Node) hostName() error {
	node := n.Overlay.Node
	if err := n.write("/etc/hostname", []byte(node+"\n"), 0o644); err != nil {
		return err
	}
	names := node
	if n.Network.Lease != nil && n.Network.Lease.Domain != "" {
		names = node + "." + n.Network.Lease.Domain + " " + node
	}
	hosts := "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + names + "\n"
	return n.write("/etc/hosts", []byte(hosts), 0o644)
}

// release adds to os-release(5) which layer this is: what is baked cannot say it,
// or two builds of the same would differ.
func (n *Node) release() error {
	const name = "usr/lib/os-release"
	info, err := os.Lstat(n.path(name))
	if n.Version == "" || err != nil || !info.Mode().IsRegular() || info.Size() > maxRelease {
		return nil // not a distribution's own file
	}
	text, err := os.ReadFile(n.path(name))
	if err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "IMAGE_") {
			out.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	fmt.Fprintf(&out, "IMAGE_ID=%q\nIMAGE_VERSION=%q\n", n.Overlay.Fleet, n.Version)
	return n.write("/etc/os-release", []byte(out.String()), 0o644)
}

const maxRelease = 64 << 10

// seed carries entropy from boot to boot on nodes that have a disk. The seed is
// replaced before it is used, so that a cut never makes it serve twice; where it
// cannot be, it is not used.
func (n *Node) seed() error {
	if !n.Disk || n.ReadOnly {
		return nil
	}
	old, _ := ownfiles.ReadFile(n.State.Path("identity", "random-seed"), seedSize) // one that cannot be read is replaced, not used
	next := make([]byte, seedSize)
	rand.Read(next)
	err := durable.WriteFile(n.State.Path("identity", "random-seed"), next, 0o600)
	if err == nil && len(old) == seedSize {
		err = n.write("/var/lib/systemd/random-seed", old, 0o600)
	}
	fault.Say(n.Say, fault.In(err, "no random seed"))
	return nil
}

const seedSize = 512

// keep returns the content of an identity file, or fresh, which it stores first,
// where there is none that is valid.
func (n *Node) keep(name string, fresh []byte, valid func([]byte) bool) ([]byte, error) {
	data, err := ownfiles.ReadFile(n.State.Path("identity", name), seedSize) // the largest is the seed
	if err == nil && valid(data) {
		return data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		aside, lost := ownfiles.SetAside(n.State.Path("identity", name), err)
		if lost != nil {
			aside = lost.Error()
		}
		n.Say("the stored %s is invalid (%s); generating a new one", name, aside)
	}
	return fresh, durable.WriteFile(n.State.Path("identity", name), fresh, 0o600)
}

// hostKey gives sshd its key, whose fingerprint stands on the console: the node's own for
// ever where there is a disk, else until the machine starts over.
func (n *Node) hostKey() error {
	if !n.exists("/usr/sbin/sshd") {
		return nil
	}
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	seed, err := n.keep("ssh_host_ed25519_seed", seed, func(data []byte) bool { return len(data) == ed25519.SeedSize })
	fault.Say(n.Say, fault.In(err, "the ssh host key is not kept"))
	private, public := perhost.OpenSSH(seed, n.Overlay.Node)
	sum := sha256.Sum256(public)
	n.Say("ssh host key SHA256:%s", base64.RawStdEncoding.EncodeToString(sum[:]))
	line := "ssh-ed25519 " + base64.StdEncoding.EncodeToString(public) + " " + n.Overlay.Node + "\n"
	err = n.write("/etc/ssh/ssh_host_ed25519_key", private, 0o600)
	if err == nil {
		err = n.write("/etc/ssh/ssh_host_ed25519_key.pub", []byte(line), 0o644)
	}
	fault.Say(n.Say, err) // a persisted /etc/ssh that cannot be written to
	return nil
}

// perHost makes the files of perhost's table whose programs the layer has. Identities follow
// from names; secrets from one seed, which is the node's for ever where there is a disk, else
// until the machine starts over. A secret that is there, on a persisted path, stays; what the
// overlay's files say comes later and wins.
func (n *Node) perHost() error {
	node := perhost.Node{Fleet: n.Overlay.Fleet, Name: n.Overlay.Node}
	if n.Network.Lease != nil {
		node.Domain = n.Network.Lease.Domain
	}
	for _, row := range perhost.Table {
		for _, f := range row.Files {
			if !n.exists(f.For) || !f.Always && n.exists(f.Path) {
				continue
			}
			if node.Seed == nil {
				node.Seed = n.secretSeed()
			}
			fault.Say(n.Say, fault.In(n.makeFile(f, node), "%s of this node", f.Path)) // one service lacks it
		}
	}
	return nil
}

func (n *Node) secretSeed() []byte {
	fresh := make([]byte, perhost.SeedSize)
	rand.Read(fresh)
	seed, err := n.keep("secrets-seed", fresh, func(data []byte) bool { return len(data) == perhost.SeedSize })
	fault.Say(n.Say, fault.In(err, "keys that this node makes for its services are not kept over a reboot"))
	return seed
}

func (n *Node) makeFile(f perhost.File, node perhost.Node) error {
	content, err := f.Make(node)
	if err != nil {
		return err
	}
	t := safepath.Thing{Mode: unix.S_IFREG | uint32(f.Mode), Content: content, UID: os.Geteuid(), GID: os.Getegid()}
	if f.Owner != "" {
		if t.UID, err = files.ID(n.path("/etc"), "passwd", f.Owner, nil); err != nil {
			return err
		}
	}
	if f.Group != "" {
		if t.GID, err = files.ID(n.path("/etc"), "group", f.Group, nil); err != nil {
			return err
		}
	}
	return n.put(f.Path, t)
}
