// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
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
			return fmt.Errorf("it is on %s; if it is meant, name its partition %s with 'caisson netboot --state-disk'",
				c.removable, orUnknown(c.uuid))
		}
		return nil
	}},
	{Name: "whole", OK: func(c *candidate) error {
		if c.unfinished == StepMaking {
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
			return fmt.Errorf("it belongs to the machine with UUID %.80q, this is %s; to move it here, delete %s from it",
				c.owner.Machine, mine, ownerFile)
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

// ownerFile is the owner record, in the top directory of the state disk.
const ownerFile = "owner.json"

// owner is whose memory a disk is.
type owner struct {
	Fleet   string `json:"fleet"`
	Machine string `json:"machine,omitempty"` // SMBIOS UUID
}

// Claim writes the owner record of a disk that is mounted at dir and has none yet,
// or another machine's that the site has named for this one.
func (f *Finder) Claim(dir string) error {
	mine := owner{Fleet: f.Fleet, Machine: f.Machine}
	have, err := readOwner(dir)
	if err == nil && (*have == mine || mine.Machine == "") {
		return nil
	}
	data, _ := spec.Encode(mine) // texts marshal
	if err := durable.WriteFile(filepath.Join(dir, ownerFile), data, 0o600); err != nil {
		return fmt.Errorf("note whose disk this is: %w", err)
	}
	return nil
}

// readOwner returns the record, or fs.ErrNotExist. One that others could have
// written is an error.
func readOwner(dir string) (*owner, error) {
	var o owner
	if err := readJSON(filepath.Join(dir, ownerFile), &o); err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	return &o, nil
}

// readFloor returns the floor that the disk remembers, for choosing between two;
// zero where that cannot be read. The user of the state judges it again.
func readFloor(dir string) spec.Floor {
	var s struct {
		Floor spec.Floor `json:"floor"`
	}
	if readJSON(filepath.Join(dir, "state.json"), &s) != nil {
		return spec.Floor{}
	}
	return s.Floor
}

// maxRecord caps what is read of a candidate.
const maxRecord = 1 << 20

func readJSON(name string, to any) error {
	data, err := ownfiles.ReadFile(name, maxRecord)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
