// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/spec"
)

// files writes the overlay's files and those that other kinds are made of, with the
// code that keeps them later, so that services find them when they start. A file
// that cannot be written does not stop the boot: the service tries again and shows
// why. The service's journal gets the originals.
func (n *Node) files() error {
	var j originals
	etc, want := n.path("/etc"), n.Overlay.Items
	ctx := context.Background()
	for _, it := range []item.Item{
		files.New(want.Files, etc, &j),
		files.Named(modules.Name, modules.Files(want.Modules), etc, &j),
		units.New(want.Units, n.Root, nil, &j),
		files.Named(service.Name, service.Files(n.Overlay.Services, n.Root), etc, &j),
	} {
		drift, err := it.Check(ctx)
		if err == nil {
			err = it.Apply(ctx, drift)
		}
		if err != nil {
			n.Say("%v", err)
		}
		for _, d := range drift {
			if d.Action == spec.ActionRefuse {
				n.Say("file %s is not written: %s", d.Key, d.Reason)
			}
		}
	}
	n.Originals = j.entries
	for _, e := range j.entries {
		n.wrote = append(n.wrote, e.Key)
	}
	return nil
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
