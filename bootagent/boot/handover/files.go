// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/fetch/recipient"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/spec"
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
		files.New(want.Files, etc, &j).WithSecrets(files.Secrets{Dir: at, Lacks: sealed.Lacks, Later: n.SecretsLater}).WithReaders(func(ctx context.Context, path, content string) error {
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
		key, err := recipient.Read(n.State.Path())
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
