// SPDX-License-Identifier: Apache-2.0

// Package handover makes a freshly stacked root into this node: identity,
// network, persisted paths and the stamps that keep systemd from doing its work
// of a first boot. It runs after the stack is mounted and before the root is entered, so
// that PID 1 finds everything in place and needs no reload.
//
// It writes into every new root; nothing here is configuration that a later
// boot could find changed. What it follows: machine-id(5), hostname(5),
// systemd.network(5), sshd(8), systemd-update-done.service(8). Makers
// of roots import it.
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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// Node holds the files that handover writes into a root.
type Node struct {
	Root     string        // where the stack is mounted
	Overlay  *spec.Overlay // of the node
	Version  string        // of the layer
	State    *state.Folder // identity is kept here
	Disk     bool          // State is on a disk, not in memory
	ReadOnly bool          // what is written to the disk stays in memory
	Watchdog time.Duration // the loader has started one with this timeout; 0 without one
	Unproven bool          // no boot has proved the generation yet, and this attempt is counted
	UUID     string        // SMBIOS, "" where the firmware gives none
	Network  table.Boot    // by which the node booted
	Say      func(format string, args ...any)

	SecretDir    string // where secrets are opened; "" is the real place
	SecretsLater bool   // they are opened by the agent: no memory below /run goes on

	Originals []item.Entry // what stood where files of the overlay are now; Do fills it in

	wrote []string
}

// Do writes everything and returns the paths that it wrote, as seen from inside
// the new root, sorted.
func (n *Node) Do() ([]string, error) {
	steps := []struct {
		name string
		do   func() error
	}{
		{"machine-id", n.machineID},
		{"host name", n.hostName},
		{"os-release", n.release},
		{"network", n.network},
		{"resolver", n.resolver},
		{"certificates", n.certificates},
		{"persisted paths", n.persist}, // before what is one machine's, which no disk is seeded with
		{"ssh host key", n.hostKey},
		{"files of one machine", n.perHost},
		{"container directories", n.containers},
		{"files", n.files},
		{"order of mounts", n.order},
		{"what is set before services start", n.early},
		{"random seed", n.seed},
		{"supervision", n.supervise},
		{"memory", n.memory},
		{"update stamps", n.stamps},
		{"state directory", n.stateDirectory},
		{"mounts that stay", n.stay},
		{"read-only /usr", n.sealUsr},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("handover: %s: %w", step.name, err)
		}
	}
	slices.Sort(n.wrote)
	return slices.Compact(n.wrote), nil
}

// path is name as the loader sees it.
func (n *Node) path(name string) string { return filepath.Join(n.Root, name) }

// directory opens the one at path below base and makes what is missing of it, each
// in the one that is held open before it. A link on the way is an error: on a state disk,
// and in what is shown of it, a user may have put it there, or put it there just now, to
// have something else written or mounted over.
func directory(base, path string) (dir safepath.Dir, err error) {
	at, in, name := base, unix.AT_FDCWD, base
	for part := range strings.FieldsFuncSeq("./"+path, func(r rune) bool { return r == '/' }) {
		if at = filepath.Join(at, part); in != unix.AT_FDCWD {
			name = part
		}
		if err := unix.Mkdirat(in, name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return dir, &fs.PathError{Op: "mkdir", Path: at, Err: err}
		}
		next, err := holdAs(in, name, at)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return dir, fmt.Errorf("%s is not a directory", at)
		}
		if err != nil {
			return dir, err
		}
		if in != unix.AT_FDCWD {
			_ = dir.Close() // only held
		}
		dir, in = next, int(next.Fd())
	}
	return dir, nil
}

// hold opens a directory to which no link leads, for what is done to it whatever its
// name leads to by then.
func hold(path string) (safepath.Dir, error) { return holdAs(unix.AT_FDCWD, path, path) }

// holdIn is hold for a name in a directory that is held.
func holdIn(dir safepath.Dir, name string) (safepath.Dir, error) {
	return holdAs(int(dir.Fd()), name, filepath.Join(dir.Name(), name))
}

// holdAs is hold for a name in a descriptor; errors call it path.
func holdAs(in int, name, path string) (safepath.Dir, error) {
	fd, err := unix.Openat2(in, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return safepath.Dir{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return safepath.Dir{File: os.NewFile(uintptr(fd), path)}, nil
}

// write puts a file into the new root, and its missing directories.
func (n *Node) write(name string, data []byte, mode fs.FileMode) error {
	return n.put(name, safepath.Thing{Mode: unix.S_IFREG | uint32(mode.Perm()), Content: data, UID: os.Geteuid(), GID: os.Getegid()})
}

// put puts something into the new root, and its missing directories. What stood
// there is replaced, never written through: it may be a link.
func (n *Node) put(name string, t safepath.Thing) error {
	dir, err := directory(n.Root, filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	if err := dir.Put(filepath.Base(name), t); err != nil {
		return err
	}
	n.wrote = append(n.wrote, name)
	return nil
}

// bind shows from at the path to of the new root. What is mounted, and where, is held
// open: before a soft-reboot users go on, and may put a link there at any moment.
func (n *Node) bind(from, to string) error {
	dir, err := hold(from)
	if err != nil {
		return err
	}
	defer dir.Close() // only held
	return n.show(dir, to)
}

// show is bind for what is held open.
func (n *Node) show(dir safepath.Dir, to string) error {
	at, err := directory(n.Root, to)
	if err != nil {
		return err
	}
	defer at.Close() // only held
	return fault.In(unix.Mount(safepath.Name(int(dir.Fd())), safepath.Name(int(at.Fd())), "", unix.MS_BIND, ""),
		"bind %s to %s", dir.Name(), to)
}

func (n *Node) exists(name string) bool {
	_, err := os.Lstat(n.path(name))
	return err == nil
}

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
		fault.Say(n.Say, err)
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
		fault.Say(n.Say, err)
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
	files := table.NetworkdFiles(n.Overlay.Network, n.Network)
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
	s, ok := spec.TimeServiceIn(n.exists)
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
	if len(search) == 0 && n.Network.Lease != nil {
		search = n.Network.Lease.Search
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	servers := n.Overlay.Network.DNS
	if len(servers) == 0 && n.Network.Lease != nil {
		servers = plain.Each(n.Network.Lease.DNS, netip.Addr.String)
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
