// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-os/caisson/bootagent/boot/disk/gpt"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// candidate is a partition on its way through the checks.
type candidate struct {
	partition
	finder *Finder
	owner  *owner // nil: a new disk
	floor  spec.Floor
	aside  bool
}

func (c *candidate) named() bool { return c.finder.Named != "" && c.uuid == c.finder.Named }

func (c *candidate) known() bool { return c.owner != nil || c.named() }

// rules say which partition is this node's memory. The site's own word about a
// partition stands in for what the medium and the machine say, never for the fleet:
// the floor of another fleet would have this one's overlays refused for ever.
var rules = check.List[*candidate]{
	{Name: "named", OK: func(c *candidate) error {
		if want := c.finder.Named; want != "" && !c.named() {
			return fmt.Errorf("the site names partition %s, this is %s", want, orUnknown(c.uuid))
		}
		return nil
	}},
	{Name: "medium", OK: func(c *candidate) error {
		if c.removable != "" && !c.named() {
			return fmt.Errorf("it is on %s; if it is meant, name its partition %s with 'caisson netboot --state-disk'", c.removable, orUnknown(c.uuid))
		}
		return nil
	}},
	{Name: "whole", OK: func(c *candidate) error {
		if c.unfinished == gpt.Making {
			return fmt.Errorf("the machine stopped while it was made; with layer.stateDisk.create it is made again, else make a new partition table")
		}
		return nil
	}},
	{Name: "content", OK: func(c *candidate) error {
		return c.finder.peek(c, func(dir string) (err error) {
			c.floor = readFloor(dir)
			if c.owner, err = readOwner(dir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	}},
	{Name: "fleet", OK: func(c *candidate) error {
		if c.owner != nil && c.owner.Fleet != c.finder.Fleet {
			return fmt.Errorf("it belongs to fleet %.80q, this is %q; to use it here, make a new file system on it", c.owner.Fleet, c.finder.Fleet)
		}
		return nil
	}},
	{Name: "machine", OK: func(c *candidate) error {
		mine := c.finder.Machine
		if c.owner != nil && c.owner.Machine != "" && mine != "" && c.owner.Machine != mine && !c.named() {
			return fmt.Errorf("it belongs to the machine with UUID %.80q, this is %s; to move it here, delete %s from it", c.owner.Machine, mine, ownerFile)
		}
		return nil
	}},
}

// unusable adds the remedy for a file system that does not mount.
func unusable(err error) error {
	return fmt.Errorf("%w; nothing is remembered until it is repaired (fsck) or has a new file system (mkfs.ext4)", err)
}

func orUnknown(uuid string) string {
	if uuid == "" {
		return "of unknown UUID"
	}
	return uuid
}
